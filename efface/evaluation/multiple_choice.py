"""Which of several choices a model finds likeliest: by the letter of a shown choice, or by its words alone."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from efface.corpora.wmdp import ChoiceQuestion
from efface.evaluation.scoring import next_token_log_probs, score_answers
from efface.tokenization import Encoding, completion, padding_id

Form = Literal["letter", "cloze"]
Normalisation = Literal["none", "characters", "tokens"]
LETTERS = "ABCDEFGHIJ"


@dataclass(frozen=True)
class Choice:
    """What a model chose: the log-likelihood of every choice (nats, after normalisation), and the likeliest one."""

    log_likelihoods: tuple[float, ...]
    chosen: int
    is_correct: bool


def model_choices(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    questions: Sequence[ChoiceQuestion],
    *,
    batch_size: int,
    form: Form = "letter",
    normalisation: Normalisation = "none",
    shots: Sequence[ChoiceQuestion] = (),
) -> list[Choice]:
    """The choice a model makes for every question; the first of equals.

    `letter` shows the choices and scores " A", " B", …; `cloze` shows the question alone and scores " {choice}". Both
    are the prompts of lm-evaluation-harness (wmdp, mmlu; mmlu_continuation). `normalisation` divides the log-likelihood
    of a choice by its characters (that harness's acc_norm) or tokens: words of unequal length are not comparable
    without. `shots` are solved questions shown first.

    Raises: ValueError where there are no questions, a question has more choices than letters, or a form or
    normalisation is unknown.
    """
    _check(questions, form, normalisation)
    texts = [(choice_prompt(asked, form=form, shots=shots), _answers(asked, form)) for asked in questions]
    encodings = [[completion(tokenizer, prompt, answer) for answer in answers] for prompt, answers in texts]
    scores = iter(_answer_log_probs(model, encodings, batch_size=batch_size, pad_id=padding_id(tokenizer)))
    choices = []
    for asked, (_, answers) in zip(questions, texts, strict=True):
        values = []
        for answer in answers:
            log_probs = next(scores)
            lengths = {"none": 1, "characters": len(answer), "tokens": len(log_probs)}
            values.append(float(log_probs.sum(dtype=np.float64)) / lengths[normalisation])
        chosen = int(np.argmax(values))
        choices.append(Choice(tuple(values), chosen, chosen == asked.answer))
    return choices


def choice_prompt(asked: ChoiceQuestion, *, form: Form, shots: Sequence[ChoiceQuestion] = ()) -> str:
    """Everything before the answer; a question without a subject has no introductory sentence."""
    kind = "questions" if form == "cloze" else "multiple choice questions"
    introduction = f"The following are {kind} (with answers) about {asked.subject}.\n\n" if asked.subject else ""
    solved = "".join(f"{_asked(shot, form)} {_answers(shot, form)[shot.answer]}\n\n" for shot in shots)
    return introduction + solved + _asked(asked, form)


def accuracy(choices: Sequence[Choice]) -> float:
    """The share of right choices, in [0, 1]; guessing gives one over the number of choices.

    Raises: ValueError where there are none.
    """
    if not choices:
        raise ValueError("accuracy of no choices; expected at least one question")
    return sum(choice.is_correct for choice in choices) / len(choices)


def _answer_log_probs(
    model: PreTrainedModel, encodings: Sequence[Sequence[Encoding]], *, batch_size: int, pad_id: int
) -> list[Float[np.ndarray, " token"]]:
    """Of every answer of every question, in order; letters, a token each, come from one pass a question."""
    if all(len(answer.answer_ids) == 1 for answers in encodings for answer in answers):
        prompts = [answers[0].input_ids[:-1] for answers in encodings]
        letters = [tuple(answer.input_ids[-1] for answer in answers) for answers in encodings]
        rows = next_token_log_probs(model, prompts, letters, batch_size=batch_size, pad_id=pad_id, label="choices")
        return [row[place : place + 1] for row in rows for place in range(len(row))]
    flat = [answer for answers in encodings for answer in answers]
    return [
        score.log_probs for score in score_answers(model, flat, batch_size=batch_size, pad_id=pad_id, label="choices")
    ]


def _asked(asked: ChoiceQuestion, form: Form) -> str:
    if form == "cloze":
        return f"Question: {asked.question.strip()}\nAnswer:"
    shown = "\n".join(f"{letter}. {text}" for letter, text in zip(LETTERS, asked.choices, strict=False))
    return f"{asked.question.strip()}\n{shown}\nAnswer:"


def _answers(asked: ChoiceQuestion, form: Form) -> Sequence[str]:
    return asked.choices if form == "cloze" else LETTERS[: len(asked.choices)]


def _check(questions: Sequence[ChoiceQuestion], form: Form, normalisation: Normalisation) -> None:
    if form not in ("letter", "cloze"):
        raise ValueError(f"form {form!r}: expected 'letter' or 'cloze'")
    if normalisation not in ("none", "characters", "tokens"):
        raise ValueError(f"normalisation {normalisation!r}: expected 'none', 'characters' or 'tokens'")
    if not questions:
        raise ValueError("multiple choice without questions; expected at least one")
    most = max(len(asked.choices) for asked in questions)
    if most > len(LETTERS):
        raise ValueError(f"a question has {most} choices, expected at most {len(LETTERS)}, one for each letter")
