"""Table `agreement`: do two ways of computing CUD order the pool alike?"""

import pyarrow as pa

from stages.tables.table import Table

AGREEMENT = Table(
    "agreement",
    1,
    {
        "first": (pa.string(), "a CUD, as source/similarity/weighting of table `difficulty`"),
        "second": (pa.string(), "the other one"),
        "rho": (pa.float64(), "Spearman’s rank correlation over pool rows that are no candidates; null where constant"),
        "ci_low": (pa.float64(), "bootstrap interval over authors; null where undefined"),
        "ci_high": (pa.float64(), "as ci_low"),
        "n": (pa.int32(), "examples with both scores defined"),
        "easy_overlap": (pa.float64(), "|A ∩ B| / |A ∪ B| of the easy sets that the two would choose"),
        "hard_overlap": (pa.float64(), "the same of the hard sets"),
    },
)
