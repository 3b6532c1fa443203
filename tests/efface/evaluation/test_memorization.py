import numpy as np
import pytest

from efface.evaluation.memorization import exact_memorization, extraction_strength

RIGHT, WRONG = True, False


@pytest.mark.parametrize(
    ("argmax", "strength", "with_floor", "exact"),
    [
        ([RIGHT, RIGHT, RIGHT, RIGHT], 1.0, 1.0, 1.0),
        ([WRONG, RIGHT, RIGHT, RIGHT], 0.75, 0.75, 0.75),
        ([RIGHT, RIGHT, WRONG, RIGHT], 0.25, 0.25, 0.75),
        ([RIGHT, RIGHT, RIGHT, WRONG], 0.0, 0.25, 0.75),
        ([WRONG, WRONG, WRONG, WRONG], 0.0, 0.25, 0.0),
    ],
)
def test_by_hand(argmax, strength, with_floor, exact):
    """Four tokens: k is the place after the last wrong one, ES = 1 − k/4; the reference never lets k exceed 3."""
    argmax = np.array(argmax)
    assert extraction_strength(argmax) == strength
    assert extraction_strength(argmax, reference_floor=True) == with_floor
    assert exact_memorization(argmax) == exact


def test_no_tokens_is_an_error():
    for metric in (exact_memorization, extraction_strength):
        with pytest.raises(ValueError, match="without tokens"):
            metric(np.zeros(0, dtype=bool))


@pytest.mark.parametrize("model", ["full", "unlearned", "retain", "start"])
def test_every_row_is_the_oracles(oracle, model):
    """Exact; 1e-7 because the reference averages exact memorization in float32."""
    answers = [score.is_argmax_before_end for score in oracle.answers(model, "forget")]
    strengths = [extraction_strength(answer, reference_floor=True) for answer in answers]
    assert strengths == pytest.approx(oracle.values(model, "extraction_strength", "score"), abs=1e-7)
    assert np.mean(strengths) == pytest.approx(oracle.metric(model, "extraction_strength")["agg_value"], abs=1e-7)
    exact = [exact_memorization(answer) for answer in answers]
    assert exact == pytest.approx(oracle.values(model, "exact_memorization", "score"), abs=1e-7)
    assert np.mean(exact) == pytest.approx(oracle.metric(model, "exact_memorization")["agg_value"], abs=1e-7)
