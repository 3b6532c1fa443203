"""What CUD is worth: do its variants agree, what sets easy circuits apart from hard ones, and what does it foretell?"""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import polars as pl
import torch
from tqdm import tqdm

from efface.circuits.graph import Graph
from efface.circuits.signatures import Signature, circuit_signature
from efface.difficulty.cud import ROLES, easiest_and_hardest
from efface.difficulty.effect_size import cliffs_delta_estimate
from efface.difficulty.rank_correlation import spearman_estimate
from efface.evaluation.aggregate import Estimate, author_resamples
from stages.circuit_rows import EDGES_FILE, circuit_rows, graph_of
from stages.encoded_rows import EXAMPLES_FILE
from stages.params import Params, load_params
from stages.tables.agreement import AGREEMENT
from stages.tables.anchors import ALL_RUNS
from stages.tables.contrasts import CONTRASTS
from stages.tables.difficulty import DIFFICULTY
from stages.tables.edges import EDGES
from stages.tables.examples import EXAMPLES
from stages.tables.forget_sets import forgotten_ids
from stages.tables.predictions import PREDICTIONS
from stages.tables.predictors import PREDICTORS
from stages.tables.results import RESULTS
from stages.tables.signatures import SIGNATURES

DATA = Path("data")
OUTPUT = DATA / "analyse_difficulty"
CONFOUNDS = (
    "prompt_tokens", "answer_tokens", "lexical_similarity_retain", "lexical_similarity_pool", "question_position",
)  # fmt: skip
OUTCOMES = ("loss_after", "rise")
FEWEST = 3
Values = Mapping[int, float]


def main(item: str | None = None) -> None:
    params = load_params()
    examples = EXAMPLES.read(EXAMPLES_FILE).filter("pool").sort("id")
    authors = dict(examples.select("id", "author").iter_rows())
    difficulty = DIFFICULTY.read(DATA / "score_cud/difficulty.parquet").filter(~pl.col("undefined"))
    predictors = PREDICTORS.read(DATA / "score_predictors/predictors.parquet")
    signatures = signature_rows(graph_of(EDGES.read(EDGES_FILE)))
    SIGNATURES.write(OUTPUT / "signatures.parquet", signatures)
    described = [("signature", signatures.rename({"statistic": "quantity"}))]
    described.append(("predictor", predictors.rename({"predictor": "quantity"})))
    CONTRASTS.write(OUTPUT / "contrasts.parquet", pl.DataFrame(contrast_rows(described, authors, params)))
    scored = difficulty.join(examples.filter("anchor_candidate").select("id"), on="id", how="anti")
    AGREEMENT.write(OUTPUT / "agreement.parquet", pl.DataFrame(agreement_rows(scored, authors, params)))
    rows = prediction_rows(known_beforehand(difficulty, predictors), outcomes(params), authors, params)
    PREDICTIONS.write(OUTPUT / "predictions.parquet", pl.DataFrame(rows, infer_schema_length=None))


def signature_rows(graph: Graph) -> pl.DataFrame:
    """Rows of SIGNATURES: every statistic of every connected circuit."""
    frames = [pl.DataFrame(schema={"id": pl.Int64, "statistic": pl.String, "value": pl.Float64})]
    for ids, circuits in circuit_rows(graph):
        for number, mask, scores in zip(ids, circuits.mask, circuits.scores, strict=True):
            found = circuit_signature(graph, mask, scores)
            if found.paths.count:
                numbers = signature_numbers(found)
                frames.append(pl.DataFrame({"statistic": list(numbers), "value": list(numbers.values())}).select(
                    pl.lit(number, pl.Int64).alias("id"), "statistic", pl.col("value").cast(pl.Float64)
                ))  # fmt: skip
    return pl.concat(frames)


