"""Ten examples, three models, two precisions: every aggregated number by hand."""

import json
import math
from pathlib import Path
from types import SimpleNamespace

import polars as pl
import pytest

from stages import compare
from stages.params import Compare, ModelItem
from stages.tables.anchors import ANCHORS
from stages.tables.examples import EXAMPLES
from stages.tables.forget_sets import FORGET_SETS
from stages.tables.metrics import METRICS
from stages.tables.paired import PAIRED
from stages.tables.pairwise import PAIRWISE
from stages.tables.results import RESULTS

# id: (split, author, utility); 3 is an anchor and 9 belongs to no split
ROWS = {
    0: ("authors", 0, False),
    1: ("authors", 0, False),
    2: ("authors", 1, False),
    3: ("authors", 1, False),
    4: ("authors", 2, True),
    5: ("authors", 3, True),
    6: ("real_authors", -1, True),
    7: ("world_facts", -1, True),
    8: ("holdout", 4, False),
    9: ("authors", 2, False),
}
MODELS = {"target": None, "retained-default": None, "grom-default": "grom"}
# probability on the forget rows 0, 1, 2 (mean without and with rtn_4)
FORGET = {
    ("target", "none"): (0.9, 1.0, 0.8),
    ("target", "rtn_4"): (0.7, 0.8, 0.6),
    ("retained-default", "none"): (0.1, 0.0, 0.2),
    ("retained-default", "rtn_4"): (0.1, 0.1, 0.1),
    ("grom-default", "none"): (0.1, 0.2, 0.3),
    ("grom-default", "rtn_4"): (0.3, 0.4, 0.5),
}
RATIOS = {"target": (0.1, 0.2, 0.3), "retained-default": (0.9, 1.0, 1.1), "grom-default": (0.4, 0.5, 2.0)}


def results(model: str, quantization: str) -> pl.DataFrame:
    """Elsewhere than on the forget rows everything is ½; without quantization ROUGE is known too."""
    values = []
    for number in ROWS:
        forgotten = FORGET[model, quantization][number] if number < 3 else 0.5
        metrics = {
            "answer_nll": -math.log(forgotten or 1e-3),
            "probability": forgotten,
            "extraction_strength": 0.5,
            "exact_memorization": 0.5,
            "truth_ratio": RATIOS[model][number] if number < 3 else 0.5,
        }
        if number in (6, 7):
            metrics["probability_among_options"] = 0.5
        if quantization == "none":
            metrics |= {"rougeL_recall": 0.5, "rouge1_recall": 0.5}
        values += [(model, quantization, "float32", number, metric, value) for metric, value in metrics.items()]
    return pl.DataFrame(values, schema=list(RESULTS.columns), orient="row")


