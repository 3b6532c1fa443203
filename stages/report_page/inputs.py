"""Everything the report shows, read from the tables of the other stages and joined; absent parts are empty frames."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from stages.encoded_rows import EXAMPLES_FILE
from stages.params import Params
from stages.tables.agreement import AGREEMENT
from stages.tables.anchors import ALL_RUNS
from stages.tables.claims import CLAIMS
from stages.tables.contrasts import CONTRASTS
from stages.tables.difficulty import DIFFICULTY
from stages.tables.energies import ENERGIES
from stages.tables.examples import EXAMPLES
from stages.tables.faithfulness import FAITHFULNESS
from stages.tables.forget_sets import forgotten_ids
from stages.tables.metrics import METRICS
from stages.tables.pairwise import PAIRWISE
from stages.tables.predictions import PREDICTIONS
from stages.tables.quantized_weights import QUANTIZED_WEIGHTS
from stages.tables.results import RESULTS

DATA = Path("data")
KEYS = ["forget_set", "edit", "quantization"]
MEASURED = {
    "p_forget": ("forget", "probability"),
    "rougeL": ("forget", "rougeL_recall"),
    "extraction_strength": ("forget", "extraction_strength"),
    "truth_ratio": ("forget", "truth_ratio"),
    "forget_quality_p": ("forget", "forget_quality_p"),
    "ks_statistic": ("forget", "ks_statistic"),
    "p_retain": ("retain", "probability"),
    "model_utility": ("utility", "model_utility"),
    "final_score": ("all", "final_score"),
    "recovery": ("forget", "recovery_rate_probability"),
}


@dataclass(frozen=True)
class Inputs:
    """Frames of the report.

    `outcomes`: forget_set × edit × quantization, a column and its interval per name of MEASURED. `difficulty`: id, cud,
    undefined, anchor, group. `forgetting`: id, edit, forget_set, forgetting. `energies`: forget_set, layer, partition,
    energy_share. `weights`: edit, forget_set, scheme, changed_code_share, surviving_ratio, edited matrices only.
    `pairwise`, `agreement`, `contrasts`, `predictions`, `faithfulness`, `claims`: the tables of that name.
    `curves`: loss per epoch by model. `confidence`: of all intervals.
    `source`: where the model came from that was trained.
    """

    examples: pl.DataFrame
    sets: dict[str, list[int]]
    outcomes: pl.DataFrame
    pairwise: pl.DataFrame
    difficulty: pl.DataFrame
    forgetting: pl.DataFrame
    energies: pl.DataFrame
    weights: pl.DataFrame
    agreement: pl.DataFrame
    contrasts: pl.DataFrame
    predictions: pl.DataFrame
    faithfulness: pl.DataFrame
    claims: pl.DataFrame
    curves: dict[str, pl.DataFrame]
    confidence: float
    source: str

    @property
    def intervals(self) -> str:
        """What small figures and bars are."""
        return f"{self.confidence:.0%} bootstrap intervals over authors"

    @property
    def first_set(self) -> str:
        """The forget set that pictures of one set show."""
        return next(iter(self.sets))

    @property
    def edits(self) -> list[str]:
        """Edits in the order of params.models."""
        edits = self.outcomes["edit"].unique(maintain_order=True)
        return edits.filter(~edits.is_in(["target", "retained"])).to_list()

    @property
    def schemes(self) -> list[str]:
        """Quantization schemes in the order they were run; `none` is not one."""
        schemes = self.outcomes["quantization"].unique(maintain_order=True)
        return schemes.filter(schemes != "none").to_list()


def read_inputs(params: Params) -> Inputs:
    """Reads exactly what params name."""
    sets = {name: forgotten_ids(DATA / "forget_sets" / f"{name}.parquet").to_list() for name in params.sets}
    return Inputs(
        examples=EXAMPLES.read(EXAMPLES_FILE),
        sets=sets,
        outcomes=outcomes(METRICS.read(DATA / "compare/metrics.parquet")),
        pairwise=PAIRWISE.read(DATA / "compare/pairwise.parquet"),
        difficulty=_difficulty(sets),
        forgetting=_forgetting(params, sets),
        energies=_energies(params.task_matrices),
        weights=_weights(params),
        agreement=AGREEMENT.read(DATA / "analyse_difficulty/agreement.parquet"),
        contrasts=CONTRASTS.read(DATA / "analyse_difficulty/contrasts.parquet"),
        predictions=PREDICTIONS.read(DATA / "analyse_difficulty/predictions.parquet"),
        faithfulness=FAITHFULNESS.read(DATA / "measure_faithfulness/faithfulness.parquet"),
        claims=CLAIMS.read(DATA / "check_claims/claims.parquet"),
        curves=_curves(params),
        confidence=params.compare.confidence,
        source=params.train_target.model.source,
    )


def outcomes(metrics: pl.DataFrame) -> pl.DataFrame:
    """A row per forget set, edit and quantization, references first: the target of every set, its retained model."""
    shown = metrics.filter((pl.col("edit") != "retained") | (pl.col("model") == "retained-" + pl.col("forget_set")))
    place = pl.col("edit").replace_strict({"target": 0, "retained": 1}, default=2)
    frame = shown.select(KEYS).unique(maintain_order=True).sort(place, maintain_order=True)
    for name, (split, metric) in MEASURED.items():
        found = shown.filter(split=split, metric=metric).select(
            *KEYS, pl.col("value").fill_nan(None).alias(name), pl.col("ci_low", "ci_high").fill_nan(None)
        )
        found = found.rename({"ci_low": f"{name}_low", "ci_high": f"{name}_high"})
        frame = frame.join(found, on=KEYS, how="left", maintain_order="left")
    return frame.with_columns(
        forgotten=1 - pl.col("p_forget"),
        forgotten_low=1 - pl.col("p_forget_high"),
        forgotten_high=1 - pl.col("p_forget_low"),
    )


def _difficulty(sets: dict[str, list[int]]) -> pl.DataFrame:
    """CUD as it chose the forget sets, and which of them each row is in."""
    scored = DIFFICULTY.read(DATA / "score_cud/difficulty.parquet").filter("chosen", source=ALL_RUNS)
    group = pl.when(pl.col("id").is_in(sets.get("easy", []))).then(pl.lit("easy"))
    group = group.when(pl.col("id").is_in(sets.get("hard", []))).then(pl.lit("hard")).otherwise(pl.lit("other"))
    return scored.select("id", "cud", "undefined", "anchor", group=group)


def _forgetting(params: Params, sets: dict[str, list[int]]) -> pl.DataFrame:
    """How much each forgotten example's answer loss rose above the target's, by edit, in nats per token."""
    before = _losses("target", sorted({number for ids in sets.values() for number in ids})).rename({"value": "before"})
    frames = [
        pl.DataFrame(schema={"id": pl.Int64, "edit": pl.String, "forget_set": pl.String, "forgetting": pl.Float64})
    ]
    for name, model in params.models.items():
        if model.edit and model.set:
            after = _losses(name, sets[model.set]).join(before, on="id", maintain_order="left")
            named = after.select(
                "id",
                edit=pl.lit(model.edit),
                forget_set=pl.lit(model.set),
                forgetting=pl.col("value") - pl.col("before"),
            )
            frames.append(named)
    return pl.concat(frames)


def _losses(model: str, ids: Sequence[int]) -> pl.DataFrame:
    results = RESULTS.scan(DATA / "evaluate" / model / "results.parquet")
    return results.filter(pl.col("metric") == "answer_nll", pl.col("id").is_in(ids)).select("id", "value").collect()


def _energies(sets: Sequence[str]) -> pl.DataFrame:
    """The share of each layer: the same for all modules of a layer, so kept once."""
    schema = {"layer": pl.Int32, "partition": pl.String, "energy_share": pl.Float64, "forget_set": pl.String}
    frames = [pl.DataFrame(schema=schema)]
    for name in sets:
        shares = ENERGIES.read(DATA / "build_task_matrices" / name / "energies.parquet")
        shares = shares.drop_nulls("layer").unique(["layer", "partition"], keep="first", maintain_order=True)
        frames.append(shares.select("layer", "partition", "energy_share", forget_set=pl.lit(name)))
    return pl.concat(frames)


def _weights(params: Params) -> pl.DataFrame:
    kinds = {"edit": pl.String, "forget_set": pl.String, "scheme": pl.String, "changed_code_share": pl.Float64}
    frames = [pl.DataFrame(schema={**kinds, "surviving_ratio": pl.Float64})]
    for name, model in params.models.items():
        if model.edit and model.set:
            rows = QUANTIZED_WEIGHTS.read(DATA / "quantize_attack" / name / "weights.parquet")
            ratio = pl.col("surviving_delta_norm") / pl.col("delta_norm")
            frames.append(
                rows.filter(pl.col("delta_norm") > 0).select(
                    edit=pl.lit(model.edit),
                    forget_set=pl.lit(model.set),
                    scheme="scheme",
                    changed_code_share="changed_code_share",
                    surviving_ratio=ratio,
                )
            )
    return pl.concat(frames)


def _curves(params: Params) -> dict[str, pl.DataFrame]:
    """Mean loss per epoch; a model that was not trained here has no curve."""
    files = {"target": DATA / "train_target/loss.csv"}
    files |= {f"retained-{name}": DATA / "train_retained" / name / "loss.csv" for name in params.retained}
    kinds = {"step": pl.Int64, "epoch": pl.Int64, "loss": pl.Float64}
    curves = {name: pl.read_csv(path, schema=kinds) for name, path in files.items()}
    return {
        name: curve.group_by("epoch", maintain_order=True).agg(pl.col("loss").mean())
        for name, curve in curves.items()
        if not curve.is_empty()
    }
