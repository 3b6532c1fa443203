"""MUSE's measures of one model (arXiv:2407.06460), all at once."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from efface.corpora.muse import Muse, text_encoding
from efface.evaluation.knowledge import knowledge_scores
from efface.evaluation.membership import membership_auc, min_k_score
from efface.evaluation.rouge import Words
from efface.evaluation.scoring import score_answers
from efface.evaluation.verbatim import verbatim_scores
from efface.tokenization import padding_id


@dataclass(frozen=True)
class MuseScores:
    """Means over passages and questions, in [0, 1], and the AUC of min-k scores, forget against holdout texts.

    PrivLeak is `priv_leak` of this AUC and that of the retained model.
    """

    forget_verbatim: float
    forget_knowledge: float
    retain_knowledge: float
    min_k_auc: float


def muse_scores(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    muse: Muse,
    *,
    batch_size: int,
    max_length: int = 2048,
    words: Words = "ascii",
    stem: bool = False,
) -> MuseScores:
    """VerbMem on forget passages, KnowMem on forget and retain questions, and the AUC for PrivLeak.

    `max_length`: tokens of a text that count for the AUC. Raises: ValueError where a part is empty.
    """
    settings = {"batch_size": batch_size, "words": words, "stem": stem}

    def min_k_scores(texts: Sequence[str]) -> list[float]:
        encodings = [text_encoding(tokenizer, text, max_length=max_length) for text in texts]
        scores = score_answers(model, encodings, batch_size=batch_size, pad_id=padding_id(tokenizer), label="min-k")
        return [min_k_score(score.log_probs) for score in scores]

    return MuseScores(
        forget_verbatim=float(np.mean(verbatim_scores(model, tokenizer, muse.passages, **settings))),
        forget_knowledge=float(np.mean(knowledge_scores(model, tokenizer, muse.forget_knowledge, **settings))),
        retain_knowledge=float(np.mean(knowledge_scores(model, tokenizer, muse.retain_knowledge, **settings))),
        min_k_auc=membership_auc(min_k_scores(muse.forget_texts), min_k_scores(muse.holdout_texts)),
    )
