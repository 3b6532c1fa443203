"""Each headline claim of the three papers beside what this run found; no claim is left out because it fails."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import polars as pl

from stages.params import Params, load_params
from stages.tables.agreement import AGREEMENT
from stages.tables.claims import CLAIMS
from stages.tables.contrasts import CONTRASTS
from stages.tables.metrics import METRICS
from stages.tables.pairwise import PAIRWISE
from stages.tables.predictions import PREDICTIONS

DATA = Path("data")
GRADIENT = ("grad_ascent", "grad_diff", "npo", "sim_npo", "undial")
SIGNIFICANT = 0.05
UNDECIDED, ABSENT = "undecided", "not testable here"
Finding = tuple[str, str]
ClaimRow = tuple[str, str, str, str, str]
PAGE = """\
# The papers' claims, profile `{profile}`
Written by `python -m stages check_claims`. Intervals are bootstrap intervals over authors. *Undecided*: the interval
covers both answers. No claim is left out because it fails.
"""


@dataclass(frozen=True)
class Found:
    """The tables that claims are checked against."""

    metrics: pl.DataFrame
    pairwise: pl.DataFrame
    predictions: pl.DataFrame
    agreement: pl.DataFrame
    contrasts: pl.DataFrame
    params: Params


def main(item: str | None = None) -> None:
    params = load_params()
    metrics = METRICS.read(DATA / "compare/metrics.parquet").drop_nulls("value")
    pairwise = PAIRWISE.read(DATA / "compare/pairwise.parquet")
    predictions, agreement, contrasts = (
        table.read(DATA / "analyse_difficulty" / f"{table.name}.parquet")
        for table in (PREDICTIONS, AGREEMENT, CONTRASTS)
    )
    rows = list(claim_rows(Found(metrics, pairwise, predictions, agreement, contrasts, params)))
    CLAIMS.write(DATA / "check_claims/claims.parquet", pl.DataFrame(rows, orient="row", schema=list(CLAIMS.columns)))
    (DATA / "check_claims/claims.md").write_text(claims_page(rows, profile=params.profile), encoding="utf-8")


def claims_page(rows: Sequence[ClaimRow], *, profile: str) -> str:
    """The rows as Markdown."""
    lines = ["| " + " | ".join(cells) + " |" for cells in [CLAIMS.columns, ["---"] * len(CLAIMS.columns), *rows]]
    return f"{PAGE.format(profile=profile)}\n" + "\n".join(lines) + "\n"


def claim_rows(found: Found) -> Iterator[ClaimRow]:
    """Rows of CLAIMS: those that this run can weigh, then those that it cannot."""
    for paper, claim, published, check in CHECKED:
        yield (paper, claim, published, *check(found))
    yield from UNCHECKED


def sets_apart(found: Found, *, name: str, harder: bool) -> Finding:
    """p(forget) on one set less that on random sets, mean over the gradient methods that ran on both, in points."""
    rows = found.metrics.filter(quantization="none", split="forget", metric="probability")
    rows = rows.filter(pl.col("edit").is_in(methods_in(found.params, GRADIENT)))
    rows = rows.with_columns(half=(pl.col("ci_high") - pl.col("ci_low")) / 2)
    drawn = pl.col("forget_set").str.starts_with("random") | (pl.col("forget_set") == "default")
    random = rows.filter(drawn).group_by("edit").agg(pl.col("value").mean(), (pl.col("half") ** 2).mean().sqrt())
    both = rows.filter(forget_set=name).join(random, on="edit", suffix="_random")
    if both.is_empty():
        return f"no gradient method ran on {name} and on a random set", ABSENT
    gap = 100 * float((both["value"] - both["value_random"]).to_numpy().mean())
    half = 100 * float(np.hypot(both["half"].to_numpy(), both["half_random"].to_numpy()).mean())
    text = f"p(forget) {gap:+.1f} points [{gap - half:+.1f}, {gap + half:+.1f}] against random sets, mean of "
    return text + ", ".join(sorted(both["edit"])), sided(gap - half, gap + half, positive=harder)


def foretells(found: Found) -> Finding:
    """Rank correlation of CUD with the rise of answer loss: negative where high CUD means hard to forget."""
    rows = found.predictions.filter(predictor="cud", outcome="rise", half="held_out").drop_nulls(["rho", "ci_low"])
    if rows.is_empty():
        return "no edit forgot enough scored examples of the half that chose nothing", ABSENT
    text = ", ".join(f"{edit} {rho:+.2f}" for edit, rho in rows.select("edit", "rho").rows())
    verdicts = [sided(low, high, positive=False) for low, high in rows.select("ci_low", "ci_high").rows()]
    return f"ρ of CUD and the rise of loss, held-out authors: {text}", common(verdicts)


def variants_agree(found: Found) -> Finding:
    rows = found.agreement.filter(
        pl.col("first").str.starts_with("all/") & pl.col("second").str.starts_with("all/")
    ).drop_nulls("rho")
    if rows.is_empty():
        return "one variant only", ABSENT
    low, high = (float(value) for value in (rows["rho"].min(), rows["rho"].max()))  # type: ignore[arg-type]
    verdict = "holds" if low >= 0.7 else UNDECIDED if high >= 0.7 else "does not hold"
    return f"ρ between similarities and weightings: {low:.2f} to {high:.2f}", verdict


def losses_agree(found: Found) -> Finding:
    """Anchors from either method alone, under the similarity and weighting that made the sets."""
    how = f"{found.params.score_cud.similarity}/{found.params.score_cud.weighting}"
    names = {f"{method}/{how}" for method in ("grad_diff", "undial")}
    rows = found.agreement.filter(pl.col("first").is_in(names) & pl.col("second").is_in(names)).drop_nulls("ci_low")
    if rows.is_empty():
        return "anchors were not chosen with both", ABSENT
    rho, low, high = rows.select("rho", "ci_low", "ci_high").row(0)
    verdict = "holds" if low <= 0.76 <= high or low > 0.76 else "does not hold"
    return f"ρ {rho:.2f} [{low:.2f}, {high:.2f}]", verdict


def unconfounded(found: Found) -> Finding:
    rows = found.predictions.filter(outcome="cud", half="all").drop_nulls("ci_low")
    rows = rows.filter(pl.col("predictor").is_in(["prompt_tokens", "answer_tokens", "lexical_similarity_pool"]))
    if rows.is_empty():
        return "too few scored examples", ABSENT
    text = ", ".join(f"{name} {rho:+.2f}" for name, rho in rows.select("predictor", "rho").rows())
    apart = [low > 0 or high < 0 for low, high in rows.select("ci_low", "ci_high").rows()]
    return f"ρ with CUD: {text}", "does not hold" if any(apart) else "holds"


def unlike_mrd(found: Found) -> Finding:
    rows = found.predictions.filter(predictor="mrd", outcome="cud", half="all").drop_nulls("ci_low")
    if rows.is_empty():
        return "too few scored examples", ABSENT
    rho, low, high = rows.select("rho", "ci_low", "ci_high").row(0)
    verdict = "holds" if max(abs(low), abs(high)) < 0.5 else UNDECIDED if abs(rho) < 0.5 else "does not hold"
    return f"ρ {rho:+.2f} [{low:+.2f}, {high:+.2f}]", verdict


def deeper(found: Found) -> Finding:
    """Length and depth of hard circuits against easy ones."""
    rows = found.contrasts.filter(pl.col("quantity").is_in(["mean_path", "mean_location", "mean_span"]))
    rows = rows.drop_nulls("ci_low")
    if rows.is_empty():
        return "no connected circuits on both sets", ABSENT
    text = ", ".join(f"{name} {delta:+.2f}" for name, delta in rows.select("quantity", "cliffs_delta").rows())
    verdicts = [sided(low, high, positive=True) for low, high in rows.select("ci_low", "ci_high").rows()]
    return f"Cliff’s δ, hard against easy: {text}", common(verdicts)


def as_good_as_svd(found: Found) -> Finding:
    both = finals(found, ("qr_erase", "unlearn_svd"))
    if len(both) < 2:
        return "one of the two was not run", ABSENT
    gap = both["qr_erase"][0] / both["unlearn_svd"][0] - 1
    return f"Final {both['qr_erase'][0]:.3f} against {both['unlearn_svd'][0]:.3f}: {gap:+.1%}", (
        "holds" if abs(gap) <= 0.05 else "does not hold"
    )


def localisation_helps(found: Found) -> Finding:
    """Every edit that ran with and without layer localisation."""
    scores = finals(found, tuple(found.params.edit))
    pairs = {name: f"{name}_localised" for name in scores if f"{name}_localised" in scores}
    if not pairs:
        return "no edit ran with and without it", ABSENT
    text = ", ".join(f"{name} {scores[name][0]:.3f} → {scores[other][0]:.3f}" for name, other in pairs.items())
    gains = [scores[other][0] > scores[name][0] for name, other in pairs.items()]
    verdict = "holds" if all(gains) else UNDECIDED if any(gains) else "does not hold"
    return f"Final without → with localisation: {text}", verdict


def grom_is_best(found: Found) -> Finding:
    """The best GROM edit against the best other one, by their paired difference."""
    scores = finals(found, tuple(found.params.edit))
    own = {name: values for name, values in scores.items() if found.params.edit[name].method == "grom"}
    others = {name: values for name, values in scores.items() if name not in own}
    if not own or not others:
        return "GROM or all others were not run", ABSENT
    (name, best), (other, rival) = (max(part.items(), key=lambda item: item[1][0]) for part in (own, others))
    text = f"Final of {name} {best[0]:.3f} [{best[1]:.3f}, {best[2]:.3f}], of {other} {rival[0]:.3f} "
    text += f"[{rival[1]:.3f}, {rival[2]:.3f}]"
    pairs = found.pairwise.filter(quantization="none", metric="final_score", forget_set=found.params.sets[0])
    p = pairs.filter(pl.concat_list("first", "second").list.sort() == sorted([name, other]))["p_holm"]
    if p.is_empty() or p.item() >= SIGNIFICANT:
        return f"{text}; p {p.item():.2g} (Holm)" if len(p) else text, UNDECIDED
    return f"{text}; p {p.item():.2g} (Holm)", "holds" if best[0] > rival[0] else "does not hold"


def survives_four_bits(found: Found, *, methods: tuple[str, ...], recovers: bool) -> Finding:
    rows = found.metrics.filter(metric="recovery_rate_probability").drop_nulls("ci_low")
    rows = rows.filter(
        pl.col("quantization").is_in(["rtn_4", "nf4"]), pl.col("edit").is_in(methods_in(found.params, methods))
    )
    if rows.is_empty():
        return "undefined: too little was forgotten, or no 4-bit scheme ran", ABSENT
    worst = rows.sort("value", descending=True).row(0, named=True)
    text = f"highest recovery at 4 bits {worst['value']:+.2f} [{worst['ci_low']:+.2f}, {worst['ci_high']:+.2f}] "
    text += f"({worst['edit']}, {worst['forget_set']}, {worst['quantization']})"
    large = sided(worst["ci_low"] - 0.25, worst["ci_high"] - 0.25, positive=True)
    return text, large if large == UNDECIDED or recovers else "does not hold" if large == "holds" else "holds"


def methods_in(params: Params, methods: tuple[str, ...]) -> list[str]:
    """Names of the edits of these methods."""
    return [name for name, edit in params.edit.items() if edit.method in methods]


def finals(found: Found, edits: tuple[str, ...]) -> dict[str, tuple[float, float, float]]:
    """Final score with its interval on the first forget set, by edit."""
    rows = found.metrics.filter(quantization="none", metric="final_score", forget_set=found.params.sets[0])
    rows = rows.filter(pl.col("edit").is_in(edits))
    return {
        edit: (value, math.nan if low is None else low, math.nan if high is None else high)
        for edit, value, low, high in rows.select("edit", "value", "ci_low", "ci_high").rows()
    }


def sided(low: float, high: float, *, positive: bool) -> str:
    """Whether an interval lies on the claimed side of 0, on the other, or on both."""
    if low > 0 or high < 0:
        return "holds" if (low > 0) == positive else "does not hold"
    return UNDECIDED


def common(verdicts: list[str]) -> str:
    """One verdict for several: that of all where they agree."""
    return verdicts[0] if len(set(verdicts)) == 1 else UNDECIDED


CHECKED: tuple[tuple[str, str, str, Callable[[Found], Finding]], ...] = (
    (
        "CUD",
        "hard sets are harder to unlearn than random ones",
        "efficacy −14.1 points",
        partial(sets_apart, name="hard", harder=True),
    ),
    ("CUD", "easy sets are easier", "efficacy +3.3 points", partial(sets_apart, name="easy", harder=False)),
    ("CUD", "a low score before unlearning foretells that an example is forgotten", "", foretells),
    ("CUD", "scores do not depend on the similarity", "", variants_agree),
    ("CUD", "scores do not depend on the loss that chose the anchors", "ρ 0.76", losses_agree),
    ("CUD", "scores are not confounded by length or wording", "", unconfounded),
    ("CUD", "scores are weakly related to MRD", "ρ −0.27", unlike_mrd),
    ("CUD", "circuits of hard examples are longer and deeper", "", deeper),
    ("QR-Erase", "pivoted QR is within 5 % of the SVD", "", as_good_as_svd),
    ("QR-Erase", "layer localisation improves every method", "", localisation_helps),
    ("GROM", "best Final score of all methods on TOFU", "0.79 against 0.73 (SimNPO)", grom_is_best),
    (
        "GROM",
        "what it erased does not come back at 4 bits",
        "",
        partial(survives_four_bits, methods=("grom",), recovers=False),
    ),
    ("GROM", "what gradient methods erased does", "", partial(survives_four_bits, methods=GRADIENT, recovers=True)),
)

UNCHECKED = (
    (
        "QR-Erase",
        "pivoted QR takes 65–68 % less time than the SVD",
        "65–68 %",
        "benchmarks/pivoted_qr.py, docs/benchmarks.md",
        "holds",
    ),
    ("QR-Erase", "highest model utility on TOFU, Llama-2-7B", "0.6120", "needs that model and a GPU", ABSENT),
    (
        "QR-Erase",
        "subspace methods meet the criterion on cTOFU where NPO and FLAT fail",
        "",
        "romanised cTOFU is not published",
        "not built",
    ),
    (
        "QR-Erase",
        "speech: forget accuracy 53.1 % → 15.7 % on VoxCeleb2",
        "53.1 % → 15.7 %",
        "no speech models",
        "not built",
    ),
    (
        "QR-Erase",
        "UNLEARN benchmark: 96 % of a task forgotten, others within 2.5 %",
        "96 %",
        "the task list is not published",
        "not built",
    ),
    ("CUD", "MovieLens: the same for recommendation", "", "no recommenders", "not built"),
    (
        "GROM",
        "two orders of magnitude faster than gradient methods",
        "1.4–180 times",
        "12 times faster than SimNPO on 200 TOFU rows; 1 199 times, extrapolated, on 20 000: docs/benchmarks.md",
        "holds",
    ),
    ("GROM", "best on MUSE and WMDP", "56–76 and 0.63", "needs the published 7B and 8B targets and a GPU", ABSENT),
    ("GROM", "beats ROME, MEMIT and AlphaEdit on zsRE", "", "benchmarks/facts.py, docs/results-smollm2.md", UNDECIDED),
    (
        "GROM",
        "the influence of an example on the edit is exact",
        "",
        "equals solving again to 1e-9: tests/efface/editing/test_ridge_edit.py",
        "holds",
    ),
)
