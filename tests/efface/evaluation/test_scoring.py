import numpy as np
import pytest
import torch

from efface.evaluation.scoring import next_token_log_probs, score_answers
from efface.models import scratch_llama
from efface.tokenization import Encoding


@pytest.fixture(scope="module")
def model():
    return scratch_llama(
        vocab_size=50, layers=2, hidden=32, heads=4, kv_heads=2, intermediate=64, tie_embeddings=True, seed=0
    )


@pytest.fixture(scope="module")
def encodings():
    draw = np.random.default_rng(0)
    lengths = [(int(draw.integers(1, 9)), int(draw.integers(1, 12))) for _ in range(17)]
    return [Encoding(tuple(draw.integers(0, 50, size=p + a).tolist()), p) for p, a in lengths]


def literal_scores(model, encoding):
    """The definition, one example at a time: log-softmax of all logits, read off at the answer."""
    with torch.no_grad():
        log_probs = model(torch.tensor([encoding.input_ids])).logits[0].double().log_softmax(-1)
    places = range(encoding.prompt_length, len(encoding.input_ids))
    values = [float(log_probs[place - 1, encoding.input_ids[place]]) for place in places]
    return values, [int(log_probs[place - 1].argmax()) == encoding.input_ids[place] for place in places]


def test_scores_are_those_of_the_literal_definition(model, encodings):
    for encoding, score in zip(encodings, score_answers(model, encodings, batch_size=4, pad_id=0), strict=True):
        values, argmax = literal_scores(model, encoding)
        np.testing.assert_allclose(score.log_probs, values, atol=1e-5)
        assert score.is_argmax.tolist() == argmax
        assert score.nll == pytest.approx(-np.mean(values), abs=1e-5)


@pytest.mark.parametrize("batch_size", [1, 3, 17])
@pytest.mark.parametrize("pad_id", [0, 7])
def test_neither_batch_size_nor_padding_changes_a_score(model, encodings, batch_size, pad_id):
    expected = score_answers(model, encodings, batch_size=5, pad_id=1)
    for one, other in zip(score_answers(model, encodings, batch_size=batch_size, pad_id=pad_id), expected, strict=True):
        np.testing.assert_allclose(one.log_probs, other.log_probs, atol=1e-5)


def test_moments_are_those_of_the_literal_definition(model, encodings):
    """E[log p] and E[(log p)²] − E[log p]², in float64, at each answer position."""
    scores = score_answers(model, encodings, batch_size=4, pad_id=0, moments=True)
    for encoding, score in zip(encodings, scores, strict=True):
        with torch.no_grad():
            log_probs = model(torch.tensor([encoding.input_ids])).logits[0].double().log_softmax(-1)
        log_probs = log_probs[encoding.prompt_length - 1 : -1]
        expectations = (log_probs.exp() * log_probs).sum(-1)
        variances = (log_probs.exp() * log_probs.square()).sum(-1) - expectations.square()
        np.testing.assert_allclose(score.expectations, expectations, atol=1e-5)
        np.testing.assert_allclose(score.variances, variances, atol=1e-5)


def test_moments_change_no_score_and_no_batch_size_changes_a_moment(model, encodings):
    plain = score_answers(model, encodings, batch_size=4, pad_id=0)
    assert all(score.expectations is None and score.variances is None for score in plain)
    one, other = (score_answers(model, encodings, batch_size=size, pad_id=0, moments=True) for size in (4, 17))
    for before, first, second in zip(plain, one, other, strict=True):
        np.testing.assert_array_equal(before.log_probs, first.log_probs)
        np.testing.assert_allclose(first.expectations, second.expectations, atol=1e-5)
        np.testing.assert_allclose(first.variances, second.variances, atol=1e-5)


@pytest.mark.parametrize("batch_size", [1, 4, 17])
def test_candidates_for_the_next_token_score_as_answers_do(model, encodings, batch_size):
    """The same as one answer of one token for each candidate."""
    prompts = [encoding.input_ids for encoding in encodings]
    candidates = [tuple(range(place, place + 1 + place % 3)) for place in range(len(prompts))]
    found = next_token_log_probs(model, prompts, candidates, batch_size=batch_size, pad_id=0)
    for prompt, ids, log_probs in zip(prompts, candidates, found, strict=True):
        answers = [Encoding((*prompt, token), len(prompt)) for token in ids]
        expected = [score.log_probs[0] for score in score_answers(model, answers, batch_size=5, pad_id=0)]
        np.testing.assert_allclose(log_probs, expected, atol=1e-5)


