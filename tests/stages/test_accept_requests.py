"""The forget set of standing requests: who may be in it, and how hard each is, before any edit."""

from pathlib import Path
from types import SimpleNamespace

import polars as pl
import pytest

from stages import accept_requests
from stages.params import Requests
from stages.tables.difficulty import DIFFICULTY
from stages.tables.examples import EXAMPLES
from stages.tables.forget_sets import forgotten_ids, ids_of
from stages.tables.requested import REQUESTED

FORGET_SET = Path("data/forget_sets/standing.parquet")


@pytest.fixture
def params(training_checkout: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    monkeypatch.setattr(accept_requests, "load_params", lambda: training_checkout)
    rows = EXAMPLES.read(accept_requests.EXAMPLES_FILE)
    pool = [row["id"] for row in rows.iter_rows(named=True) if row["pool"] and not row["utility"]][:6]
    assert len(pool) == 6
    scored = pl.DataFrame(
        {
            "id": pool, "source": "all", "similarity": "cosine", "weighting": "binary", "s_easy": 0.5, "s_hard": 0.5,
            "cud": [0.1, 0.2, 0.2, 0.4, 0.9, 0.5], "undefined": [False] * 5 + [True], "chosen": True, "anchor": None,
        },
        schema_overrides={"anchor": pl.String},
    )  # fmt: skip
    DIFFICULTY.write(accept_requests.DIFFICULTY_FILE, scored)
    training_checkout.pool = pool
    return training_checkout


def test_set_and_difficulty_of_standing_and_withdrawn_requests(params):
    first, second, _, _, hardest, undefined = params.pool
    params.requests = {"standing": Requests(forget=(undefined, hardest, first), withdrawn=(second,))}
    accept_requests.main("standing")
    assert forgotten_ids(FORGET_SET).to_list() == sorted([first, hardest, undefined])
    assert ids_of(FORGET_SET, "withdrawn").to_list() == [second]
    found = {row["id"]: row for row in REQUESTED.read("data/accept_requests/standing/requested.parquet").to_dicts()}
    assert [found[i]["cud"] for i in (first, second, hardest, undefined)] == [0.1, 0.2, 0.9, None]
    # Of five defined scores: none below the first, one and half of a tie below the second, all others below the last.
    assert [found[i]["harder_than"] for i in (first, second, hardest, undefined)] == [0.0, 0.375, 1.0, None]
    hashes = dict(EXAMPLES.read(accept_requests.EXAMPLES_FILE).select("id", "content_hash").iter_rows())
    assert all(row["content_hash"] == hashes[number] for number, row in found.items())


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"trained": False}, "was never trained on"),
        ({"utility": True}, "measures model utility"),
        ({"anchor_candidate": True}, "is kept for the anchors of difficulty"),
        ({"pool": False}, "is outside the pool"),
    ],
)
def test_an_example_that_cannot_be_forgotten_is_named(params, change, reason):
    example = params.pool[0]
    rows = EXAMPLES.read(accept_requests.EXAMPLES_FILE)
    changed = [
        pl.when(pl.col("id") == example).then(pl.lit(value)).otherwise(pl.col(column)).alias(column)
        for column, value in change.items()
    ]
    EXAMPLES.write(accept_requests.EXAMPLES_FILE, rows.with_columns(changed))
    params.requests = {"standing": Requests(forget=(example, 10**6))}
    with pytest.raises(ValueError, match=f"example {example} {reason}.* 2 in all"):
        accept_requests.main("standing")
    assert not FORGET_SET.exists()


def test_unusable_requests_are_named(params):
    params.requests = {}
    with pytest.raises(ValueError, match=r"no such requests; params\.requests has"):
        accept_requests.main("standing")
    with pytest.raises(ValueError, match=r"examples \[3\] are named twice"):
        Requests(forget=(1, 3), withdrawn=(3,))
    with pytest.raises(ValueError, match="no example is to be forgotten"):
        Requests(forget=(), withdrawn=(3,))
