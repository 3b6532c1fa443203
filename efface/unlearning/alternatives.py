"""Other answers to the forget questions: refusals, or what the model makes up when it is asked to change the facts."""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from efface.generation import generate_answers
from efface.tokenization import Encoding, Template, encode, encode_prompt
from efface.unlearning.methods import AltPo, Flat, IdkDpo, Unlearning
from efface.unlearning.refusals import REFUSALS

Texts = Sequence[Sequence[str]]


@dataclass(frozen=True)
class Asked:
    """Forget questions and true answers as text, in the order of the forget set, and how text becomes tokens."""

    rows: tuple[tuple[str, str], ...]
    tokenizer: PreTrainedTokenizerBase
    template: Template
    max_length: int

    def encoded(self, texts: Texts) -> tuple[tuple[Encoding, ...], ...]:
        """Each question's other answers behind the same question, by the same boundary rules.

        Raises: ValueError where an answer has no tokens or does not fit.
        """
        settings: Mapping[str, Any] = {"template": self.template, "max_length": self.max_length}
        return tuple(
            tuple(encode(self.tokenizer, question, text, **settings) for text in others)
            for (question, _), others in zip(self.rows, texts, strict=True)
        )


def alternative_texts(
    method: Unlearning, model: PreTrainedModel, asked: Asked, *, seed: int, checkpoint_folder: Path | None = None
) -> Texts | None:
    """Each question's other answers as the method wants them; None where it wants none.

    With `checkpoint_folder` sampling that was killed continues after the last finished draw.
    """
    if isinstance(method, IdkDpo | Flat):
        return [method.refusals or REFUSALS] * len(asked.rows)
    if isinstance(method, AltPo):
        return sampled_answers(method, model, asked, seed=seed, checkpoint_folder=checkpoint_folder)
    return None


def sampled_answers(
    method: AltPo, model: PreTrainedModel, asked: Asked, *, seed: int, checkpoint_folder: Path | None = None
) -> Texts:
    """`method.alternatives` draws for each question; draws without text are left out.

    The model sees question, true answer and the method's instruction. The same for the same seed, whatever the batches.

    Raises: ValueError where every draw for a question is without text.
    """
    prompts = [
        encode_prompt(asked.tokenizer, f"{question}\nAnswer: {answer}\n{method.instruction}", template=asked.template)
        for question, answer in asked.rows
    ]

    def drawn(draw: int) -> list[str]:
        return generate_answers(
            model,
            asked.tokenizer,
            prompts,
            max_new_tokens=method.max_new_tokens,
            batch_size=4 * method.batch_size,
            sample=True,
            temperature=method.temperature,
            seed=seed * method.alternatives + draw,
        )

    paths = [checkpoint_folder and checkpoint_folder / f"answers_{n}.json" for n in range(method.alternatives)]
    draws = [_kept(path, partial(drawn, n)) for n, path in enumerate(paths)]
    texts = [tuple(filter(None, of_question)) for of_question in zip(*draws, strict=True)]
    for (question, _), others in zip(asked.rows, texts, strict=True):
        if not others:
            raise ValueError(
                f"{method.method}: {method.alternatives} draws for question {question!r} and none has text; "
                "raise alternatives or temperature, or reword the instruction"
            )
    return texts


def _kept(path: Path | None, make: Callable[[], list[str]]) -> list[str]:
    """What the file holds where there is one, else what `make` gives, written there."""
    if path is None:
        return make()
    if not path.is_file():
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_suffix(".unfinished")
        unfinished.write_text(json.dumps(make()))
        unfinished.replace(path)
    return json.loads(path.read_text())


def alternatives_record(method: Unlearning, texts: Texts) -> dict[str, Any]:
    """How the other answers came about: their source, how many each question has, and a hash of their wording."""
    counts = [len(others) for others in texts]
    given = isinstance(method, IdkDpo | Flat) and method.refusals
    return {
        "source": "sampled from the base" if isinstance(method, AltPo) else "given refusals" if given else "refusals",
        "fewest": min(counts),
        "most": max(counts),
        "distinct": len({text for others in texts for text in others}),
        "sha256": hashlib.sha256(json.dumps([list(others) for others in texts]).encode()).hexdigest(),
    }