def signature_numbers(signature: Signature) -> dict[str, float]:
    """Statistic → value."""
    plain = (
        "edges", "nodes", "attention_share", "direct_to_logits_share", "mean_span", "weighted_span", "mean_location",
        "weighted_location",
    )  # fmt: skip
    numbers = {name: float(getattr(signature, name)) for name in plain}
    paths = signature.paths
    numbers |= {"paths": paths.count, "shortest_path": paths.shortest, "mean_path": paths.mean}
    numbers |= {"longest_path": paths.longest}
    layers = len(signature.source_layers) - 1
    numbers |= {f"type.{kind}": count / signature.edges for kind, count in signature.edge_types.items()}
    for side, counts, names in (
        ("source", signature.source_layers, ["input", *range(layers)]),
        ("destination", signature.destination_layers, [*range(layers), "logits"]),
    ):
        numbers |= {f"{side}_layer.{name}": n / signature.edges for name, n in zip(names, counts, strict=True)}
    return numbers


def contrast_rows(
    described: Sequence[tuple[str, pl.DataFrame]], authors: Mapping[int, int], params: Params
) -> Iterator[dict]:
    """Rows of CONTRASTS, for every quantity that any example of both sets has."""
    sets = [forgotten_ids(DATA / "forget_sets" / f"{role}.parquet").to_list() for role in ROLES]
    for kind, frame in described:
        for (quantity,), rows in frame.group_by(["quantity"], maintain_order=True):
            values = dict(rows.select("id", "value").iter_rows())
            groups = [[number for number in ids if number in values] for ids in sets]
            if not all(groups):
                continue
            easy, hard = (np.array([values[number] for number in ids]) for ids in groups)
            who = tuple(np.array([authors[number] for number in ids]) for ids in groups)
            found = cliffs_delta_estimate(
                easy,
                hard,
                authors=(who[0], who[1]),
                draws=params.compare.bootstrap,
                confidence=params.compare.confidence,
                seed=params.seed,
            )
            yield {"kind": kind, "quantity": quantity, "easy_mean": easy.mean(), "hard_mean": hard.mean()} | {
                "cliffs_delta": found.value, "ci_low": found.low, "ci_high": found.high, "n_easy": len(easy),
                "n_hard": len(hard),
            }  # fmt: skip


def agreement_rows(difficulty: pl.DataFrame, authors: Mapping[int, int], params: Params) -> Iterator[dict]:
    """Rows of AGREEMENT: every pair of ways to compute CUD, over the rows that may become forget sets."""
    name = pl.format("{}/{}/{}", "source", "similarity", "weighting")
    scores = {
        str(key): dict(rows.sort("id").select("id", "cud").iter_rows())
        for (key,), rows in difficulty.group_by(name, maintain_order=True)
        if len(rows) >= FEWEST
    }
    size = params.prepare_data.forget_set_size
    for first, second in tqdm(list(itertools.combinations(scores, 2)), desc="agreement", unit="pair"):
        found = correlation(scores[first], scores[second], authors, params)
        chosen = [_ends(scores[key], size) for key in (first, second)]
        overlaps = [len(a & b) / len(a | b) for a, b in zip(*chosen, strict=True)]
        yield {"first": first, "second": second, **_fields(found), "n": found.n} | dict(
            zip(("easy_overlap", "hard_overlap"), overlaps, strict=True)
        )


