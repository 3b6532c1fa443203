"""Carries out the deletion requests of one series one after the other, each upon the model that the last one left."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import polars as pl
import torch
from tqdm import tqdm

from efface.editing.grom import Grom
from efface.editing.subspace import QrErase, UnlearnSvd
from efface.evaluation.aggregate import author_resamples
from efface.evaluation.comparison import Measurement, Scores, Split, split_measurements, utility_measurements
from efface.models import load_model, load_tokenizer, save_model
from efface.tokenization import padding_id
from stages.comparison_inputs import read_splits
from stages.edit import asked, sides
from stages.edit_task import EditTask
from stages.editors import Editor, edit_outcome
from stages.encoded_rows import EXAMPLES_FILE, TOKENIZER_FOLDER, encoded_rows
from stages.evaluated_examples import evaluated_examples
from stages.params import Params, load_params
from stages.scratch import scratch_folder
from stages.tables.examples import EXAMPLES
from stages.tables.sustained import SUSTAINED
from stages.training import forget_and_retain, training_rows

if TYPE_CHECKING:
    from transformers import PreTrainedModel

OUTPUT = Path("data/sustained_requests")
PARTS = ("first", "pending")


def main(item: str | None = None) -> None:
    params = load_params()
    if item is None or item not in params.sustained:
        raise ValueError(
            f"sustained_requests {item!r}: no such series; params.sustained has {sorted(params.sustained)}"
        )
    series, forget_file = params.sustained[item], Path("data/forget_sets") / f"{params.sustained[item].set}.parquet"
    check_edits_any_model(series.edit, params.edit[series.edit])
    forget, _ = forget_and_retain(training_rows(), forget_file)
    requests = split_requests(forget["id"].to_list(), series.requests, seed=params.seed)
    settings = [str(series), str(params.edit[series.edit]), str(params.evaluate), str(params.tokenization), params.seed]
    deps = [series.base, series.reads, EXAMPLES_FILE, TOKENIZER_FOLDER, forget_file]
    with scratch_folder("sustained_requests", item, settings, deps) as folder:
        shards = [folder / f"{done}.parquet" for done in range(len(requests) + 1)]
        for done, shard in enumerate(tqdm(shards, desc=f"sustained_requests {item}")):
            if shard.is_file():
                continue
            model = load_model(Path(series.base) if done < 2 else folder / f"model-{done - 1}", device=_device())
            if done:
                _carry_out(model, requests, done, item, params, folder)
                save_model(model, folder / f"model-{done}")
            SUSTAINED.write(shard, _measured(model, requests, done, item, params))
        with SUSTAINED.writer(OUTPUT / item / "measurements.parquet") as writer:
            for shard in shards:
                writer.append(SUSTAINED.read(shard))
    _write_curve(OUTPUT / item)


def check_edits_any_model(name: str, edit: Editor) -> None:
    """Task matrices and stored keys are those of the unedited base, which later requests do not start from.

    Raises: ValueError where the edit needs them.
    """
    if isinstance(edit, QrErase | UnlearnSvd) or (isinstance(edit, Grom) and not edit.sequential):
        raise ValueError(
            f"sustained: edit {name} reads task matrices or keys of the unedited base; the second request starts from "
            "an edited one. Use sequential GROM or a gradient method"
        )


def split_requests(ids: list[int], count: int, *, seed: int) -> list[list[int]]:
    """The forget set as `count` requests of nearly equal size that share no example, in the order they come in.

    Raises: ValueError where there are fewer examples than requests.
    """
    if not 1 <= count <= len(ids):
        raise ValueError(f"sustained: {count} requests of {len(ids)} examples; expected from 1 to {len(ids)}")
    order = np.random.default_rng([seed, 12]).permutation(ids)
    return [sorted(part.tolist()) for part in np.array_split(order, count)]


def splits_after(requests: list[list[int]], done: int, splits: Mapping[str, Split], params: Params) -> dict[str, Split]:
    """The splits of a comparison; `forget` is what was asked for so far, the whole set before the first request."""
    measured = splits["forget"].ids
    authors = dict(EXAMPLES.read(EXAMPLES_FILE).select("id", "author").iter_rows())
    wanted = {"forget": requests[:done] or requests, "first": requests[:1], "pending": requests[done:]}
    found = dict(splits)
    for name, parts in wanted.items():
        ids = tuple(example for example in measured if any(example in part for part in parts))
        if ids:
            places = np.array([authors[example] for example in ids])
            draws = author_resamples(places, draws=params.compare.bootstrap, seed=[params.seed, 0])
            found[name] = Split(name, ids, draws)
    return found


def _carry_out(
    model: "PreTrainedModel", requests: list[list[int]], done: int, item: str, params: Params, folder: Path
) -> None:
    """Edits the model in place. Rows of earlier requests are neither forgotten again nor retained."""
    from efface.editing.delta import apply_delta

    series, tokenizer = params.sustained[item], load_tokenizer(TOKENIZER_FOLDER)
    now = pl.col("id").is_in(requests[done - 1])
    rows, earlier = training_rows(), [example for part in requests[: done - 1] for example in part]
    frames = sides(rows.filter(now), rows.filter(~now & ~pl.col("id").is_in(earlier)))
    encoded = {
        side: dict(zip(frame["id"], encoded_rows(frame, tokenizer, params.tokenization), strict=True))
        for side, frame in frames.items()
    }
    checkpoints = folder / f"edit-{done}"
    checkpoints.mkdir(exist_ok=True)
    task = EditTask(
        model,
        forget=encoded["forget"],
        retain=encoded["retain"],
        utility=encoded["utility"],
        reads=Path(series.reads),
        seed=params.seed,
        pad_id=padding_id(tokenizer),
        checkpoints=checkpoints,
        asked=asked(frames["forget"], tokenizer, params.tokenization),
    )
    apply_delta(model, edit_outcome(params.edit[series.edit], task).delta)


def _measured(
    model: "PreTrainedModel", requests: list[list[int]], done: int, item: str, params: Params
) -> pl.DataFrame:
    """Rows of SUSTAINED after `done` requests."""
    from efface.evaluation.suite import example_scores

    settings = params.tokenization.model_dump() | params.evaluate.model_dump(exclude={"dtype"})
    scores: dict[str, dict[int, float]] = {}
    for score in example_scores(model, load_tokenizer(TOKENIZER_FOLDER), evaluated_examples(), **settings):
        scores.setdefault(score.metric, {})[score.id] = score.value
    splits = splits_after(requests, done, read_splits(params.sustained[item].set, params), params)
    found = [(each.split, each.metric, each.estimate) for each in _measurements(scores, splits, params)]
    rows = [(item, done, split, metric, e.value, e.n, e.low, e.high) for split, metric, e in found]
    return pl.DataFrame(rows, schema=list(SUSTAINED.columns), orient="row", infer_schema_length=None)


def _measurements(scores: Scores, splits: Mapping[str, Split], params: Params) -> list[Measurement]:
    """All of a comparison; of the first and the pending requests no truth ratio, which is a matter of the whole set."""
    found = split_measurements(scores, splits.values(), confidence=params.compare.confidence)
    found = [each for each in found if each.split not in PARTS or each.metric != "truth_ratio"]
    return found + utility_measurements(scores, splits, confidence=params.compare.confidence)


def _write_curve(folder: Path) -> None:
    """Utility and forgetting by request, for DVC's plots."""
    frame = SUSTAINED.read(folder / "measurements.parquet")
    wanted = {"model_utility": ("utility", "model_utility")}
    wanted |= {f"p_{split}": (split, "probability") for split in ("forget", "first", "pending", "retain")}
    curve = frame.select("request").unique().sort("request")
    for name, (split, metric) in wanted.items():
        values = frame.filter(split=split, metric=metric).select("request", pl.col("value").alias(name))
        curve = curve.join(values, on="request", how="left", maintain_order="left")
    curve.write_csv(folder / "curve.csv")


def _device() -> str:
    return "cuda" if torch.cuda.is_available() else "cpu"
