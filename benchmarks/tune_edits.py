"""Chooses every edit's parameters with the same number of tries, on rows outside every reported forget set.

`python -m benchmarks.tune_edits benchmarks/tuning/tiny.yaml` runs every candidate on a forget set drawn from the anchor
candidates, writes what is left of it and of retained rows that measure no utility beside the YAML file, as a CSV, and
prints the best of each edit by ½ [1 − p(forget) + p(retain) / p(retain) before]. It reads the outputs of
`prepare_data`, `train_target` and `extract_activations`.
"""

import argparse
import copy
import csv
import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import yaml
from pydantic import TypeAdapter

from efface.editing.delta import apply_delta
from efface.evaluation.mean_probability import mean_answer_probability
from efface.models import load_model, load_tokenizer
from efface.tokenization import padding_id
from stages.build_task_matrices import retain_sample, starting_point, write
from stages.edit import asked, sides
from stages.edit_task import EditTask
from stages.editors import Editor, edit_outcome
from stages.encoded_rows import TOKENIZER_FOLDER, encoded_rows
from stages.params import Params, load_params
from stages.training import training_rows

SCRATCH = Path(".scratch/tune_edits")
SUBSPACE = ("qr_erase", "unlearn_svd")
SHOWN = 60


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("grids", type=Path)
    grids_file = arguments.parse_args().grids
    candidates = list(tried(yaml.safe_load(grids_file.read_text())))
    params = load_params()
    tokenizer, model = load_tokenizer(TOKENIZER_FOLDER), load_model("models/target")
    pad_id = padding_id(tokenizer)
    rows = training_rows()
    forget = rows.filter("anchor_candidate").sample(params.prepare_data.forget_set_size, seed=params.seed)
    retain = rows.join(forget, on="id", how="anti")
    encoded = {
        side: dict(zip(frame["id"], encoded_rows(frame, tokenizer, params.tokenization), strict=True))
        for side, frame in sides(forget, retain).items()
    }
    if any(reads_matrices(fields) for _, fields, _ in candidates):
        build_task_matrices(params, tokenizer, forget, retain)
    questions = asked(forget, tokenizer, params.tokenization)
    shown = {"forget": list(encoded["forget"].values()), "retain": list(encoded["retain"].values())[:SHOWN]}
    before = {side: mean_answer_probability(model, part, batch_size=32, pad_id=pad_id) for side, part in shown.items()}

    found = []
    for name, fields, choice in candidates:
        reads = SCRATCH if reads_matrices(fields) else Path("data/extract_activations")
        task = EditTask(model, **encoded, reads=reads, seed=params.seed, pad_id=pad_id, asked=questions)
        edited = copy.deepcopy(model)
        apply_delta(edited, edit_outcome(TypeAdapter(Editor).validate_python(fields), task).delta)
        p = {side: mean_answer_probability(edited, part, batch_size=32, pad_id=pad_id) for side, part in shown.items()}
        score = (1 - p["forget"] + min(1.0, p["retain"] / before["retain"])) / 2
        found.append(
            {"edit": name, "tried": json.dumps(choice)} | {k: f"{v:.4f}" for k, v in (p | {"score": score}).items()}
        )
        print(*found[-1].values(), flush=True)
    with grids_file.with_suffix(".csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, list(found[0]))
        writer.writeheader()
        writer.writerows(found)
    for name, tries in itertools.groupby(found, key=lambda row: row["edit"]):
        print("best", name, max(tries, key=lambda row: float(row["score"])))


def tried(grids: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any], dict[str, Any]]]:
    """Edit, its fields, and those of them that vary, for every candidate.

    Raises: ValueError where the edits do not have equally many.
    """
    found = {
        name: [dict(zip(grid["tried"], values, strict=True)) for values in itertools.product(*grid["tried"].values())]
        for name, grid in grids.items()
    }
    counts = {name: len(choices) for name, choices in found.items()}
    if len(set(counts.values())) > 1:
        raise ValueError(f"candidates per edit: {counts}; expected the same budget for each")
    for name, choices in found.items():
        for choice in choices:
            yield name, {**grids[name]["fixed"], **choice}, choice


def reads_matrices(fields: dict[str, Any]) -> bool:
    return fields["method"] in SUBSPACE or bool(fields.get("localised"))


def build_task_matrices(params: Params, tokenizer, forget: pl.DataFrame, retain: pl.DataFrame) -> None:
    """Those of the tuning set, from the model that `build_task_matrices.start` names."""
    settings = params.build_task_matrices
    model = starting_point(settings, params.train_target.model, tokenizer, params.tokenization.max_length, params.seed)
    parts = {"forget": forget, "retain": retain_sample(retain, settings.retain_rows, seed=params.seed)}
    matrices = {
        name: settings.trained(
            model, encoded_rows(part, tokenizer, params.tokenization), pad_id=padding_id(tokenizer), seed=params.seed
        )
        for name, part in parts.items()
    }
    write(matrices, SCRATCH)


if __name__ == "__main__":
    main()
