"""The analyses of CUD on numbers whose answer is known; the whole stage runs in test_report and end to end."""

from types import SimpleNamespace

import numpy as np
import polars as pl
import pytest

from efface.circuits.graph import Graph
from efface.circuits.signatures import circuit_signature
from efface.difficulty.cud import Cud
from stages.analyse_difficulty import (
    CONFOUNDS,
    agreement_rows,
    contrast_rows,
    halves,
    known_beforehand,
    prediction_rows,
    signature_numbers,
)
from stages.params import Compare
from stages.tables.forget_sets import FORGET_SETS

AUTHORS = {number: number // 4 for number in range(40)}
RANDOM = np.random.default_rng(0)
VALUES = dict(enumerate(RANDOM.normal(size=40).tolist()))
OTHERS = dict(enumerate(RANDOM.normal(size=40).tolist()))


@pytest.fixture
def params(tmp_path, monkeypatch) -> SimpleNamespace:
    monkeypatch.chdir(tmp_path)
    return SimpleNamespace(
        compare=Compare(bootstrap=30), seed=0, score_cud=Cud(), prepare_data=SimpleNamespace(forget_set_size=5)
    )


def predictions(params, predictors, outcomes) -> pl.DataFrame:
    return pl.DataFrame(prediction_rows(predictors, outcomes, AUTHORS, params), infer_schema_length=None)


def test_a_predictor_in_the_order_of_the_outcome_has_rho_one_and_reversed_minus_one(params):
    reversed_values = {number: -value for number, value in VALUES.items()}
    rows = predictions(params, {"cud": reversed_values, "mrd": VALUES}, {("rise", "grom"): VALUES})
    found = rows.filter(outcome="rise", half="all")
    assert dict(found.select("predictor", "rho").iter_rows()) == {"cud": pytest.approx(-1), "mrd": pytest.approx(1)}
    assert found["n"].to_list() == [40, 40] and found["ci_low"].to_list() == pytest.approx([-1, 1])


def test_what_a_confound_explains_is_left_out_of_the_partial_correlation(params):
    confound = {number: value**3 for number, value in VALUES.items()}
    rows = predictions(params, {"cud": VALUES, CONFOUNDS[1]: confound}, {("rise", "npo"): OTHERS})
    of_cud = rows.filter(predictor="cud", half="all", outcome="rise")
    assert of_cud["rho"].item() is not None and of_cud["partial_rho"].item() is None
    assert rows.filter(predictor=CONFOUNDS[1])["partial_rho"].is_null().all()


def test_without_edits_only_cud_itself_is_foretold(params):
    rows = predictions(params, {"cud": VALUES, "mrd": OTHERS}, {})
    assert rows["outcome"].unique().to_list() == ["cud"] and rows["predictor"].unique().to_list() == ["mrd"]
    assert rows["edit"].is_null().all()


def test_too_few_common_examples_leave_it_undefined(params):
    rows = predictions(params, {"cud": {0: 0.1, 1: 0.2}}, {("rise", "npo"): OTHERS}).filter(half="all")
    assert rows.select("rho", "n").rows() == [(None, 2)]


def test_halves_part_authors_and_together_are_everything():
    sides = halves(AUTHORS)
    assert sides["choice"] | sides["held_out"] == sides["all"] == set(AUTHORS)
    whose = [{AUTHORS[number] for number in sides[name]} for name in ("choice", "held_out")]
    assert not whose[0] & whose[1] and len(whose[0]) == len(whose[1]) == 5


def test_anchors_are_left_out_of_their_own_cud(params):
    difficulty = pl.DataFrame(
        {
            "id": [0, 1, 0, 1], "source": ["all", "all", "npo", "npo"], "similarity": ["cosine"] * 4,
            "weighting": ["binary"] * 4, "cud": [0.1, 0.2, 0.3, 0.4], "chosen": [True] * 4,
            "anchor": ["easy", None, None, "hard"],
        }
    )  # fmt: skip
    predictors = pl.DataFrame({"id": [0], "predictor": ["mrd"], "value": [2.0]})
    known = known_beforehand(difficulty, predictors)
    assert known == {"cud": {1: 0.2}, "cud.npo": {0: 0.3}, "mrd": {0: 2.0}}


def test_contrast_of_easy_and_hard_by_hand(params):
    """Of four pairs (1, 2), (1, 4), (3, 2), (3, 4) the hard value is larger in three: δ = (3 − 1) / 4."""
    for name, ids in (("easy", [0, 4]), ("hard", [8, 12])):
        FORGET_SETS.write(f"data/forget_sets/{name}.parquet", pl.DataFrame({"id": ids, "role": "forget"}))
    frame = pl.DataFrame({"id": [0, 4, 8, 12], "quantity": ["length"] * 4, "value": [1.0, 3.0, 2.0, 4.0]})
    lonely = pl.DataFrame({"id": [0], "quantity": ["absent"], "value": [1.0]})
    described = [("predictor", pl.concat([frame, lonely]))]
    (row,) = contrast_rows(described, AUTHORS, params)  # type: ignore[arg-type]
    assert (row["easy_mean"], row["hard_mean"], row["cliffs_delta"]) == (2, 3, 0.5)
    assert (row["n_easy"], row["n_hard"], row["quantity"]) == (2, 2, "length")


def test_equal_scores_agree_wholly_and_opposite_ones_not_at_all(params):
    ways = {"cosine": VALUES, "jaccard": VALUES, "hamming": {number: -value for number, value in VALUES.items()}}
    frames = [
        pl.DataFrame({"id": list(values), "cud": list(values.values())}).with_columns(
            source=pl.lit("all"), similarity=pl.lit(name), weighting=pl.lit("binary")
        )
        for name, values in ways.items()
    ]
    rows = {
        (row["first"].split("/")[1], row["second"].split("/")[1]): row
        for row in agreement_rows(pl.concat(frames), AUTHORS, params)  # type: ignore[arg-type]
    }
    same, opposite = rows["cosine", "jaccard"], rows["cosine", "hamming"]
    assert (same["rho"], same["easy_overlap"], same["hard_overlap"]) == (pytest.approx(1), 1, 1)
    assert (opposite["rho"], opposite["easy_overlap"], opposite["hard_overlap"]) == (pytest.approx(-1), 0, 0)


def test_every_statistic_of_a_signature_has_a_number_and_shares_add_up():
    graph = Graph(2, 2)
    mask = graph.flat(graph.real_edge_mask)
    numbers = signature_numbers(circuit_signature(graph, mask, mask.float()))
    for kind in ("type.", "source_layer.", "destination_layer."):
        assert sum(value for name, value in numbers.items() if name.startswith(kind)) == pytest.approx(1)
    assert numbers["edges"] == graph.n_edges and numbers["shortest_path"] == 1
    assert {"source_layer.input", "source_layer.1", "destination_layer.logits"} <= set(numbers)
