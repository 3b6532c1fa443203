"""What each edit's parameters do, measured on rows outside every reported forget set.

`python -m benchmarks.tune_edits candidates.yaml` runs each candidate (name → the fields of an edit) on one tuning set,
drawn from the anchor candidates, and prints what is left of it and of rows that should stay. Needs the target and, for
subspace edits, task matrices of the tuning set: `--task-matrices` builds them first.
"""

import argparse
import copy
from pathlib import Path

import polars as pl
import torch
import yaml
from pydantic import TypeAdapter

from efface.editing.delta import apply_delta
from efface.evaluation.probability import answer_probability
from efface.evaluation.scoring import score_answers
from efface.models import load_model, load_tokenizer
from efface.tokenization import padding_id
from stages.edit import sides
from stages.editors import Editor, EditTask, edit_outcome
from stages.encoded_rows import TOKENIZER_FOLDER, encoded_rows
from stages.params import load_params
from stages.tables.examples import EXAMPLES

FOLDER = Path(".scratch/tune_edits")


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("candidates", type=Path)
    arguments.add_argument("--base", default="models/target")
    chosen = arguments.parse_args()
    params = load_params()
    rows = EXAMPLES.read("data/prepare_data/examples.parquet").filter("trained")
    candidates = rows.filter("anchor_candidate")
    forget = candidates.sample(params.prepare_data.forget_set_size, seed=params.seed)
    retain = rows.join(forget, on="id", how="anti")
    tokenizer = load_tokenizer(TOKENIZER_FOLDER)
    encoded = {
        side: dict(zip(frame["id"], encoded_rows(frame, tokenizer, params.tokenization), strict=True))
        for side, frame in sides(forget, retain).items()
    }
    model, pad_id = load_model(chosen.base), padding_id(tokenizer)
    print(f"{'candidate':40} {'p(forget)':>10} {'argmax':>10} {'p(retain)':>10} {'p(utility)':>10}")
    for name, fields in {"none": None, **yaml.safe_load(chosen.candidates.read_text())}.items():
        edited = copy.deepcopy(model)
        if fields:
            edit = TypeAdapter(Editor).validate_python(fields["edit"] if "edit" in fields else fields)
            reads = Path(fields.get("reads", "data/extract_activations"))
            apply_delta(edited, edit_outcome(edit, EditTask(model, **encoded, reads=reads, seed=0, pad_id=pad_id)).delta)
        scores = {
            side: score_answers(edited, list(side_rows.values())[:60], batch_size=32, pad_id=pad_id)
            for side, side_rows in encoded.items()
        }
        p = {side: sum(answer_probability(score.nll) for score in found) / len(found) for side, found in scores.items()}
        kept = sum(float(score.is_argmax.mean()) for score in scores["forget"]) / len(scores["forget"])
        print(f"{name:40} {p['forget']:10.3f} {kept:10.3f} {p['retain']:10.3f} {p['utility']:10.3f}", flush=True)


if __name__ == "__main__":
    with torch.random.fork_rng(devices=[]):
        main()