def _ends(scores: Values, size: int) -> list[set[int]]:
    """The easy and the hard set by these scores, of `size` examples or as many as there are for both."""
    ids = list(scores)
    ends = easiest_and_hardest(torch.tensor(list(scores.values())), size=min(size, len(ids) // 2))
    return [{ids[place] for place in end.tolist()} for end in ends]


def known_beforehand(difficulty: pl.DataFrame, predictors: pl.DataFrame) -> dict[str, Values]:
    """Predictor → example → value: CUD as it chose the sets, CUD by each method's own anchors, and the others.

    Anchors are left out of the CUD that they are anchors of.
    """
    chosen = difficulty.filter("chosen", pl.col("anchor").is_null())
    found: dict[str, Values] = {"cud": {}}
    found |= {
        "cud" if source == ALL_RUNS else f"cud.{source}": dict(rows.select("id", "cud").iter_rows())
        for (source,), rows in chosen.group_by(["source"], maintain_order=True)
    }
    others = predictors.group_by(["predictor"], maintain_order=True)
    return found | {str(name): dict(rows.select("id", "value").iter_rows()) for (name,), rows in others}


def outcomes(params: Params) -> dict[tuple[str, str], Values]:
    """(outcome, edit) → example → value; the mean over forget sets where an edit forgot an example more than once."""
    before = _losses("target")
    frames = []
    for name, model in params.models.items():
        if model.edit and model.set:
            ids = forgotten_ids(DATA / "forget_sets" / f"{model.set}.parquet")
            after = _losses(name).filter(pl.col("id").is_in(ids.implode()))
            both = after.join(before, on="id", suffix="_before", maintain_order="left")
            rise = pl.col("value") - pl.col("value_before")
            frames.append(both.select("id", loss_after="value", rise=rise, edit=pl.lit(model.edit)))
    means = pl.concat(frames).group_by("edit", "id", maintain_order=True).mean() if frames else pl.DataFrame()
    return {
        (outcome, edit): dict(means.filter(edit=edit).select("id", outcome).iter_rows())
        for outcome in OUTCOMES
        for edit in (means["edit"].unique(maintain_order=True) if frames else [])
    }


def _losses(model: str) -> pl.DataFrame:
    rows = RESULTS.scan(DATA / "evaluate" / model / "results.parquet")
    return rows.filter(metric="answer_nll").select("id", "value").collect()


def prediction_rows(
    predictors: Mapping[str, Values],
    outcomes: Mapping[tuple[str, str], Values],
    authors: Mapping[int, int],
    params: Params,
) -> Iterator[dict]:
    """Rows of PREDICTIONS."""
    confounds = [predictors[name] for name in CONFOUNDS if name in predictors]
    sides = halves(authors)
    targets = {("cud", None): predictors["cud"], **outcomes}
    jobs = [job for job in itertools.product(predictors, targets, sides) if job[1][0] != "cud" or job[0] != "cud"]
    for name, (outcome, edit), half in tqdm(jobs, desc="predictions", unit="pair"):
        values = {number: value for number, value in predictors[name].items() if number in sides[half]}
        found = correlation(values, targets[outcome, edit], authors, params)
        partial = Estimate(None, 0, None, None)
        if name not in CONFOUNDS:
            partial = correlation(values, targets[outcome, edit], authors, params, controls=confounds)
        yield {"predictor": name, "outcome": outcome, "edit": edit, "half": half, **_fields(found), "n": found.n} | {
            "partial_rho": partial.value, "partial_low": partial.low, "partial_high": partial.high
        }  # fmt: skip


def halves(authors: Mapping[int, int]) -> dict[str, set[int]]:
    """All examples, those of every other author (`choice`), and the rest (`held_out`)."""
    order = {author: place for place, author in enumerate(sorted(set(authors.values())))}
    choice = {number for number, author in authors.items() if order[author] % 2 == 0}
    return {"all": set(authors), "choice": choice, "held_out": set(authors) - choice}


def correlation(
    one: Values, other: Values, authors: Mapping[int, int], params: Params, controls: Sequence[Values] = ()
) -> Estimate:
    """Spearman's ρ over the examples that all have, with an interval over authors; undefined below FEWEST."""
    common = [number for number in one if all(number in values for values in (other, *controls))]
    if len(common) < FEWEST:
        return Estimate(None, len(common), None, None)
    x, y, *held = ([values[number] for number in common] for values in (one, other, *controls))
    who = np.array([authors[number] for number in common])
    draws = author_resamples(who, draws=params.compare.bootstrap, seed=params.seed)
    return spearman_estimate(x, y, draws, confidence=params.compare.confidence, controls=held)


def _fields(found: Estimate) -> dict[str, float | None]:
    return {"rho": found.value, "ci_low": found.low, "ci_high": found.high}
