"""Table `claims`: what the papers claim, what they report, and what this run found."""

import pyarrow as pa

from stages.tables.table import Table

CLAIMS = Table(
    "claims",
    1,
    {
        "paper": (pa.string(), "CUD | QR-Erase | GROM"),
        "claim": (pa.string(), "the claim in a sentence"),
        "published": (pa.string(), "the number that the paper gives; empty where none is known"),
        "measured": (pa.string(), "what this run found, with its interval over authors, or where it is measured"),
        "verdict": (
            pa.string(),
            "holds | does not hold | undecided (the interval covers both) | not testable here | not built",
        ),
    },
)
