"""Table `predictions`: how well what is known before unlearning foretells what unlearning then does to each example."""

import pyarrow as pa

from stages.tables.table import Table

PREDICTIONS = Table(
    "predictions",
    1,
    {
        "predictor": (pa.string(), "cud | cud.<method> (its own anchors) | a predictor of table `predictors`"),
        "outcome": (
            pa.string(),
            "cud | loss_after (answer loss after the edit) | rise (of the answer loss above the target’s)",
        ),
        "edit": (pa.string(), "the edit that the outcome is of; null for cud"),
        "half": (
            pa.string(),
            "all | choice (authors on which settings were chosen) | held_out (the others)",
        ),
        "rho": (pa.float64(), "Spearman’s rank correlation; null where undefined"),
        "ci_low": (pa.float64(), "bootstrap interval over authors; null where undefined"),
        "ci_high": (pa.float64(), "as ci_low"),
        "n": (pa.int32(), "forgotten examples that are no anchors"),
        "partial_rho": (
            pa.float64(),
            "the same with all confounds held fixed; null for a confound, or where undefined",
        ),
        "partial_low": (pa.float64(), "its bootstrap interval"),
        "partial_high": (pa.float64(), "as partial_low"),
    },
)
