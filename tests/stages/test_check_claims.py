"""Verdicts on claims, from tables whose answer is known."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import polars as pl
import pytest

from efface.difficulty.cud import Cud
from efface.editing.grom import Grom
from efface.editing.subspace import QrErase, UnlearnSvd
from efface.unlearning.methods import GradDiff, Npo
from stages import check_claims
from stages.check_claims import Found
from stages.tables.agreement import AGREEMENT
from stages.tables.claims import CLAIMS
from stages.tables.contrasts import CONTRASTS
from stages.tables.metrics import METRICS
from stages.tables.pairwise import PAIRWISE
from stages.tables.predictions import PREDICTIONS

EDITS = {
    "grom": Grom(), "npo": Npo(), "npo_localised": Npo(localised=True), "grad_diff": GradDiff(), "qr_erase": QrErase(),
    "unlearn_svd": UnlearnSvd(),
}  # fmt: skip
ROOT = Path(__file__).resolve().parents[2]
VERDICTS = {"holds", "does not hold", "undecided", "not testable here", "not built"}


def frame(table, rows: list[dict[str, Any]]) -> pl.DataFrame:
    empty = pl.from_arrow(table.schema.empty_table())
    assert isinstance(empty, pl.DataFrame)
    return pl.DataFrame(rows, schema=empty.schema)


def found(*, metrics=(), pairwise=(), predictions=(), agreement=(), contrasts=()) -> Found:
    params: Any = SimpleNamespace(profile="toy", edit=EDITS, sets=("default", "easy", "hard"), score_cud=Cud())
    return Found(
        frame(METRICS, list(metrics)),
        frame(PAIRWISE, list(pairwise)),
        frame(PREDICTIONS, list(predictions)),
        frame(AGREEMENT, list(agreement)),
        frame(CONTRASTS, list(contrasts)),
        params,
    )


def measured(edit: str, value: float, half: float = 0.01, *, of: str = "default", **fields) -> dict[str, Any]:
    given = {"split": "all", "metric": "final_score", "quantization": "none"} | fields
    return {"edit": edit, "forget_set": of, "value": value, "ci_low": value - half, "ci_high": value + half} | given


def p_forget(edit: str, of: str, value: float) -> dict[str, Any]:
    return measured(edit, value, of=of, split="forget", metric="probability")


@pytest.mark.parametrize(("hard", "verdict"), [(0.5, "holds"), (0.105, "undecided"), (0.0, "does not hold")])
def test_hard_sets_are_compared_with_random_ones(hard, verdict):
    rows = [p_forget("npo", "default", 0.05), p_forget("npo", "random_1", 0.15), p_forget("npo", "hard", hard)]
    text, given = check_claims.sets_apart(found(metrics=rows), name="hard", harder=True)
    assert given == verdict and f"{100 * (hard - 0.1):+.1f} points" in text and text.endswith("mean of npo")
    assert check_claims.sets_apart(found(metrics=rows[:2]), name="hard", harder=True)[1] == "not testable here"


@pytest.mark.parametrize(
    ("intervals", "verdict"),
    [([(-0.9, -0.1)], "holds"), ([(0.1, 0.9)], "does not hold"), ([(-0.9, -0.1), (-0.5, 0.5)], "undecided")],
)
def test_prediction_is_judged_on_the_held_out_half(intervals, verdict):
    rows = [
        {"predictor": "cud", "outcome": "rise", "edit": f"e{place}", "half": "held_out", "rho": -0.5}
        | {"ci_low": low, "ci_high": high}
        for place, (low, high) in enumerate(intervals)
    ]
    other_half = [rows[0] | {"half": "all", "ci_low": 0.8, "ci_high": 0.9}]
    assert check_claims.foretells(found(predictions=rows + other_half))[1] == verdict


def test_the_best_method_is_judged_by_the_paired_difference():
    def verdict(grom: float, npo: float, p: float) -> str:
        pair = {"first": "npo", "second": "grom", "metric": "final_score", "quantization": "none", "p_holm": p}
        rows = [measured("grom", grom), measured("npo", npo)]
        return check_claims.grom_is_best(found(metrics=rows, pairwise=[pair | {"forget_set": "default"}]))[1]

    assert (verdict(0.9, 0.8, 0.01), verdict(0.8, 0.9, 0.01)) == ("holds", "does not hold")
    assert verdict(0.9, 0.8, 0.2) == "undecided"


@pytest.mark.parametrize(
    ("recovery", "grom", "npo"), [(0.1, "holds", "does not hold"), (0.9, "does not hold", "holds")]
)
def test_recovery_is_asked_of_both_kinds_of_methods(recovery, grom, npo):
    rows = [
        measured(edit, recovery, metric="recovery_rate_probability", quantization="nf4") for edit in ("grom", "npo")
    ]
    given = found(metrics=rows)
    assert check_claims.survives_four_bits(given, methods=("grom",), recovers=False)[1] == grom
    assert check_claims.survives_four_bits(given, methods=("npo",), recovers=True)[1] == npo


def test_localised_edits_are_compared_with_their_plain_ones():
    rows = [measured("npo", 0.8), measured("npo_localised", 0.9), measured("grad_diff", 0.5)]
    text, verdict = check_claims.localisation_helps(found(metrics=rows))
    assert verdict == "holds" and "npo 0.800 → 0.900" in text and "grad_diff" not in text


def test_qr_and_svd_are_compared_within_five_percent():
    def verdict(qr: float) -> str:
        return check_claims.as_good_as_svd(found(metrics=[measured("qr_erase", qr), measured("unlearn_svd", 0.8)]))[1]

    assert (verdict(0.83), verdict(0.7)) == ("holds", "does not hold")


def test_every_claim_has_a_row_even_where_nothing_was_measured(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    METRICS.write("data/compare/metrics.parquet", frame(METRICS, []))
    PAIRWISE.write("data/compare/pairwise.parquet", frame(PAIRWISE, []))
    for table in (PREDICTIONS, AGREEMENT, CONTRASTS):
        table.write(f"data/analyse_difficulty/{table.name}.parquet", frame(table, []))
    monkeypatch.setattr(check_claims, "load_params", lambda: found().params)
    check_claims.main()
    claims = CLAIMS.read("data/check_claims/claims.parquet")
    assert len(claims) == len(check_claims.CHECKED) + len(check_claims.UNCHECKED)
    assert set(claims["verdict"]) <= VERDICTS and set(claims["paper"]) == {"CUD", "QR-Erase", "GROM"}
    assert set(claims["verdict"][: len(check_claims.CHECKED)]) == {"not testable here"}
    page = Path("data/check_claims/claims.md").read_text()
    assert claims_on(page) == claims["claim"].to_list() and "profile `toy`" in page


@pytest.mark.parametrize("page", [ROOT / "docs/claims.md", *sorted(ROOT.glob("profiles/*/claims.md"))], ids=str)
def test_no_claim_is_left_out_of_a_committed_page(page):
    assert claims_on(page.read_text()) == [claim for _, claim, *_ in (*check_claims.CHECKED, *check_claims.UNCHECKED)]


def claims_on(page: str) -> list[str]:
    rows = [line.split(" | ") for line in page.splitlines() if line.startswith("| ")]
    return [cells[1] for cells in rows[2:]]
