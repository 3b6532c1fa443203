"""One number for how well a model knows some answers."""

from collections.abc import Sequence

from transformers import PreTrainedModel

from efface.evaluation.probability import answer_probability
from efface.evaluation.scoring import score_answers
from efface.tokenization import Encoding


def mean_answer_probability(
    model: PreTrainedModel, encodings: Sequence[Encoding], *, batch_size: int, pad_id: int
) -> float:
    """The mean of `answer_probability` over some answers, in (0, 1]."""
    scores = score_answers(model, encodings, batch_size=batch_size, pad_id=pad_id)
    return sum(answer_probability(score.nll) for score in scores) / len(scores)
