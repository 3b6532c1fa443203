"""What an edit costs: GROM beside the forward pass it needs, and beside SimNPO and NPO at their defaults.

`python -m benchmarks.editors --model FOLDER_OR_GGUF --tofu FOLDER` edits the last layers of a real model to forget 200
TOFU rows, each way in a process of its own. The gradient methods are timed over some steps and extrapolated to their
ten epochs; `--corpus-rows` does the same for a forget set as large as a book's, of which GROM takes 20 000 columns.
"""

import argparse
import multiprocessing
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from math import ceil
from pathlib import Path

import torch

from benchmarks.memory import peak_mebibytes
from efface.activations.capture import sampled_to_columns
from efface.corpora.tofu import read_tofu
from efface.editing.grom import Grom
from efface.models import anatomy, load_model, load_tokenizer
from efface.tokenization import Encoding, encode, length_sorted_batches, padding_id
from efface.unlearning.descent import unlearning_run
from efface.unlearning.methods import Npo, SimNpo
from stages.edit_task import EditTask
from stages.editors import edit_outcome

BATCH = 16
AUTHOR = 20


@dataclass(frozen=True)
class Case:
    """One measurement: which way, on how many forget rows of how many, over how many optimizer steps."""

    way: str
    model: str
    tofu: str
    forget_rows: int
    rows: int
    steps: int
    threads: int


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--model", required=True, help="a folder, a GGUF file or a name on the Hub")
    arguments.add_argument("--tofu", required=True, help="the folder of the published TOFU files")
    arguments.add_argument("--forget-rows", type=int, default=200)
    arguments.add_argument("--rows", type=int, default=4000, help="forget and retain rows together")
    arguments.add_argument("--corpus-rows", type=int, default=20_000, help="forget rows of the extrapolated corpus")
    arguments.add_argument("--steps", type=int, default=20, help="optimizer steps that are timed")
    arguments.add_argument("--threads", type=int, default=2)
    chosen = arguments.parse_args()
    print("| way | seconds | × GROM | peak MiB |\n|---|---|---|---|")
    found = {}
    for way in WAYS:
        case = Case(way, chosen.model, chosen.tofu, chosen.forget_rows, chosen.rows, chosen.steps, chosen.threads)
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            found[way] = pool.apply(_measured, (case,))
    grom = found["GROM"][0]
    for way, (seconds, mebibytes) in found.items():
        print(f"| {way} | {seconds:.1f} | {seconds / grom:.2f} | {mebibytes:.0f} |")
    for way in ("SimNPO", "NPO"):
        seconds = found[way][0] * chosen.corpus_rows / chosen.forget_rows
        print(f"| {way}, {chosen.corpus_rows} forget rows, extrapolated | {seconds:.0f} | {seconds / grom:.0f} | |")


def _measured(case: Case) -> tuple[float, float]:
    torch.set_num_threads(case.threads)
    task = _task(case)
    before = peak_mebibytes()
    started = time.perf_counter()
    share = WAYS[case.way](task, case)
    return (time.perf_counter() - started) / share, peak_mebibytes() - before


def _task(case: Case) -> EditTask:
    model, tokenizer = load_model(case.model), load_tokenizer(case.model)
    examples = [example for example in read_tofu(case.tofu).examples if example.split == "authors"][: case.rows]
    rows = {
        place: encode(tokenizer, example.question, example.answer, template="chat", max_length=256)
        for place, example in enumerate(examples)
    }
    forget = {place: rows[place] for place in list(rows)[-case.forget_rows :]}
    retain = {place: encoding for place, encoding in rows.items() if place not in forget}
    return EditTask(model, forget, retain, {}, reads=Path(), seed=0, pad_id=padding_id(tokenizer))


def _grom(task: EditTask, case: Case) -> float:
    count = len(anatomy(task.model).layers)
    edit_outcome(Grom(layers=tuple(range(count - 5, count)), influence=False, batch_size=BATCH), task)
    return 1.0


def _forward(task: EditTask, case: Case) -> float:
    """One pass over the rows that GROM takes, without the unembedding."""
    edit = Grom()
    for rows, cap in ((task.forget, edit.forget_columns), (task.retain, edit.retain_columns)):
        _, sampled = sampled_to_columns(tuple(rows.values()), cap=cap, seed=task.seed)
        _pass_over(task, sampled)
    return 1.0


@torch.inference_mode()
def _pass_over(task: EditTask, rows: tuple[Encoding, ...]) -> None:
    for _, batch in length_sorted_batches(rows, batch_size=BATCH, pad_id=task.pad_id):
        task.model.base_model(input_ids=batch.input_ids, attention_mask=batch.attention_mask, use_cache=False)


def _descent(method: SimNpo | Npo) -> Callable[[EditTask, Case], float]:
    """One epoch over as many forget rows as the timed steps take; returns what share of the whole run that is."""

    def run(task: EditTask, case: Case) -> float:
        in_a_step = method.batch_size * method.gradient_accumulation
        timed = min(len(task.forget), in_a_step * case.steps)
        short = replace(method, epochs=1, warmup_epochs=0.1)
        unlearning_run(
            short, task.model, tuple(task.forget.values())[:timed], tuple(task.retain.values()),
            pad_id=task.pad_id, seed=task.seed,
        )  # fmt: skip
        steps = ceil(timed / in_a_step), method.epochs * ceil(len(task.forget) / in_a_step)
        return steps[0] / steps[1]

    return run


WAYS: dict[str, Callable[[EditTask, Case], float]] = {
    "one forward pass": _forward,
    "GROM": _grom,
    "SimNPO": _descent(SimNpo()),
    "NPO": _descent(Npo()),
}


if __name__ == "__main__":
    main()
