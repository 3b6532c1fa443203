import json

import numpy as np
import pytest

from efface.evaluation.model_utility import UTILITY_PARTS, final_score, harmonic_mean, model_utility
from efface.evaluation.probability import answer_probability, probability_among_options
from efface.evaluation.truth_ratio import closeness_to_one, preference_for_truth, truth_ratio

LOGS = {
    "retain": "eval_log.json",
    "real_authors": "eval_real_author_wo_options.json",
    "world_facts": "eval_real_world_wo_options.json",
    "forget": "eval_log_forget.json",
}
PUBLISHED = {
    "full": [0.989527, 0.985655, 0.474699, 0.455482, 0.933, 0.596229, 0.418562, 0.882479, 0.539033],
    "retain90": [0.988897, 0.975811, 0.470977, 0.434087, 0.923, 0.570681, 0.414326, 0.897436, 0.544198],
    "retain95": [0.988267, 0.979889, 0.462922, 0.41673, 0.953, 0.544175, 0.402494, 0.886752, 0.527928],
    "retain99": [0.990596, 0.988945, 0.464641, 0.459313, 0.928, 0.603727, 0.41217, 0.882479, 0.538977],
}
PUBLISHED_FORGET = {
    "full": [0.990939, 0.98545, 0.515985],
    "retain90": [0.147563, 0.408244, 0.674019],
    "retain95": [0.154716, 0.398, 0.674147],
    "retain99": [0.179521, 0.397237, 0.684941],
}
PUBLISHED_UTILITY = {"full": 0.622677, "retain90": 0.613745, "retain95": 0.600577, "retain99": 0.620744}
UDS_PARTS = [f"{short}_{part}" for short in ("retain", "ra", "wf") for part in ("q_prob", "q_rouge", "truth_ratio")]


def test_harmonic_mean_by_hand():
    """3 / (1/1 + 1/0.5 + 1/0.25) = 3/7."""
    assert harmonic_mean([1.0, 0.5, 0.25]) == pytest.approx(3 / 7)


def test_harmonic_mean_of_draws_is_elementwise():
    """Draws (1, 0) and (½, ½): 2 / (1 + 2) = ⅔, and 0 where one value is 0."""
    assert harmonic_mean([np.array([1.0, 0.0]), np.array([0.5, 0.5])]) == pytest.approx([2 / 3, 0.0])


@pytest.mark.parametrize("values", [[], [0.5, -0.1]])
def test_harmonic_mean_refuses(values):
    with pytest.raises(ValueError, match="harmonic mean"):
        harmonic_mean(values)


def test_missing_parts_are_named():
    parts = dict.fromkeys(UTILITY_PARTS[1:], 0.5)
    with pytest.raises(ValueError, match="probability on retain"):
        model_utility(parts)


def test_model_free_cases_are_the_oracles(oracle):
    for case in oracle.expected["pure_functions"]["hm_aggregate"]:
        utility = model_utility(dict(zip(UTILITY_PARTS, case["values"], strict=True)))
        assert utility == pytest.approx(case["hmean"], rel=1e-9)


@pytest.mark.parametrize("model", ["full", "unlearned", "retain", "start"])
def test_model_utility_is_the_oracles(oracle, model):
    """From the losses computed here and the logged ROUGE; `start` has a zero part, so exactly 0."""
    parts = {}
    for split, short in (("retain", "retain"), ("real_authors", "ra"), ("world_facts", "wf")):
        wrong, right = oracle.wrong_nlls(model, split), oracle.right_nlls(model, split)
        answers = [score.nll for score in oracle.answers(model, split)]
        parts[split, "probability"] = np.mean([answer_probability(nll) for nll in answers])
        shares = [probability_among_options(*pair) for pair in zip(answers, wrong, strict=True)]
        parts[split, "probability_among_options"] = np.mean(shares)
        ratios = np.array([truth_ratio(*pair) for pair in zip(right, wrong, strict=True)])
        parts[split, "truth_ratio"] = preference_for_truth(ratios).mean()
        parts[split, "rougeL_recall"] = oracle.metric(model, f"{short}_Q_A_ROUGE")["agg_value"]
    expected = oracle.expected["summary"][model]["model_utility_components"]
    assert [parts[part] for part in UTILITY_PARTS] == pytest.approx(list(expected.values()), rel=2e-5)
    assert model_utility(parts) == pytest.approx(oracle.metric(model, "model_utility")["agg_value"], rel=2e-5)