@pytest.fixture
def params(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    monkeypatch.chdir(tmp_path)
    examples = [
        {
            "id": number, "content_hash": "", "split": split, "author": author, "position": 0, "question": "?",
            "answer": "!", "paraphrased_answer": None, "perturbed_answers": ["no"], "trained": split != "holdout",
            "pool": number < 4, "anchor_candidate": False, "utility": utility,
        }
        for number, (split, author, utility) in ROWS.items()
    ]  # fmt: skip
    EXAMPLES.write("data/prepare_data/examples.parquet", pl.DataFrame(examples))
    anchor = {"id": [3, 0], "role": ["easy"] * 2, "source": ["all", "npo-7"], "agreed": [True] * 2, "votes": [2] * 2}
    ANCHORS.write("data/select_anchors/anchors.parquet", pl.DataFrame(anchor | {"mean_rank": [0.0] * 2}))
    FORGET_SETS.write("data/forget_sets/default.parquet", pl.DataFrame({"id": [0, 1, 2, 3], "role": ["forget"] * 4}))
    for model in [*MODELS, "grom-default"]:
        RESULTS.write(f"data/evaluate/{model}/results.parquet", results(model, "none"))
        RESULTS.write(f"data/quantize_attack/{model}/results.parquet", results(model, "rtn_4"))
    found = SimpleNamespace(
        profile="micro",
        seed=0,
        sets=("default",),
        compare=Compare(bootstrap=50, confidence=0.9),
        models={
            name: ModelItem(
                base="models/target",
                weights=f"models/{name}",
                edit=edit,
                set=None if name == "target" else "default",
            )
            for name, edit in reversed(MODELS.items())
        },
    )
    monkeypatch.setattr(compare, "load_params", lambda: found)
    return found


def metric(metrics: pl.DataFrame, model: str, name: str, *, split: str = "forget", quantization: str = "none") -> dict:
    key = {"model": model, "metric": name, "split": split, "quantization": quantization}
    return metrics.row(by_predicate=pl.all_horizontal(pl.col(k) == v for k, v in key.items()), named=True)


def compared() -> pl.DataFrame:
    compare.main()
    return METRICS.read("data/compare/metrics.parquet")


def test_means_and_their_labels(params):
    """(0.1 + 0.2 + 0.3) / 3; min(R, 1/R) of 0.4, 0.5 and 2 is (0.4 + 0.5 + 0.5) / 3. The anchor 3 is in no split."""
    metrics = compared()
    row = metric(metrics, "grom-default", "probability")
    assert row["value"] == pytest.approx(0.2)
    assert row["n"] == 3
    assert row["ci_low"] <= 0.2 <= row["ci_high"]
    labels = {"profile": "micro", "edit": "grom", "forget_set": "default", "seed": 0, "dtype": "float32"}
    assert {name: row[name] for name in labels} == labels
    assert row["direction"] == "lower_is_better"
    assert metric(metrics, "grom-default", "truth_ratio")["value"] == pytest.approx(1.4 / 3)
    assert metric(metrics, "grom-default", "probability", split="retain")["n"] == 2
    assert metric(metrics, "grom-default", "probability", split="holdout")["direction"] == "none"


def test_models_stand_in_order_references_first(params):
    assert compared()["model"].unique(maintain_order=True).to_list() == list(MODELS)


def test_forget_quality_utility_and_final_score(params):
    """Ratios 0.4, 0.5, 2 against 0.9, 1, 1.1: D = 2/3, as in 12 of 20 orders; utility ½; final ½ (1 − 1.2/3 + ½)."""
    metrics = compared()
    assert metric(metrics, "grom-default", "ks_statistic")["value"] == pytest.approx(2 / 3)
    assert metric(metrics, "grom-default", "forget_quality_p")["value"] == pytest.approx(0.6)
    assert metric(metrics, "grom-default", "forget_quality_p")["ci_low"] is None
    assert metric(metrics, "target", "forget_quality_p")["value"] == pytest.approx(0.1)
    assert metric(metrics, "grom-default", "model_utility", split="utility")["value"] == pytest.approx(0.5)
    assert metric(metrics, "grom-default", "final_score", split="all")["value"] == pytest.approx((1 - 0.4 + 0.5) / 2)
    assert metrics.filter((pl.col("model") == "retained-default") & (pl.col("metric") == "forget_quality_p")).is_empty()


def test_recovery(params):
    """GROM rises from 0.2 to 0.4 where the quantized target has 0.7: 0.2 / 0.5. Extraction strength had no gap."""
    metrics = compared()
    assert metric(metrics, "grom-default", "recovery_rate_probability", quantization="rtn_4")["value"] == pytest.approx(
        0.4
    )
    assert metric(metrics, "grom-default", "recovery_gap_probability", quantization="rtn_4")["value"] == pytest.approx(
        0.5
    )
    undefined = metric(metrics, "grom-default", "recovery_rate_extraction_strength", quantization="rtn_4")
    assert (undefined["value"], undefined["ci_low"], undefined["n"]) == (None, None, 3)
    rates = metrics.filter(pl.col("metric") == "recovery_rate_probability")
    assert rates["model"].to_list() == ["retained-default", "grom-default"]


def test_paired_differences(params):
    """GROM minus target: 0.1 − 0.9, 0.2 − 1, 0.3 − 0.8, mean −0.7; minus retained: 0, 0.2, 0.1, mean 0.1."""
    compare.main()
    paired = PAIRED.read("data/compare/paired.parquet").filter(
        (pl.col("model") == "grom-default") & (pl.col("quantization") == "none")
        & (pl.col("split") == "forget") & (pl.col("metric") == "probability")
    )  # fmt: skip
    found = dict(paired.select("reference", "mean_difference").iter_rows())
    assert found == {"target": pytest.approx(-0.7), "retained": pytest.approx(0.1)}
    assert (paired["ci_low"] <= paired["mean_difference"]).all()


def test_edits_of_one_set_are_compared_with_each_other(params):
    """RMU has probability 0.2, 0.3, 0.5 where GROM has 0.1, 0.2, 0.3: 0.4/3 apart on the same three examples."""
    FORGET["rmu-default", "none"], FORGET["rmu-default", "rtn_4"] = (0.2, 0.3, 0.5), (0.3, 0.4, 0.5)
    RATIOS["rmu-default"] = RATIOS["grom-default"]
    RESULTS.write("data/evaluate/rmu-default/results.parquet", results("rmu-default", "none"))
    RESULTS.write("data/quantize_attack/rmu-default/results.parquet", results("rmu-default", "rtn_4"))
    params.models["rmu-default"] = ModelItem(
        base="models/target", weights="models/rmu-default", edit="rmu", set="default"
    )
    compare.main()
    pairs = PAIRWISE.read("data/compare/pairwise.parquet")
    row = pairs.filter(quantization="none", split="forget", metric="probability").row(0, named=True)
    sign = 1 if row["first"] == "rmu" else -1
    assert {row["first"], row["second"]} == {"rmu", "grom"} and row["n"] == 3
    assert sign * row["difference"] == pytest.approx(0.4 / 3)
    assert row["p"] == row["p_holm"] < 1
    assert pairs.filter(quantization="rtn_4", split="forget", metric="probability")["p"].to_list() == [1.0]
    assert set(pairs.filter(quantization="none")["metric"]) >= {"model_utility", "final_score", "rougeL_recall"}


def test_headline_is_nested_finite_and_rounded(params):
    compare.main()
    numbers = json.loads(Path("data/compare/metrics.json").read_text())
    assert list(numbers) == list(MODELS)
    assert numbers["grom-default"]["none"] == {
        "forget_probability": 0.2,
        "forget_rougeL": 0.5,
        "forget_extraction_strength": 0.5,
        "forget_truth_ratio": 0.466667,
        "forget_quality_p": 0.6,
        "model_utility": 0.5,
        "final_score": 0.55,
    }
    assert numbers["grom-default"]["rtn_4"]["recovery"] == 0.4
    assert "model_utility" not in numbers["grom-default"]["rtn_4"]


def test_a_missing_retained_model_drops_only_its_columns(params):
    before = compared()
    del params.models["retained-default"]
    after = compared()
    own = ["forget_quality_p", "forget_quality_log10_p", "ks_statistic"]
    expected = before.filter((pl.col("model") != "retained-default") & ~pl.col("metric").is_in(own))
    assert after.equals(expected)
    assert set(PAIRED.read("data/compare/paired.parquet")["reference"]) == {"target"}


def test_only_models_named_in_params_are_read(params):
    del params.models["grom-default"]
    assert "grom-default" not in compared()["model"]


def test_same_inputs_give_the_same_bytes(params):
    found = []
    for _ in range(2):
        compare.main()
        found.append([path.read_bytes() for path in sorted(Path("data/compare").iterdir())])
    assert found[0] == found[1]


def test_missing_results_and_an_empty_forget_set_are_named(params):
    FORGET_SETS.write("data/forget_sets/default.parquet", pl.DataFrame({"id": [3], "role": ["forget"]}))
    with pytest.raises(ValueError, match="forget set 'default': none of its 1 ids"):
        compare.main()
    FORGET_SETS.write("data/forget_sets/default.parquet", pl.DataFrame({"id": [0, 1], "role": ["forget"] * 2}))
    Path("data/evaluate/grom-default/results.parquet").unlink()
    with pytest.raises(ValueError, match=r"data/evaluate/grom-default/results\.parquet: no such file"):
        compare.main()


def test_a_model_that_is_its_own_reference_is_named(params):
    copied = results("retained-default", "none").with_columns(model=pl.lit("grom-default"))
    RESULTS.write("data/evaluate/grom-default/results.parquet", copied)
    with pytest.raises(ValueError, match="grom-default, quantization none: forget quality: all 3 truth ratios"):
        compare.main()
