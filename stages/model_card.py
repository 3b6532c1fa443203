"""The model card of a registered model: what was forgotten, how, how well, what comes back, and what was not shown.

Written from the tables of the checkout; a part whose table is not there says so instead of being left out.
"""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

import polars as pl

from stages.results_table import HEADLINE
from stages.tables.difficulty import DIFFICULTY
from stages.tables.examples import EXAMPLES
from stages.tables.forget_sets import forgotten_ids
from stages.tables.metrics import METRICS

DATA = Path("data")
FRONT = """---
library_name: transformers
tags: [machine-unlearning, efface]
---
"""
LIMITS = """\
- The numbers hold for the questions, paraphrases and decoding that were measured, not for every way to ask.
- The only attack tried is the quantization above; further training, long prompts and other languages were not.
- A low p(forget) says that answers are no longer produced; only the comparison with the retained model (forget quality)
  speaks about what is left in the weights, and with few examples it has little power.
- The changes belong to exactly the base named above: on other weights they mean nothing."""
ABSENT = "–"


def model_card(name: str, model: str, *, base: str, set: str = "", edit: str = "") -> str:
    """Markdown for `model` of params.yaml, which is registered as `name`; `set` and `edit` are empty for a base."""
    parts = {
        "What was forgotten": _forgotten(set) if edit else "Nothing: this is a model that edits start from.",
        "Method": _method(model, base) if edit else f"The weights of `{base}`.",
        "Difficulty (CUD) of the forget set": _difficulty(set) if edit else "",
        "Metrics": _metrics(model, set),
        "Recovery after quantization": _recovery(model, set) if edit else "",
        "Limits": LIMITS if edit else "",
    }
    sections = "\n\n".join(f"## {title}\n{text}" for title, text in parts.items() if text)
    return f"{FRONT}# {name}: {model}\n\n{sections}\n"


def _forgotten(set: str) -> str:
    """Count and hash, so that the card can be shown to those who may not see the examples."""
    examples, ids = DATA / "prepare_data/examples.parquet", DATA / "forget_sets" / f"{set}.parquet"
    if not (examples.is_file() and ids.is_file()):
        return _absent(examples, ids)
    wanted = forgotten_ids(ids)
    hashes = sorted(EXAMPLES.read(examples).filter(pl.col("id").is_in(wanted.implode()))["content_hash"])
    digest = hashlib.sha256("\n".join(hashes).encode()).hexdigest()
    return (
        f"{len(hashes)} training examples, forget set `{set}`. "
        f"SHA-256 of their sorted content hashes, one per line: `{digest}`"
    )


def _method(model: str, base: str) -> str:
    path = DATA / "edit" / model / "record.json"
    if not path.is_file():
        return _absent(path)
    record = json.loads(path.read_text())
    changed = [[name, f"{change['relative_norm']:.3g}"] for name, change in record["weights"].items()]
    return "\n\n".join(
        [
            f"`{record['method']}` on `{base}` (MD5 of its weights `{record['base_md5']}`), seed {record['seed']}, "
            f"{record['forget_rows']} rows to forget, {record['retain_rows']} to retain.",
            _table(["parameter", "value"], [[name, json.dumps(value)] for name, value in record["parameters"].items()]),
            _table(["changed weight", "norm of the change / norm of the weight"], changed),
        ]
    )


def _difficulty(set: str) -> str:
    table, ids = DATA / "score_cud/difficulty.parquet", DATA / "forget_sets" / f"{set}.parquet"
    if not (table.is_file() and ids.is_file()):
        return _absent(table, ids)
    wanted = forgotten_ids(ids)
    chosen = DIFFICULTY.read(table).filter(pl.col("chosen"), pl.col("id").is_in(wanted.implode()), source="all")
    cud = chosen["cud"]
    if cud.is_empty():
        return "No example of this set was scored."
    quartiles = [cud.quantile(share, "linear") for share in (0, 0.25, 0.5, 0.75, 1)]
    heads = ["examples", "undefined", "minimum", "lower quartile", "median", "upper quartile", "maximum"]
    row = [str(len(cud)), str(chosen["undefined"].sum()), *(f"{value:.3f}" for value in quartiles)]
    return f"0 is easy, 1 is hard; known before the edit.\n\n{_table(heads, [row])}"


def _metrics(model: str, set: str) -> str:
    found = _measured(model, set)
    if found is None:
        return _absent(DATA / "compare/metrics.parquet")
    unquantized = found.filter(quantization="none")
    rows = [
        [split, metric, *_estimate(unquantized.filter(split=split, metric=metric))]
        for split, metric in HEADLINE.values()
    ]
    return _table(["split", "metric", "value", "interval", "direction"], [row for row in rows if row[2] != ABSENT])


def _recovery(model: str, set: str) -> str:
    found = _measured(model, set)
    if found is None:
        return _absent(DATA / "compare/metrics.parquet")
    rows = []
    for scheme in found["quantization"].unique(maintain_order=True):
        if scheme != "none":
            of_scheme = found.filter(quantization=scheme, split="forget")
            recovered = _estimate(of_scheme.filter(metric="recovery_rate_probability"))
            rows.append([scheme, _estimate(of_scheme.filter(metric="probability"))[0], *recovered[:2]])
    explained = "Share of the erased p(forget) that comes back: 0 none, 1 all; undefined where little was erased."
    return f"{explained}\n\n{_table(['scheme', 'p(forget)', 'recovery', 'interval'], rows)}"


def _measured(model: str, set: str) -> pl.DataFrame | None:
    """The comparison's rows of one model: on its own forget set, or on the first where it has none."""
    path = DATA / "compare/metrics.parquet"
    if not path.is_file():
        return None
    found = METRICS.read(path).filter(model=model)
    return found.filter(forget_set=set or found["forget_set"].first())


def _estimate(rows: pl.DataFrame) -> list[str]:
    """Value, interval and direction of the one row there is."""
    found = rows.select("value", "ci_low", "ci_high", "direction").rows()
    if not found or found[0][0] is None:
        return [ABSENT, ABSENT, ABSENT]
    value, low, high, direction = found[0]
    interval = ABSENT if low is None or low != low else f"{low:.3g} to {high:.3g}"
    return [f"{value:.4g}", interval, direction.replace("_", " ")]


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return "\n".join("| " + " | ".join(cells) + " |" for cells in [heads, ["---"] * len(heads), *rows])


def _absent(*paths: Path) -> str:
    return f"Not recorded: {' and '.join(str(path) for path in paths if not path.is_file())} is missing."
