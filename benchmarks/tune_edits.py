"""What each edit's parameters do, measured on rows outside every reported forget set.

`python -m benchmarks.tune_edits candidates.yaml` runs each candidate (name → the fields of an edit) on a forget set
drawn from the anchor candidates, and prints the mean answer probability that is left of it and of rows that should
stay. It reads the outputs of `prepare_data`, `train_target` and `extract_activations`.
"""

import argparse
import copy
from pathlib import Path

import polars as pl
import yaml
from pydantic import TypeAdapter

from efface.editing.delta import apply_delta
from efface.evaluation.probability import answer_probability
from efface.evaluation.scoring import score_answers
from efface.models import load_model, load_tokenizer
from efface.tokenization import padding_id
from stages.build_task_matrices import retain_sample, write
from stages.edit import sides
from stages.editors import Editor, EditTask, edit_outcome
from stages.encoded_rows import TOKENIZER_FOLDER, encoded_rows
from stages.params import Params, load_params
from stages.training import training_rows

SCRATCH = Path(".scratch/tune_edits")
SUBSPACE = ("qr_erase", "unlearn_svd")
SHOWN = 60


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("candidates", type=Path)
    candidates = yaml.safe_load(arguments.parse_args().candidates.read_text())
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
    if any(fields["method"] in SUBSPACE or fields.get("localised") for fields in candidates.values()):
        build_task_matrices(params, model, tokenizer, forget, retain)

    print(f"{'candidate':40} {'p(forget)':>10} {'p(retain)':>10} {'p(utility)':>10}")
    for name, fields in {"no edit": None, **candidates}.items():
        edited = copy.deepcopy(model)
        if fields:
            subspace = fields["method"] in SUBSPACE or fields.get("localised")
            reads = SCRATCH if subspace else Path("data/extract_activations")
            task = EditTask(model, **encoded, reads=reads, seed=params.seed, pad_id=pad_id)
            apply_delta(edited, edit_outcome(TypeAdapter(Editor).validate_python(fields), task).delta)
        means = [mean_probability(edited, list(side.values())[:SHOWN], pad_id) for side in encoded.values()]
        print(f"{name:40}" + "".join(f" {mean:10.3f}" for mean in means), flush=True)


def build_task_matrices(params: Params, model, tokenizer, forget: pl.DataFrame, retain: pl.DataFrame) -> None:
    """Those of the tuning set, from the target."""
    settings = params.build_task_matrices
    parts = {"forget": forget, "retain": retain_sample(retain, settings.retain_rows, seed=params.seed)}
    matrices = {
        name: settings.trained(
            model, encoded_rows(part, tokenizer, params.tokenization), pad_id=padding_id(tokenizer), seed=params.seed
        )
        for name, part in parts.items()
    }
    write(matrices, SCRATCH)


def mean_probability(model, encodings, pad_id: int) -> float:
    scores = score_answers(model, encodings, batch_size=32, pad_id=pad_id)
    return sum(answer_probability(score.nll) for score in scores) / len(scores)


if __name__ == "__main__":
    main()
