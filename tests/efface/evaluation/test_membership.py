"""Membership scores by hand, by scikit-learn, and against open-unlearning's recorded values."""

import json
import math
import zlib

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score

from efface.evaluation.membership import (
    gradient_norm_scores,
    membership_auc,
    membership_scores,
    min_k_score,
    priv_leak,
    standardised_log_probs,
    zlib_score,
)
from efface.evaluation.scoring import AnswerScore, score_answers
from efface.models import scratch_llama
from efface.tokenization import Encoding

SCORES = ("loss", "zlib", "min_k", "min_k_plus_plus", "reference")
MODELS = ("full", "unlearned", "retain", "start")


def answer(*log_probs, **moments):
    values = np.array(log_probs, dtype=np.float32)
    arrays = {name: np.array(numbers, dtype=np.float32) for name, numbers in moments.items()}
    return AnswerScore(values, values > -1, **arrays)


def test_scores_by_hand():
    """Five tokens and an end token: ⌊0.4·5⌋ = 2 lowest are −4 and −3; min-k++ of −4/2, −3/1 and above."""
    score = answer(-1, -4, -2, -3, 0, -8, expectations=[0] * 6, variances=[1, 4, 1, 1, 1, 1])
    found = membership_scores(score, "abc", ends=True, reference_nll=1.0)
    assert found["loss"] == pytest.approx(3)
    assert found["zlib"] == pytest.approx(3 / len(zlib.compress(b"abc")))
    assert found["reference"] == pytest.approx(2)
    assert found["min_k"] == pytest.approx(3.5)
    assert found["min_k_plus_plus"] == pytest.approx(2.5)


def test_a_text_without_an_end_token_counts_to_its_last():
    """⌊0.4·6⌋ = 2 lowest of six are −8 and −4."""
    assert membership_scores(answer(-1, -4, -2, -3, 0, -8), "abc", ends=False)["min_k"] == pytest.approx(6)


def test_scores_that_lack_an_input_are_absent():
    assert set(membership_scores(answer(-1, -2), "a", ends=True)) == {"loss", "zlib", "min_k"}


def test_an_answer_of_one_token_has_every_score():
    score = answer(-1.5, -9, expectations=[-1, 0], variances=[0, 1])
    found = membership_scores(score, "é", ends=True)
    assert found["min_k"] == pytest.approx(1.5)
    assert found["min_k_plus_plus"] == pytest.approx(0.5 / math.sqrt(1e-6))


def test_min_k_of_all_tokens_is_their_mean_and_of_few_the_lowest():
    draw = np.random.default_rng(0).normal(size=23)
    assert min_k_score(draw, share=1.0) == pytest.approx(-draw.mean())
    assert min_k_score(draw, share=0.01) == pytest.approx(-draw.min())
    shares = [min_k_score(draw, share=share) for share in (0.1, 0.3, 0.6, 1.0)]
    assert shares == sorted(shares, reverse=True)


@pytest.mark.parametrize("share", [0.0, -0.1, 1.1])
def test_a_share_out_of_range_is_named(share):
    with pytest.raises(ValueError, match=rf"share {share}: expected a number in \(0, 1\]"):
        min_k_score(np.array([-1.0]), share=share)


def test_texts_without_tokens_are_refused():
    with pytest.raises(ValueError, match="without tokens before its end token; give it text"):
        membership_scores(answer(-1), "a", ends=True)
    with pytest.raises(ValueError, match="zlib score of an empty text"):
        zlib_score(1.0, "")


@pytest.mark.parametrize("seed", range(20))
def test_auc_is_scikit_learns(seed):
    """Members labelled 0, outsiders 1, with many ties."""
    draw = np.random.default_rng(seed)
    members, outsiders = (draw.integers(0, 6, size=draw.integers(1, 30)).astype(float) for _ in range(2))
    labels = [0] * len(members) + [1] * len(outsiders)
    expected = roc_auc_score(labels, np.concatenate([members, outsiders]))
    assert membership_auc(members, outsiders) == pytest.approx(expected, abs=1e-12)
    assert membership_auc(outsiders, members) == pytest.approx(1 - expected, abs=1e-12)
    assert membership_auc(np.exp(members), np.exp(outsiders)) == pytest.approx(expected, abs=1e-12)


