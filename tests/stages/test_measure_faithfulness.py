"""Ablations of circuits and of random ones: which rows, how many edges, and the two ends where the answer is known."""

from pathlib import Path
from types import SimpleNamespace

import polars as pl
import pytest

from efface.circuits.extraction import CircuitExtraction
from efface.circuits.graph import Graph
from efface.models import file_md5, load_tokenizer, save_model, scratch_llama
from stages import extract_circuits, measure_faithfulness
from stages.circuit_rows import CIRCUITS_FILE
from stages.encoded_rows import TOKENIZER_FOLDER
from stages.measure_faithfulness import OUTPUT, evenly_spread, random_circuits
from stages.tables.circuits import CIRCUITS
from stages.tables.faithfulness import FAITHFULNESS

SHAPE = dict(layers=2, hidden=32, heads=4, kv_heads=2, intermediate=48, tie_embeddings=True)


@pytest.fixture
def params(training_checkout: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A checkout whose circuits were extracted."""
    model = scratch_llama(vocab_size=len(load_tokenizer(TOKENIZER_FOLDER)), **SHAPE, seed=1)
    save_model(model, "models/target")
    training_checkout.extract_circuits = CircuitExtraction(steps=2, edges=20, batch_size=3)
    training_checkout.measure_faithfulness = SimpleNamespace(examples=5)
    for stage in (extract_circuits, measure_faithfulness):
        monkeypatch.setattr(stage, "load_params", lambda: training_checkout)
    extract_circuits.main()
    return training_checkout


def rewrite(in_circuit: bool) -> None:
    """Every example's circuit is everything, or nothing."""
    rows = CIRCUITS.read(CIRCUITS_FILE)
    masks = [[in_circuit] * len(edges) for edges in rows["edge_index"]]
    CIRCUITS.write(CIRCUITS_FILE, rows.with_columns(in_circuit=pl.Series(masks, dtype=pl.List(pl.Boolean))))


def test_as_many_rows_as_asked_each_with_a_random_circuit_of_its_size(params):
    measure_faithfulness.main()
    found = FAITHFULNESS.read(OUTPUT)
    assert len(found) == 2 * 5 and found["id"].n_unique() == 5
    own, random = (found.filter(circuit=name).sort("id") for name in ("own", "random"))
    assert (own["metric_whole"] - random["metric_whole"]).abs().max() < 1e-6
    assert (random["edges"] <= own["edges"]).all() and (random["edges"] >= own["edges"] - 1).all()
    selected = CIRCUITS.read(CIRCUITS_FILE).select("id", "n_selected")
    assert own.join(selected, on="id")["n_selected"].equals(own["edges"], check_names=False)


def test_everything_is_the_whole_and_nothing_is_the_empty_model(params):
    for in_circuit, alone, rest in ((True, "metric_whole", "metric_empty"), (False, "metric_empty", "metric_whole")):
        rewrite(in_circuit)
        measure_faithfulness.main()
        own = FAITHFULNESS.read(OUTPUT).filter(circuit="own")
        assert (own["metric_circuit"] - own[alone]).abs().max() < 1e-5
        assert (own["metric_complement"] - own[rest]).abs().max() < 1e-5


def test_a_second_run_writes_the_same_bytes(params):
    written = []
    for _ in range(2):
        measure_faithfulness.main()
        written.append(file_md5(OUTPUT))
    assert written[0] == written[1]


def test_rows_are_spread_evenly_and_all_taken_where_there_are_few():
    ids = pl.Series("id", range(10))
    assert evenly_spread(ids, 4).to_list() == [0, 2, 5, 7]
    assert evenly_spread(ids, 99).to_list() == list(range(10))


def test_random_circuits_differ_by_example_and_seed():
    graph = Graph(2, 4)
    mask = random_circuits(graph, {0: graph.flat(graph.real_edge_mask)}, seed=0)[0]
    assert mask.all()
    few = {number: (graph.edge_sources < 2) for number in (0, 1)}
    first, other = random_circuits(graph, few, seed=0), random_circuits(graph, few, seed=9)
    assert not first[0].equal(first[1]) and not first[0].equal(other[0])
    assert Path(OUTPUT).name == "faithfulness.parquet"
