"""Table `contrasts`: how far the forget sets `easy` and `hard` lie apart in one quantity."""

import pyarrow as pa

from stages.tables.table import Table

CONTRASTS = Table(
    "contrasts",
    1,
    {
        "kind": (pa.string(), "signature (of circuits) | predictor (of examples, confounds among them)"),
        "quantity": (pa.string(), "statistic of table `signatures`, or predictor of table `predictors`"),
        "easy_mean": (pa.float64(), "mean over the set easy"),
        "hard_mean": (pa.float64(), "mean over the set hard"),
        "cliffs_delta": (pa.float64(), "P(hard > easy) − P(hard < easy) over all pairs, −1 to 1"),
        "ci_low": (pa.float64(), "bootstrap interval over authors; null where undefined"),
        "ci_high": (pa.float64(), "as ci_low"),
        "n_easy": (pa.int32(), "examples of the set easy"),
        "n_hard": (pa.int32(), "examples of the set hard"),
    },
)