def test_prompts_without_candidates_are_named(model):
    with pytest.raises(ValueError, match="prompt 1: the answer has no tokens"):
        next_token_log_probs(model, [(1, 2), (3,)], [(4,), ()], batch_size=2, pad_id=0)


def test_bfloat16_logits_are_summed_in_float32(model, encodings):
    import copy

    scores = score_answers(copy.deepcopy(model).bfloat16(), encodings, batch_size=4, pad_id=0)
    assert all(score.log_probs.dtype == np.float32 for score in scores)


def test_the_end_token_counts_in_nll_and_not_in_memorization(model, encodings):
    score = score_answers(model, [encodings[0]], batch_size=1, pad_id=0)[0]
    answer = len(encodings[0].answer_ids)
    assert (len(score.log_probs), len(score.is_argmax_before_end)) == (answer, answer - 1)


def test_an_answer_without_tokens_is_named(model):
    with pytest.raises(ValueError, match="example 41: the answer has no tokens"):
        score_answers(model, [Encoding((1, 2), 2)], batch_size=1, pad_id=0, names=["example 41"])


def test_a_prompt_without_tokens_is_named(model):
    with pytest.raises(ValueError, match="example 0: the prompt has no tokens"):
        score_answers(model, [Encoding((1, 2), 0)], batch_size=1, pad_id=0)


def test_a_broken_model_is_named_with_the_example(model, encodings):
    import copy

    broken = copy.deepcopy(model)
    with torch.no_grad():
        broken.model.norm.weight[3] = float("nan")
    with pytest.raises(ValueError, match=r"row \d+: a log-probability is not finite"):
        score_answers(broken, encodings, batch_size=4, pad_id=0, names=[f"row {i}" for i in range(len(encodings))])
    with pytest.raises(ValueError, match="prompt 0: a log-probability is not finite"):
        next_token_log_probs(broken, [(1, 2)], [(3, 4)], batch_size=1, pad_id=0)


def test_dropout_is_refused(model, encodings):
    model.train()
    try:
        with pytest.raises(ValueError, match="training mode"):
            score_answers(model, encodings, batch_size=4, pad_id=0)
    finally:
        model.eval()


def test_token_layout_is_the_oracles(oracle):
    for case, row in (("plain_forget_0", ("forget", 0)), ("plain_world_facts_0", ("world_facts", 0))):
        recorded = oracle.expected["tokenization"][case]["teacher_forced"]
        name, place = row
        encoding = oracle.encoding(oracle.rows[name][place]["question"], oracle.rows[name][place]["answer"])
        assert list(encoding.input_ids) == recorded["input_ids"]
        assert encoding.prompt_length == recorded["labels"].count(-100)
    counts = oracle.expected["tokenization"]["n_label_tokens_plain"]
    for name, rows in oracle.rows.items():
        assert [len(oracle.encoding(r["question"], r["answer"]).answer_ids) for r in rows] == counts[name]


@pytest.mark.parametrize("model_name", ["full", "unlearned", "retain", "start"])
def test_losses_are_the_oracles(oracle, model_name):
    """Every row of every probability metric, within the oracle's tolerance of 2e-5."""
    for name, short in (("forget", "forget"), ("retain", "retain"), ("real_authors", "ra"), ("world_facts", "wf")):
        expected = oracle.values(model_name, f"{short}_Q_A_Prob", "avg_loss")
        assert [score.nll for score in oracle.answers(model_name, name)] == pytest.approx(expected, abs=2e-5)
        expected = np.array(oracle.values(model_name, f"{short}_Q_A_PERT_Prob", "avg_loss"))
        np.testing.assert_allclose(oracle.wrong_nlls(model_name, name), expected, atol=2e-5, rtol=0)
        if name in ("forget", "retain"):
            expected = oracle.values(model_name, f"{short}_Q_A_PARA_Prob", "avg_loss")
            assert oracle.right_nlls(model_name, name) == pytest.approx(expected, abs=2e-5)
