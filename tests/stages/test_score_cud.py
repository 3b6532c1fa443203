"""CUD from fabricated circuits: what the tables must say is known, so every number is checked by hand or by formula."""

from pathlib import Path
from types import SimpleNamespace

import polars as pl
import pytest
import torch

from efface.circuits.extraction import CircuitExtraction
from efface.circuits.graph import Graph
from efface.difficulty.cud import Cud
from efface.models import file_md5
from stages import circuit_rows, score_cud
from stages.circuit_rows import CIRCUITS_FILE, EDGES_FILE, graph_of
from stages.circuit_shards import write_edges
from stages.encoded_rows import EXAMPLES_FILE
from stages.score_cud import ANCHORS_FILE
from stages.tables.anchor_circuits import ANCHOR_CIRCUITS
from stages.tables.anchors import ALL_RUNS, ANCHORS
from stages.tables.circuits import CIRCUITS
from stages.tables.difficulty import DIFFICULTY
from stages.tables.edges import EDGES
from stages.tables.examples import EXAMPLES
from stages.tables.forget_sets import FORGET_SETS

GRAPH = Graph(2, 2)
POOL = range(8)
CANDIDATES = [0, 1, 2, 3]
EASY, HARD = [0, 1], [2, 3]
EXTRACTION = CircuitExtraction(selection="top", edges=20)
DIFFICULTY_FILE = Path("data/score_cud/difficulty.parquet")


def edge_scores(example: int) -> torch.Tensor:
    """Easy anchors lean to one direction, hard ones to another; rows 4–7 lie between, ever nearer the hard one."""
    easy, hard = (torch.randn(GRAPH.n_edges, generator=torch.Generator().manual_seed(seed)) for seed in (1, 2))
    share = {0: 0.0, 1: 0.0, 2: 1.0, 3: 1.0, 4: 0.1, 5: 0.4, 6: 0.6, 7: 0.9}[example]
    noise = torch.randn(GRAPH.n_edges, generator=torch.Generator().manual_seed(100 + example))
    return (1 - share) * easy + share * hard + 0.01 * noise


