"""Whether a model still gives the answers of facts: to their own prompts, to paraphrases, and to neighbours' prompts.

Efficacy, generalisation and specificity as in arXiv:2210.07229 and arXiv:2605.18879, of the true answers: erasing wants
the first two low and the third high.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from efface.corpora.facts import Fact
from efface.evaluation.scoring import score_answers
from efface.generation import generate_answers
from efface.tokenization import Encoding, completion, padding_id

Asked = tuple[str, str]


@dataclass(frozen=True)
class Recall:
    """Shares in [0, 1], a mean over facts; `None` where no fact has such prompts.

    `teacher_forced`: answer tokens that are the likeliest after the true ones before them. `generated`: prompts after
    which the answer stands in the greedily generated text.
    """

    teacher_forced: float | None
    generated: float | None


@dataclass(frozen=True)
class FactRecall:
    """Recall of the facts' own prompts, of their paraphrases and of their neighbours."""

    efficacy: Recall
    generalisation: Recall
    specificity: Recall


def fact_recall(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    facts: Sequence[Fact],
    *,
    batch_size: int = 16,
    max_new_tokens: int = 16,
) -> FactRecall:
    """The recall of facts; `max_new_tokens` bounds the generated text.

    Raises: ValueError where there are no facts.
    """
    if not facts:
        raise ValueError("no facts: expected at least one that the model answers; give other facts")

    def recall(asked: Callable[[Fact], Sequence[Asked]]) -> Recall:
        return _recall(model, tokenizer, [asked(fact) for fact in facts], batch_size, max_new_tokens)

    return FactRecall(
        efficacy=recall(lambda fact: [(fact.prompt, fact.target_true)]),
        generalisation=recall(lambda fact: [(prompt, fact.target_true) for prompt in fact.paraphrases]),
        specificity=recall(lambda fact: fact.neighbours),
    )


def answered_facts(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, facts: Sequence[Fact], *, batch_size: int = 16
) -> tuple[Fact, ...]:
    """The facts whose answer the model gives: every token of it is the likeliest, so that greedy decoding writes it.

    Raises: ValueError where none are left.
    """
    shares = _argmax_shares(model, tokenizer, [(fact.prompt, fact.target_true) for fact in facts], batch_size)
    left = tuple(fact for fact, share in zip(facts, shares, strict=True) if share == 1)
    if not left:
        raise ValueError(
            f"no facts left: the model answers none of {len(facts)}, expected at least one; ask in another form, or "
            "give more facts or a model that knows them"
        )
    return left


def stands_in(answer: str, text: str) -> bool:
    """Whether the answer's words stand in the text, whole and in whatever case."""
    return re.search(rf"(?<!\w){re.escape(answer.strip())}(?!\w)", text, re.IGNORECASE) is not None


def _recall(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    asked: Sequence[Sequence[Asked]],
    batch_size: int,
    max_new_tokens: int,
) -> Recall:
    """Means over each fact's prompts, then over the facts that have some."""
    pairs = [pair for of_fact in asked for pair in of_fact]
    if not pairs:
        return Recall(None, None)
    forced = _argmax_shares(model, tokenizer, pairs, batch_size)
    texts = generate_answers(
        model, tokenizer, [tuple(tokenizer(prompt)["input_ids"]) for prompt, _ in pairs],
        max_new_tokens=max_new_tokens, batch_size=batch_size,
    )  # fmt: skip
    generated = [float(stands_in(answer, text)) for (_, answer), text in zip(pairs, texts, strict=True)]
    sizes = np.cumsum([len(of_fact) for of_fact in asked])[:-1]

    def mean(values: Sequence[float]) -> float:
        return float(np.mean([part.mean() for part in np.split(np.array(values), sizes) if len(part)]))

    return Recall(mean(forced), mean(generated))


def _argmax_shares(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, pairs: Sequence[Asked], batch_size: int
) -> list[float]:
    encodings: list[Encoding] = [completion(tokenizer, prompt, answer) for prompt, answer in pairs]
    names = [f"prompt {prompt!r}" for prompt, _ in pairs]
    scores = score_answers(model, encodings, batch_size=batch_size, pad_id=padding_id(tokenizer), names=names)
    return [float(score.is_argmax.mean()) for score in scores]
