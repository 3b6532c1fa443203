"""Chooses the examples that stand for easily and for hardly unlearned, by unlearning all candidates several times."""

import itertools
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl
import torch

from efface.difficulty.anchor_runs import AnchorRun, anchor_run, answer_losses, roles_ranked, vote_of_runs
from efface.difficulty.anchors import AnchorVote, check_size, stability
from efface.difficulty.cud import ROLES, Role
from efface.models import load_model, load_tokenizer
from efface.tokenization import padding_id
from stages.encoded_rows import EXAMPLES_FILE, TOKENIZER_FOLDER, encoded_rows
from stages.params import Params, load_params
from stages.scratch import scratch_folder
from stages.tables.anchors import ALL_RUNS, ANCHORS
from stages.tables.examples import EXAMPLES
from stages.tables.votes import VOTES

TARGET = Path("models/target")
OUTPUT = Path("data/select_anchors")


def main(item: str | None = None) -> None:
    params = load_params()
    rows = EXAMPLES.scan(EXAMPLES_FILE).filter("trained").sort("id").collect()
    candidates, retained = (
        rows.filter("anchor_candidate"),
        rows.filter(~(pl.col("anchor_candidate") | pl.col("utility"))),
    )
    check_size(params.select_anchors.size, len(candidates))
    used = {"select_anchors": params.select_anchors, "seed": params.seed, "tokenization": params.tokenization}
    with scratch_folder("select_anchors", item, used, [EXAMPLES_FILE, TARGET]) as folder:
        votes = _votes(params, candidates, retained, folder)
        VOTES.write(OUTPUT / "votes.parquet", votes)
        ANCHORS.write(OUTPUT / "anchors.parquet", _anchors(params, votes))


def _votes(params: Params, candidates: pl.DataFrame, retained: pl.DataFrame, folder: Path) -> pl.DataFrame:
    """All runs' losses and ranks; a run that was finished before a kill is read back."""
    selection, tokenizer = params.select_anchors, load_tokenizer(TOKENIZER_FOLDER)
    model = load_model(TARGET, device="cuda" if torch.cuda.is_available() else "cpu")
    forget, retain = (encoded_rows(part, tokenizer, params.tokenization) for part in (candidates, retained))
    pad_id = padding_id(tokenizer)
    before = answer_losses(model, forget, batch_size=selection.batch_size, pad_id=pad_id)
    run_of = partial(anchor_run, model, forget, retain, selection=selection, pad_id=pad_id)
    frames = []
    for method, offset, role in itertools.product(selection.methods, selection.seeds, roles_ranked(selection)):
        seed = params.seed + offset
        name = f"{method.method}-{seed}-{role}"
        shard = folder / f"{name}.parquet"
        if not shard.is_file():
            run = run_of(method=method, seed=seed, ranked_for=role, checkpoint_folder=folder / name)
            labels = {"method": method.method, "seed": seed, "ranked_for": role}
            losses = {"loss_before": before.tolist(), "loss_after": run.losses.tolist(), "rank": run.ranks.tolist()}
            VOTES.write(shard, pl.DataFrame({"id": candidates["id"], **losses, **labels}))
        frames.append(VOTES.read(shard))
    return pl.concat(frames)


def _anchors(params: Params, votes: pl.DataFrame) -> pl.DataFrame:
    """The anchors that all runs together chose, and after them what each method and each run alone would choose."""
    selection, ids = params.select_anchors, votes["id"].unique(maintain_order=True)
    rows = _rows(vote_of_runs(_runs(votes), size=selection.size, min_votes=selection.min_votes), ids, ALL_RUNS)
    run = pl.format("{}-{}", "method", "seed")
    for source in (pl.col("method"), run):
        for (name,), part in votes.group_by(source, maintain_order=True):
            rows += _rows(vote_of_runs(_runs(part), size=selection.size, min_votes=None), ids, str(name))
    anchors = pl.DataFrame(rows)
    _report(anchors, votes.select(run.unique()).to_series().to_list())
    return anchors


def _report(anchors: pl.DataFrame, runs: list[str]) -> None:
    """Says on stderr how far the runs agree."""
    own, together = anchors.filter(pl.col("source").is_in(runs)), anchors.filter(source=ALL_RUNS)
    for role in ROLES:
        choices = [run["id"].to_list() for run in own.filter(role=role).partition_by("source")]
        agreed, size = together.filter(pl.col("agreed"), role=role).height, together.filter(role=role).height
        overlap = stability(choices)
        print(f"{role} anchors: {agreed} of {size} agreed, mean overlap of two runs {overlap:.2f}", file=sys.stderr)


def _runs(votes: pl.DataFrame) -> list[AnchorRun]:
    return [
        AnchorRun(part["ranked_for"][0], torch.tensor(part["loss_after"]), torch.tensor(part["rank"].cast(pl.Int64)))
        for part in votes.partition_by("method", "seed", "ranked_for", maintain_order=True)
    ]


def _rows(votes: Mapping[Role, AnchorVote], ids: pl.Series, source: str) -> list[dict[str, Any]]:
    return [
        {"id": ids[place], "role": role, "source": source, "agreed": agreed, "votes": count, "mean_rank": rank}
        for role, vote in votes.items()
        for place, count, rank, agreed in zip(
            vote.places.tolist(), vote.votes.tolist(), vote.mean_rank.tolist(), vote.agreed, strict=True
        )
    ]