def test_the_sign_of_the_auc():
    """Members whose loss is below every outsider's are given away."""
    assert membership_auc([0.1, 0.2], [0.9, 3.0]) == 1
    assert membership_auc([0.5], [0.5]) == 0.5


@pytest.mark.parametrize(
    ("members", "outsiders", "message"),
    [
        ([], [1.0], "without members; expected at least one"),
        ([1.0], [], "without outsiders; expected at least one score, from a set withheld"),
        ([1.0, math.nan], [1.0], "a score of the members is nan"),
        ([1.0], [math.inf], "a score of the outsiders is inf"),
    ],
)
def test_sides_that_have_no_auc_are_refused(members, outsiders, message):
    with pytest.raises(ValueError, match=message):
        membership_auc(members, outsiders)


def test_priv_leak_by_hand():
    """MUSE's constant for News is 0.4772 in its own convention: AUC ½ gives +4.778, 0 gives −100."""
    assert priv_leak(0.5, 1 - 0.4772) == pytest.approx(4.778, abs=1e-3)
    assert priv_leak(0.5, 1 - 0.5393) == pytest.approx(-7.287, abs=1e-3)
    assert priv_leak(1 - 0.0009, 1 - 0.5393) == pytest.approx(-99.83, abs=1e-2)
    assert priv_leak(1.0, 0.5) == -100
    assert priv_leak(0.3, 0.3) == 0


@pytest.mark.parametrize("reference", [0.0, 1.0, -0.1, 1.5, math.nan])
def test_a_degenerate_reference_is_refused(reference):
    with pytest.raises(ValueError, match=f"the retained model's AUC is {reference}, expected more than 0 and less"):
        priv_leak(0.5, reference)


def test_a_missing_reference_and_a_wrong_auc_are_refused():
    with pytest.raises(ValueError, match="without the retained model's AUC; evaluate a model trained without"):
        priv_leak(0.5, None)
    with pytest.raises(ValueError, match=r"AUC 1\.2, expected a number in \[0, 1\]"):
        priv_leak(1.2, 0.5)


@pytest.fixture(scope="module")
def model():
    return scratch_llama(
        vocab_size=50, layers=2, hidden=32, heads=4, kv_heads=2, intermediate=64, tie_embeddings=True, seed=0
    )


@pytest.fixture(scope="module")
def encodings():
    draw = np.random.default_rng(3)
    sizes = [(int(draw.integers(1, 5)), int(draw.integers(2, 9))) for _ in range(7)]
    return [Encoding(tuple(draw.integers(0, 50, size=p + a).tolist()), p) for p, a in sizes]


def test_no_score_depends_on_the_batch(model, encodings):
    one, other = (score_answers(model, encodings, batch_size=size, pad_id=0, moments=True) for size in (1, 7))
    for first, second in zip(one, other, strict=True):
        expected = membership_scores(first, "text", ends=True, reference_nll=1.0)
        assert membership_scores(second, "text", ends=True, reference_nll=1.0) == pytest.approx(expected, abs=1e-5)


def test_gradient_norms_are_those_of_backward(model, encodings):
    """`.backward()` one by one, mean over tensors; nothing is left in `.grad`."""
    expected = []
    for encoding in encodings:
        ids = torch.tensor([encoding.input_ids[:-1]])
        labels = ids.clone()
        labels[:, : encoding.prompt_length] = -100
        model(input_ids=ids, labels=labels).loss.backward()
        expected.append(float(np.mean([float(parameter.grad.norm()) for parameter in model.parameters()])))
        model.zero_grad(set_to_none=True)
    assert gradient_norm_scores(model, encodings, ends=True) == pytest.approx(expected, rel=1e-5)
    assert all(parameter.grad is None for parameter in model.parameters())


def test_a_gradient_norm_without_tokens_names_the_example(model):
    with pytest.raises(ValueError, match="example 1: no token to predict before the end token"):
        gradient_norm_scores(model, [Encoding((1, 2, 3), 1), Encoding((1, 2), 1)], ends=True)


