"""What locate-then-edit methods and GROM erase: ROME, MEMIT, AlphaEdit, ZeroUnlearn beside GROM on the LM head.

`python -m benchmarks.facts --model FOLDER_OR_GGUF --zsre PATH [--facts N]` takes facts that the model answers, erases
them by each method at once, and prints a Markdown table. Layers are the published ones, scaled to the model's depth.
Second moments, GROM's retain keys and perplexity come from other rows, perplexity from rows that no method saw.
"""

import argparse
import math
import time
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass

import numpy as np
import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from efface.activations.key_statistics import KeyGram
from efface.corpora.facts import Fact, asked, read_zsre
from efface.editing.alpha_edit import AlphaEdit
from efface.editing.band import sequential_edits
from efface.editing.delta import Delta, apply_delta
from efface.editing.grom import Grom
from efface.editing.memit import Memit
from efface.editing.rome import Rome
from efface.editing.subject_keys import PLAIN, Templates, key_grams, sampled_templates
from efface.editing.suppression import specificity_weights
from efface.editing.zero_unlearn import ZeroUnlearn
from efface.evaluation.fact_recall import Recall, answered_facts, fact_recall
from efface.evaluation.scoring import score_answers
from efface.models import anatomy, load_model, load_tokenizer
from efface.tokenization import Encoding, completion, padding_id

FORM = "Q: Where is Oslo?\\nA: Norway\\nQ: Who wrote Faust?\\nA: Goethe\\nQ: {}\\nA:"
BATCH = 16


@dataclass(frozen=True)
class Task:
    """What every way of erasing gets."""

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    forget: Sequence[Fact]
    retain: Sequence[Fact]
    grams: dict[int, KeyGram]
    templates: Templates


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--model", required=True, help="a folder, a GGUF file or a name on the Hub")
    arguments.add_argument("--zsre", required=True, help="MEND's zsRE rows: a file, a folder or a name on the Hub")
    arguments.add_argument("--facts", type=int, default=10, help="facts to erase, of those that the model answers")
    arguments.add_argument("--rows", type=int, default=1000, help="rows among which answered facts are sought")
    arguments.add_argument("--retain", type=int, default=400, help="other rows that the methods may see")
    arguments.add_argument("--held-out", type=int, default=100, help="other rows that give the perplexity")
    arguments.add_argument("--form", default=FORM, help="how a fact is asked, {} in its place")
    arguments.add_argument("--contexts", action="store_true", help="average keys and values over sampled contexts too")
    arguments.add_argument("--threads", type=int, default=2)
    chosen = arguments.parse_args()
    torch.set_num_threads(chosen.threads)
    model, tokenizer = load_model(chosen.model), load_tokenizer(chosen.model)
    plain = read_zsre(chosen.zsre)
    facts = [asked(fact, chosen.form.replace("\\n", "\n")) for fact in plain]
    answered = answered_facts(model, tokenizer, facts[: chosen.rows], batch_size=BATCH)
    forget = answered[: chosen.facts]
    others = [place for place, fact in enumerate(facts) if fact not in forget]
    retain, held_out = others[: chosen.retain], others[chosen.retain : chosen.retain + chosen.held_out]
    texts = {place: f"{plain[place].prompt} {plain[place].target_true}." for place in others}
    started = time.perf_counter()
    grams = key_grams(model, tokenizer, [texts[place] for place in retain], layers=_all_layers(model), batch_size=BATCH)
    seconds = time.perf_counter() - started
    templates = sampled_templates(model, tokenizer, seed=0) if chosen.contexts else PLAIN
    task = Task(model, tokenizer, forget, [facts[place] for place in retain], grams, templates)
    print(f"{len(answered)} of {min(chosen.rows, len(facts))} facts answered, {len(forget)} erased; ", end="")
    print(f"second moments of {next(iter(grams.values())).count} keys a layer took {seconds:.1f} s\n")
    print(
        "| way | efficacy ↓ | generated | generalisation ↓ | generated | specificity ↑ | generated | perplexity | s |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    for name, erase in WAYS.items():
        started = time.perf_counter()
        delta = erase(task)
        seconds = time.perf_counter() - started
        edited = deepcopy(model)
        apply_delta(edited, delta)
        print(
            f"| {name} | {_measured(edited, task, [texts[place] for place in held_out])} | {seconds:.1f} |", flush=True
        )


def _measured(model: PreTrainedModel, task: Task, texts: Sequence[str]) -> str:
    recall = fact_recall(model, task.tokenizer, task.forget, batch_size=BATCH)
    rows = [Encoding(tuple(task.tokenizer(text)["input_ids"]), 1) for text in texts]
    scores = score_answers(model, rows, batch_size=BATCH, pad_id=padding_id(task.tokenizer))
    perplexity = math.exp(-np.concatenate([score.log_probs for score in scores]).mean())
    shares = [_written(part) for part in (recall.efficacy, recall.generalisation, recall.specificity)]
    return " | ".join([*shares, f"{perplexity:.1f}"])


def _written(recall: Recall) -> str:
    return " | ".join("–" if share is None else f"{share:.3f}" for share in (recall.teacher_forced, recall.generated))


def _all_layers(model: PreTrainedModel) -> list[int]:
    used = {layer for first, last in BANDS.values() for layer in _band(model, first, last)}
    return sorted(used)


def _band(model: PreTrainedModel, first: float, last: float) -> tuple[int, ...]:
    depth = len(anatomy(model).layers)
    return tuple(range(round(first * depth), round(last * depth) + 1))


BANDS = {
    "rome": (5 / 28, 5 / 28),
    "memit": (3 / 28, 8 / 28),
    "alpha_edit": (4 / 32, 8 / 32),
    "zero_unlearn": (16 / 28, 18 / 28),
}
"""First and last layer as published, over the depth of the published model."""


def _nothing(task: Task) -> Delta:
    return {}


def _grom(task: Task) -> Delta:
    """Strength and retain weight of the paper's zsRE setting."""
    edit = Grom(layers=(), head_beta=20.0, retain_weight=30.0, influence=False)
    sides = [
        [completion(task.tokenizer, fact.prompt, fact.target_true) for fact in side]
        for side in (task.forget, task.retain)
    ]
    tokens = [torch.tensor([token for row in side for token in row.answer_ids]) for side in sides]
    alpha = specificity_weights(*tokens, vocabulary=task.model.config.vocab_size)
    edits = sequential_edits(
        task.model, *sides, layers=(), head=True, batch_size=BATCH, pad_id=padding_id(task.tokenizer),
        solve=lambda _, keys, retain: edit.head_edit(keys, retain, alpha=alpha),
    )  # fmt: skip
    return {f"{name}.weight": found.change for name, found in edits.items()}


def _located(kind: type[Memit] | type[AlphaEdit] | type[ZeroUnlearn]) -> Callable[[Task], Delta]:
    return lambda task: _delta(kind(layers=_band(task.model, *BANDS[kind.method])), task)


def _rome(task: Task) -> Delta:
    return _delta(Rome(layer=_band(task.model, *BANDS["rome"])[0]), task)


def _delta(edit: Rome | Memit | AlphaEdit | ZeroUnlearn, task: Task) -> Delta:
    return edit.delta(task.model, task.tokenizer, task.forget, grams=task.grams, templates=task.templates)


WAYS: dict[str, Callable[[Task], Delta]] = {
    "unedited": _nothing,
    "GROM, LM head": _grom,
    "ROME": _rome,
    "MEMIT": _located(Memit),
    "AlphaEdit": _located(AlphaEdit),
    "ZeroUnlearn": _located(ZeroUnlearn),
}

if __name__ == "__main__":
    main()
