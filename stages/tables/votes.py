"""Table `votes`: the losses that chose the anchors, one row per candidate and run."""

import pyarrow as pa

from stages.tables.table import Table

VOTES = Table(
    "votes",
    1,
    {
        "id": (pa.int64(), "example id"),
        "method": (pa.string(), "unlearning method"),
        "seed": (pa.int64(), "seed of the run"),
        "ranked_for": (pa.string(), "both for a voting run; easy | hard for a bi-level run, which chooses one role"),
        "loss_before": (pa.float64(), "mean answer negative log-likelihood before unlearning, nats per token"),
        "loss_after": (pa.float64(), "the same after unlearning; low is hard to forget"),
        "rank": (
            pa.int32(),
            "place among the run's candidates, 0 the best for the role; both: the hardest, that is the lowest loss",
        ),
    },
)
