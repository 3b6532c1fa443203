"""Makes a forget set of standing deletion requests, and tells how hard each example is to forget, before any edit."""

from pathlib import Path

import polars as pl

from stages.encoded_rows import EXAMPLES_FILE
from stages.params import Requests, load_params
from stages.tables.anchors import ALL_RUNS
from stages.tables.difficulty import DIFFICULTY
from stages.tables.examples import EXAMPLES
from stages.tables.forget_sets import FORGET_SETS
from stages.tables.requested import REQUESTED

DIFFICULTY_FILE = Path("data/score_cud/difficulty.parquet")
OUTPUT = Path("data/accept_requests")
SETS = Path("data/forget_sets")
REFUSALS = {
    "was never trained on": ~pl.col("trained"),
    "measures model utility": pl.col("utility"),
    "is kept for the anchors of difficulty": pl.col("anchor_candidate"),
    "is outside the pool, whose rows alone are measured": ~pl.col("pool"),
}


def main(item: str | None = None) -> None:
    params = load_params()
    if item is None or item not in params.requests:
        raise ValueError(f"accept_requests {item!r}: no such requests; params.requests has {sorted(params.requests)}")
    requests = params.requests[item]
    frame = pl.DataFrame(
        {"id": [*requests.forget, *requests.withdrawn], "role": _roles(requests)}, schema_overrides={"id": pl.Int64}
    ).sort("id")
    examples = EXAMPLES.read(EXAMPLES_FILE)
    refused = refusals(examples, frame["id"].to_list())
    if refused:
        number, reason = next(iter(refused.items()))
        raise ValueError(f"params.requests.{item}: example {number} {reason}; {len(refused)} in all; take them out")
    frame = frame.join(examples.select("id", "content_hash"), on="id", maintain_order="left")
    frame = frame.join(_difficulty(), on="id", how="left", maintain_order="left")
    REQUESTED.write(OUTPUT / item / "requested.parquet", frame)
    FORGET_SETS.write(SETS / f"{item}.parquet", frame.select("id", "role"))


def refusals(examples: pl.DataFrame, ids: list[int]) -> dict[int, str]:
    """Why an example cannot be forgotten here, for those that cannot."""
    found = {number: "is not in the corpus" for number in set(ids) - set(examples["id"])}
    asked = examples.filter(pl.col("id").is_in(ids))
    for reason, applies in REFUSALS.items():
        for number in asked.filter(applies)["id"]:
            found.setdefault(number, reason)
    return dict(sorted(found.items()))


def _roles(requests: Requests) -> list[str]:
    return ["forget"] * len(requests.forget) + ["withdrawn"] * len(requests.withdrawn)


def _difficulty() -> pl.DataFrame:
    """Every pool row's CUD and the share of the others that are easier; a tie counts for half."""
    scored = DIFFICULTY.read(DIFFICULTY_FILE).filter(pl.col("chosen"), ~pl.col("undefined"), source=ALL_RUNS)
    easier = (pl.col("cud").rank("average") - 1) / max(len(scored) - 1, 1)
    return scored.select("id", "cud", harder_than=easier)
