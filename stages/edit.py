"""Makes one edited model: one editor on one forget set of one base, kept as the change to the base's weights."""

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import polars as pl
import torch
from torch import nn
from transformers import PreTrainedTokenizerBase

from efface.editing.delta import DELTA, LowRank, dense, save_delta
from efface.models import WEIGHTS, file_md5, load_model, load_tokenizer
from efface.tokenization import padding_id
from efface.unlearning.alternatives import Asked
from stages.edit_task import EditOutcome, EditTask
from stages.editors import Editor, edit_outcome
from stages.encoded_rows import EXAMPLES_FILE, TOKENIZER_FOLDER, encoded_rows
from stages.params import Tokenization, load_params
from stages.scratch import scratch_folder
from stages.tables.forget_sets import ids_of
from stages.tables.influence import INFLUENCE
from stages.training import forget_and_retain, training_rows

OUTPUT = Path("data/edit")


def main(item: str | None = None) -> None:
    params = load_params()
    if item not in params.grid:
        raise ValueError(f"edit {item!r}: no such item; params.grid has {', '.join(params.grid)}")
    grid, forget_file = params.grid[item], Path("data/forget_sets") / f"{params.grid[item].set}.parquet"
    edit, base = params.edit[grid.edit], Path(grid.base)
    tokenizer = load_tokenizer(TOKENIZER_FOLDER)
    withdrawn = frozenset(ids_of(forget_file, "withdrawn"))
    frames = sides(*forget_and_retain(training_rows(), forget_file, roles=("forget", "withdrawn")))
    rows = {
        side: dict(zip(frame["id"], encoded_rows(frame, tokenizer, params.tokenization), strict=True))
        for side, frame in frames.items()
    }
    used = [str(edit), str(params.tokenization), params.seed]
    deps = [base, grid.reads, EXAMPLES_FILE, TOKENIZER_FOLDER, forget_file]
    with scratch_folder("edit", item, used, deps) as folder:
        task = EditTask(
            load_model(base, device="cuda" if torch.cuda.is_available() else "cpu"),
            **rows,
            reads=Path(grid.reads),
            seed=params.seed,
            pad_id=padding_id(tokenizer),
            checkpoints=folder,
            asked=asked(frames["forget"], tokenizer, params.tokenization),
            withdrawn=withdrawn,
        )
        outcome = edit_outcome(edit, task)
        origin = {"edit": grid.edit, "set": grid.set, "base": grid.base, "base_md5": file_md5(base / WEIGHTS)}
        write(outcome, record(outcome, edit, task, origin), weights=Path(grid.weights), folder=OUTPUT / item)


def sides(forget: pl.DataFrame, retain: pl.DataFrame) -> dict[str, pl.DataFrame]:
    """The training rows of an edit: to forget, to retain, and retained ones that measure utility."""
    return {"forget": forget, "retain": retain.filter(~pl.col("utility")), "utility": retain.filter("utility")}


def asked(forget: pl.DataFrame, tokenizer: PreTrainedTokenizerBase, tokenization: Tokenization) -> Asked:
    """The forget rows as text, in order."""
    return Asked(tuple(forget.select("question", "answer").iter_rows()), tokenizer, **tokenization.model_dump())


def record(outcome: EditOutcome, edit: Editor, task: EditTask, origin: Mapping[str, str]) -> dict[str, Any]:
    """What was done and how large it is: the same for the same inputs, without time or place."""
    return {
        **origin,
        "method": edit.method,
        "parameters": asdict(edit),
        "seed": task.seed,
        "forget_rows": len(task.forget) - len(task.withdrawn),
        "retain_rows": len(task.retain),
        "layers": outcome.layers,
        "weights": _changes(outcome, task.model),
        **outcome.details,
    }


def write(outcome: EditOutcome, record: Mapping[str, Any], *, weights: Path, folder: Path) -> None:
    """The delta alone in `weights`; record, influence and, for trained edits, the loss curve in `folder`."""
    save_delta(weights / DELTA, outcome.delta, base_md5=record["base_md5"])
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "record.json").write_text(json.dumps(record, indent=2, sort_keys=True) + "\n")
    INFLUENCE.write(folder / "influence.parquet", outcome.influence)
    if outcome.curve:
        points = {name: [getattr(point, name) for point in outcome.curve] for name in ("step", "epoch", "loss")}
        pl.DataFrame(points).write_csv(folder / "loss.csv")


def _changes(outcome: EditOutcome, model: nn.Module) -> dict[str, dict[str, Any]]:
    """Frobenius norm, norm relative to the base's weight, and rank of the factors, of every changed parameter."""
    parameters = dict(model.named_parameters(remove_duplicate=False))
    sizes = {}
    for name, change in outcome.delta.items():
        norm = float(dense(change).double().norm())
        sizes[name] = {"norm": norm, "relative_norm": norm / float(parameters[name].detach().double().norm())}
        if isinstance(change, LowRank):
            sizes[name]["rank"] = change.right.shape[0]
    return sizes