def published_parts(log: dict, split: str) -> list[float]:
    """Probability, ROUGE-L recall and truth ratio of one published log."""
    losses, wrong = list(log["avg_gt_loss"].values()), list(log["average_perturb_loss"].values())
    if split in ("retain", "forget"):
        probability = np.mean([answer_probability(loss) for loss in losses])
    else:
        probability = np.mean([probability_among_options(*pair) for pair in zip(losses, wrong, strict=True)])
    pairs = zip(log["avg_paraphrased_loss"].values(), wrong, strict=True)
    ratios = np.array([truth_ratio(*pair) for pair in pairs])
    aggregate = closeness_to_one if split == "forget" else preference_for_truth
    return [probability, np.mean(list(log["rougeL_recall"].values())), aggregate(ratios).mean()]


@pytest.mark.parametrize("model", PUBLISHED)
def test_published_logs_give_the_published_aggregates(shared_folder, model):
    """locuslab/tofu, Llama-2-7B: nine parts, three forget metrics and model utility to six decimals."""
    path = shared_folder / f"data/published_results/tofu_llama2/{model}_wd0.01_eval_log_aggregated.json"
    logs = json.loads(path.read_text())
    found = {split: published_parts(logs[name], split) for split, name in LOGS.items()}
    nine = [*found["retain"], *found["real_authors"], *found["world_facts"]]
    assert nine == pytest.approx(PUBLISHED[model], abs=1e-6)
    assert found["forget"] == pytest.approx(PUBLISHED_FORGET[model], abs=1e-6)
    utility = model_utility(dict(zip(UTILITY_PARTS, nine, strict=True)))
    assert utility == pytest.approx(PUBLISHED_UTILITY[model], abs=1e-6)


def test_all_152_published_harmonic_means(shared_folder):
    """unlearning-depth-score, 152 Llama-3.2-1B TOFU models: utility, memorization and the scores built on them."""
    path = shared_folder / "data/published_results/uds/method_results.json"
    rows = json.loads(path.read_text())["models"]
    assert len(rows) == 152
    for row in rows:
        parts = dict(zip(UTILITY_PARTS, (row[part] for part in UDS_PARTS), strict=True))
        assert model_utility(parts) == pytest.approx(row["model_utility"], abs=1e-10)
        for name, components in {
            "mem": ("one_minus_es", "one_minus_em", "one_minus_paraprob", "one_minus_truth"),
            "utility": ("model_utility", "fluency"),
            "privacy_mia": ("s_loss", "s_zlib", "s_mink", "s_minkpp"),
            "privacy": ("privacy_mia", "uds"),
            "overall": ("mem", "privacy", "utility_rel"),
        }.items():
            assert harmonic_mean([row[part] for part in components]) == pytest.approx(row[name], abs=1e-10), name


@pytest.mark.parametrize(
    ("one_minus_rouge", "one_minus_probability", "one_minus_extraction", "utility", "final"),
    [
        (0.61, 0.85, 0.93, 0.62, 0.71),
        (0.74, 0.97, 0.92, 0.58, 0.73),
        (0.95, 1.00, 0.97, 0.62, 0.79),
        (0.62, 0.88, 0.94, 0.59, 0.70),
        (0.65, 0.94, 0.94, 0.56, 0.70),
        (0.78, 1.00, 0.94, 0.60, 0.75),
    ],
)
def test_final_scores_of_groms_tables(one_minus_rouge, one_minus_probability, one_minus_extraction, utility, final):
    """arXiv:2608.05783, TOFU tables: the printed score follows from the printed columns within rounding (≤ 0.01)."""
    found = final_score(1 - one_minus_rouge, 1 - one_minus_probability, 1 - one_minus_extraction, utility)
    assert found == pytest.approx(final, abs=0.01)