@pytest.fixture
def params(training_checkout: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    monkeypatch.setattr(score_cud, "load_params", lambda: training_checkout)
    EXAMPLES.write(
        EXAMPLES_FILE, EXAMPLES.read(EXAMPLES_FILE).with_columns(anchor_candidate=pl.col("id").is_in(CANDIDATES))
    )
    write_edges(GRAPH, EDGES_FILE)
    write_circuits({example: edge_scores(example) for example in POOL})
    write_anchors(EASY, HARD)
    training_checkout.extract_circuits = EXTRACTION
    training_checkout.score_cud = Cud()
    training_checkout.select_anchors = SimpleNamespace(methods=[SimpleNamespace(method="npo")])
    training_checkout.prepare_data = SimpleNamespace(forget_set_size=2)
    return training_checkout


def write_circuits(scores: dict[int, torch.Tensor], empty: tuple[int, ...] = ()) -> None:
    """One row group per example, as a streaming writer leaves them."""
    with CIRCUITS.writer(CIRCUITS_FILE) as writer:
        for example, values in scores.items():
            mask = EXTRACTION.select(GRAPH, values) & torch.tensor(example not in empty)
            writer.append(
                pl.DataFrame(
                    {
                        "id": [example],
                        "edge_index": [list(range(GRAPH.n_edges))],
                        "score": [values.tolist()],
                        "in_circuit": [mask.tolist()],
                        "n_selected": [int(mask.sum())],
                        "metric_clean": [-0.5],
                        "baseline": ["mean"],
                    }
                )
            )


def write_anchors(easy: list[int], hard: list[int]) -> None:
    """The vote of all runs; one method whose roles are swapped; one run, whose choice makes no circuit."""
    rows = [
        {"id": example, "role": role, "source": source, "agreed": True, "votes": 1, "mean_rank": 0.0}
        for source, chosen in (("npo", (hard, easy)), ("npo-0", (hard, easy)), (ALL_RUNS, (easy, hard)))
        for role, examples in zip(("easy", "hard"), chosen, strict=True)
        for example in examples
    ]
    ANCHORS.write(ANCHORS_FILE, pl.DataFrame(rows))


def test_every_pool_row_has_every_score_and_anchors_are_marked(params):
    score_cud.main()
    table = DIFFICULTY.read(DIFFICULTY_FILE)
    assert len(table) == 2 * 8 * 6 and set(table["id"]) == set(POOL)
    marks = dict(table.filter(source=ALL_RUNS).select("id", "anchor").unique().rows())
    assert marks == {0: "easy", 1: "easy", 2: "hard", 3: "hard", 4: None, 5: None, 6: None, 7: None}
    assert table["cud"].is_between(0, 1).all() and not table["undefined"].any()


def test_each_method_scores_by_its_own_anchors(params):
    score_cud.main()
    table = DIFFICULTY.read(DIFFICULTY_FILE).sort("similarity", "weighting", "id")
    together, swapped = (table.filter(source=source) for source in (ALL_RUNS, "npo"))
    assert (together["cud"] + swapped["cud"] - 1).abs().max() < 1e-9
    assert swapped.filter(id=0)["anchor"].unique().to_list() == ["hard"]
    assert set(table["source"]) == {ALL_RUNS, "npo"}


def test_scores_rise_from_the_easy_to_the_hard_end(params):
    score_cud.main()
    table = DIFFICULTY.read(DIFFICULTY_FILE).filter(source=ALL_RUNS)
    for (similarity, weighting), rows in table.group_by("similarity", "weighting"):
        cud = dict(rows.select("id", "cud").rows())
        assert cud[4] < cud[7], (similarity, weighting)
    weighted = table.filter(similarity="cosine", weighting="weighted").sort("id")["cud"].to_list()
    assert weighted[4:] == sorted(weighted[4:])


def test_anchor_circuits_follow_the_selection_of_the_examples_circuits(params):
    params.extract_circuits = CircuitExtraction(selection="threshold", threshold=0.0)
    score_cud.main()
    sizes = ANCHOR_CIRCUITS.read("data/score_cud/anchor_circuits.parquet")["in_circuit"].list.sum().to_list()
    assert sizes == [GRAPH.n_edges] * 4


def test_an_anchor_circuit_is_one_selection_from_the_mean_of_signed_scores(params):
    score_cud.main()
    table = ANCHOR_CIRCUITS.read("data/score_cud/anchor_circuits.parquet").filter(source=ALL_RUNS)
    assert table["role"].to_list() == ["easy", "hard"]
    for row, examples in zip(table.iter_rows(named=True), (EASY, HARD), strict=True):
        mean = torch.stack([edge_scores(example) for example in examples]).mean(dim=0)
        torch.testing.assert_close(torch.tensor(row["score"]), mean, rtol=0, atol=1e-6)
        expected = EXTRACTION.select(GRAPH, mean)
        assert row["edge_index"] == list(range(GRAPH.n_edges)) and row["in_circuit"] == expected.tolist()


def test_forget_sets_are_the_ends_of_the_rows_that_are_no_candidates(params):
    params.score_cud = Cud(weighting="weighted")
    score_cud.main()
    easy, hard = (FORGET_SETS.read(f"data/forget_sets/{name}.parquet") for name in ("easy", "hard"))
    assert easy["id"].to_list() == [4, 5] and hard["id"].to_list() == [6, 7]
    assert set(easy["role"]) == {"forget"}


def test_reading_row_by_row_changes_nothing(params, monkeypatch):
    score_cud.main()
    before = [file_md5(path) for path in sorted(Path("data/score_cud").iterdir())]
    monkeypatch.setattr(circuit_rows, "NUMBERS_AT_ONCE", 1)
    score_cud.main()
    assert [file_md5(path) for path in sorted(Path("data/score_cud").iterdir())] == before


def test_an_empty_circuit_is_one_half_flagged_and_in_no_set(params):
    write_circuits({example: edge_scores(example) for example in POOL}, empty=(5,))
    params.prepare_data.forget_set_size = 1
    score_cud.main()
    rows = DIFFICULTY.read(DIFFICULTY_FILE).filter(id=5)
    assert rows["cud"].to_list() == [0.5] * 12 and rows["undefined"].all()
    sets = [FORGET_SETS.read(f"data/forget_sets/{name}.parquet")["id"].to_list() for name in ("easy", "hard")]
    assert sets == [[4], [7]]


def test_sets_larger_than_half_of_the_scored_rows_are_refused(params):
    params.prepare_data.forget_set_size = 3
    with pytest.raises(ValueError, match="forget sets of 3 examples from 4 with a defined score: expected 1 to 2"):
        score_cud.main()


def test_an_anchor_without_a_circuit_is_refused(params):
    write_circuits({example: edge_scores(example) for example in POOL if example != 2})
    with pytest.raises(ValueError, match=r"circuits\.parquet: 1 of 2 hard anchors have a circuit"):
        score_cud.main()


@pytest.mark.parametrize("graph", [Graph(2, 2), Graph(1, 3), Graph(3, 1, parallel=True)])
def test_the_graph_is_read_back_from_its_edges(params, graph):
    write_edges(graph, EDGES_FILE)
    assert graph_of(EDGES.read(EDGES_FILE)) == graph


def test_edges_of_no_graph_are_refused(params):
    with pytest.raises(ValueError, match="edges are not those of Graph"):
        graph_of(EDGES.read(EDGES_FILE).reverse())