def test_pure_functions_are_the_oracles(oracle):
    cases = oracle.expected["pure_functions"]
    for case in cases["mia_auc"]["cases"]:
        assert membership_auc(case["forget_scores"], case["holdout_scores"]) == pytest.approx(case["auc"], abs=1e-12)
    for case in cases["privleak"]:
        reference = case["auc_retain"]
        if reference is None or reference == 1:
            with pytest.raises(ValueError, match="PrivLeak"):
                priv_leak(case["auc_model"], reference)
        else:
            assert priv_leak(case["auc_model"], reference) == pytest.approx(case["privleak"], rel=1e-8)


def rows_of(oracle, benchmark):
    """Encodings of forget and holdout rows in the reference's layout; MUSE's texts have no end token."""
    if benchmark == "tofu":
        holdout = (oracle.folder / "rows/holdout.jsonl").read_text().splitlines()
        rows = {"forget": oracle.rows["forget"], "holdout": [json.loads(line) for line in holdout]}
        return {key: [oracle.encoding(row["question"], row["answer"]) for row in own] for key, own in rows.items()}
    rows = {
        key: (oracle.folder / f"rows/muse_privleak_{key}.jsonl").read_text().splitlines()
        for key in ("forget", "holdout")
    }
    return {
        key: [Encoding(tuple(oracle.tokenizer(json.loads(line)["text"])["input_ids"]), 1) for line in lines]
        for key, lines in rows.items()
    }


def oracle_scores(oracle, model_name, encodings):
    """The reference drops the last label of every row, end token or not."""
    tokens = [score_answers(oracle.models[name], encodings, batch_size=8, pad_id=2, moments=True) for name in
              (model_name, "retain")]  # fmt: skip
    texts = [oracle.tokenizer.decode(list(encoding.answer_ids), skip_special_tokens=True) for encoding in encodings]
    found = [
        membership_scores(score, text, ends=True, reference_nll=reference.nll)
        for score, reference, text in zip(*tokens, texts, strict=True)
    ]
    norms = gradient_norm_scores(oracle.models[model_name], encodings, ends=True)
    return {name: [one[name] for one in found] for name in SCORES} | {"gradnorm": norms}


@pytest.mark.parametrize("benchmark", ["tofu", "muse"])
@pytest.mark.parametrize("model_name", MODELS)
def test_scores_and_aucs_are_the_oracles(oracle, model_name, benchmark):
    """Every row of six attacks; an AUC may move by one step where two scores are nearly tied (the README's rule)."""
    logged = oracle.expected["metrics"][model_name][benchmark]
    found = {key: oracle_scores(oracle, model_name, own) for key, own in rows_of(oracle, benchmark).items()}
    for name in (*SCORES, "gradnorm"):
        expected = logged[f"mia_{name}"]
        for key in ("forget", "holdout"):
            rows = expected[key]["value_by_index"]
            values = [rows[str(place)]["score"] for place in range(len(rows))]
            np.testing.assert_allclose(found[key][name], values, rtol=1e-4, atol=2e-5, err_msg=f"{name} {key}")
        step = 1 / (len(found["forget"][name]) * len(found["holdout"][name]))
        assert membership_auc(found["forget"][name], found["holdout"][name]) == pytest.approx(
            expected["auc"], abs=1.01 * step if name in ("gradnorm", "zlib") else 1e-9
        )


@pytest.mark.parametrize("benchmark", ["tofu", "muse"])
@pytest.mark.parametrize("model_name", ["full", "unlearned", "start"])
def test_priv_leak_is_the_oracles(oracle, model_name, benchmark):
    rows = rows_of(oracle, benchmark)
    aucs = []
    for name in (model_name, "retain"):
        scores = {
            key: [min_k_score(score.log_probs[:-1]) for score in score_answers(
                oracle.models[name], own, batch_size=8, pad_id=2)]
            for key, own in rows.items()
        }  # fmt: skip
        aucs.append(membership_auc(scores["forget"], scores["holdout"]))
    expected = oracle.expected["metrics"][model_name][benchmark]["privleak"]["agg_value"]
    assert priv_leak(*aucs) == pytest.approx(expected, abs=1e-6)


def test_standardising_needs_no_variance():
    values = standardised_log_probs(np.array([-1.0]), np.array([-2.0]), np.array([0.0]))
    assert values.tolist() == [pytest.approx(1000)]
