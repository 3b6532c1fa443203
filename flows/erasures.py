"""One training example, the other way round: in which registered versions it was forgotten, and how well each time."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import polars as pl
from mlflow.exceptions import MlflowException

from efface.evaluation.recovery import recovery_rate
from flows.registered import NotRegistered, Registered, every_edit
from stages.params import Compare
from stages.tables.difficulty import DIFFICULTY
from stages.tables.examples import EXAMPLES
from stages.tables.forget_sets import forgotten_ids
from stages.tables.influence import INFLUENCE
from stages.tables.results import RESULTS
from stages.tables.table import Table, TableError

UNQUANTIZED = "none"


@dataclass(frozen=True)
class Erasure:
    """What is known of one example in one edited version; None where it was not measured.

    `influence`: module → ‖P − P without this example‖ / ‖P‖. `probability`: quantization → p of its answer, `none`
    among them. `recovery`: quantization → share of the erased probability that is back, None where little was erased.
    """

    model: str
    profile: str
    forget_set: str
    method: str
    example: int
    content_hash: str
    cud: float | None = None
    influence: Mapping[str, float] = field(default_factory=dict)
    probability: Mapping[str, float] = field(default_factory=dict)
    probability_before: float | None = None
    recovery: Mapping[str, float | None] = field(default_factory=dict)
    missing: tuple[str, ...] = ()


def erasures(example: str) -> Iterator[Erasure]:
    """Every edited version whose forget set holds the example: an id, or the beginning of its content hash.

    Ids count within one corpus, so that one id may be another example in another profile; hashes tell them apart.
    """
    for model in every_edit():
        rows = EXAMPLES.read(model.content("data/prepare_data/examples.parquet"))
        is_it = pl.col("id") == int(example) if len(example) < 8 else pl.col("content_hash").str.starts_with(example)
        forgotten = forgotten_ids(model.content(f"data/forget_sets/{model.tags['forget_set']}.parquet"))
        for row in rows.filter(is_it, pl.col("id").is_in(forgotten.implode())).iter_rows(named=True):
            yield erasure_of(model, row["id"], row["content_hash"])


def erasure_of(model: Registered, example: int, content_hash: str) -> Erasure:
    """What the tables of a version's lineage hold of one example."""
    name, missing = model.tags["model"], []

    def of_example(version: Registered | None, table: Table, path: str) -> pl.DataFrame:
        try:
            if version is None:
                raise NotRegistered(f"{model.address}: its parent is not registered")
            return table.read(version.content(path)).filter(id=example)
        except (NotRegistered, TableError, MlflowException) as error:
            missing.append(f"{path}: {error}")
            return pl.DataFrame(schema={column: pl.Null for column in table.columns})

    def probabilities(version: Registered | None) -> dict[str, float]:
        of_model = version.tags["model"] if version else "target"
        paths = [f"data/{stage}/{of_model}/results.parquet" for stage in ("evaluate", "quantize_attack")]
        tables = [of_example(version, RESULTS, path).filter(pl.col("metric") == "probability") for path in paths]
        return {
            scheme: value for table in tables for scheme, value in table.select("quantization", "value").iter_rows()
        }

    chosen = of_example(model, DIFFICULTY, "data/score_cud/difficulty.parquet").filter(
        pl.col("chosen"), pl.col("source") == "all"
    )
    influence = of_example(model, INFLUENCE, f"data/edit/{name}/influence.parquet").select("module", "relative")
    after, before = probabilities(model), probabilities(model.parent)
    gap = Compare().minimal_gap
    return Erasure(
        model=model.address,
        profile=model.tags.get("profile", ""),
        forget_set=model.tags["forget_set"],
        method=model.tags.get("method", ""),
        example=example,
        content_hash=content_hash,
        cud=chosen["cud"].to_list()[0] if chosen.height else None,
        influence=dict(influence.iter_rows()),
        probability=after,
        probability_before=before.get(UNQUANTIZED),
        recovery={
            scheme: recovery_rate(after[UNQUANTIZED], after[scheme], before[scheme], minimal_gap=gap)
            for scheme in after
            if scheme != UNQUANTIZED and scheme in before and UNQUANTIZED in after
        },
        missing=tuple(missing),
    )


def described(erasure: Erasure) -> str:
    """An erasure in a few lines of text."""
    influence = ", ".join(f"{Path(module).name} {value:.3f}" for module, value in erasure.influence.items())
    after = erasure.probability.get(UNQUANTIZED)
    recovery = ", ".join(f"{scheme} {_number(rate)}" for scheme, rate in erasure.recovery.items())
    lines = [
        f"{erasure.model}  profile {erasure.profile}, forget set {erasure.forget_set}, method {erasure.method}",
        f"  example {erasure.example}, content hash {erasure.content_hash}",
        f"  difficulty (CUD)     {_number(erasure.cud)}",
        f"  influence on the edit {influence or 'not defined for this method'}",
        f"  p(answer)            {_number(erasure.probability_before)} before, {_number(after)} after",
        f"  recovery             {recovery or 'not measured'}",
        *(f"  missing              {reason}" for reason in erasure.missing),
    ]
    return "\n".join(lines)


def _number(value: float | None) -> str:
    return "undefined" if value is None else f"{value:.3f}"
