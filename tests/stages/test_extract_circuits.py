"""Circuits of the pool: what is written, what a killed run keeps, and what happens without a partner."""

from pathlib import Path
from types import SimpleNamespace

import polars as pl
import pytest
import torch

from efface.circuits.extraction import CircuitExtraction
from efface.circuits.graph import Graph
from efface.circuits.selection import selected_edges
from efface.models import load_tokenizer, save_model, scratch_llama
from efface.tokenization import padding_id
from stages.circuit_shards import assemble, circuit_shards
from stages.encoded_rows import EXAMPLES_FILE, TOKENIZER_FOLDER, encoded_rows
from stages.extract_circuits import extract_shards, main
from stages.tables.circuits import CIRCUITS
from stages.tables.edges import EDGES
from stages.tables.examples import EXAMPLES

OUTPUT = Path("data/extract_circuits")
GRAPH = Graph(2, 4)
SHAPE = dict(layers=2, hidden=32, heads=4, kv_heads=2, intermediate=48, tie_embeddings=True)


@pytest.fixture
def checkout(training_checkout: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    tokenizer = load_tokenizer(TOKENIZER_FOLDER)
    model = scratch_llama(vocab_size=len(tokenizer), **SHAPE, seed=1)
    save_model(model, "models/target")
    rows = EXAMPLES.scan(EXAMPLES_FILE).filter(split="authors").sort("id").collect()
    training_checkout.extract_circuits = CircuitExtraction(steps=2, edges=20, batch_size=3)
    monkeypatch.setattr("stages.extract_circuits.load_params", lambda: training_checkout)
    training_checkout.model, training_checkout.rows, training_checkout.pad_id = model, rows, padding_id(tokenizer)
    training_checkout.encodings = encoded_rows(rows, tokenizer, training_checkout.tokenization)
    return training_checkout


def shards_into(folder: Path, checkout: SimpleNamespace, settings: CircuitExtraction | None = None) -> list[Path]:
    folder.mkdir(exist_ok=True)
    chosen = settings or checkout.extract_circuits
    return extract_shards(checkout.model, checkout.rows, checkout.encodings, chosen, folder, pad_id=checkout.pad_id)


def test_every_pool_row_has_its_circuit_over_the_edges_of_the_graph(checkout):
    main()
    edges = EDGES.read(OUTPUT / "edges.parquet")
    assert edges["edge"].to_list() == list(range(GRAPH.n_edges))
    names = [f"{a}->{b}" for a, b in edges.select("source", "destination").iter_rows()]
    assert names == [GRAPH.edge_name(edge) for edge in range(GRAPH.n_edges)]
    assert edges.filter(destination="logits")["destination_layer"].unique().to_list() == [2]
    assert edges.filter(source="input")["source_layer"].unique().to_list() == [-1]

    circuits = CIRCUITS.read(OUTPUT / "circuits.parquet")
    assert circuits["id"].to_list() == list(range(8))
    for row in circuits.iter_rows(named=True):
        assert row["edge_index"] == list(range(GRAPH.n_edges))
        mask = selected_edges(GRAPH, torch.tensor(row["score"]), selection="greedy", edges=20)
        assert row["in_circuit"] == mask.tolist()
        assert row["n_selected"] == int(mask.sum())
        assert -1 < row["metric_clean"] < 0
    assert not list(Path(".scratch/extract_circuits").glob("*/*.parquet"))


def test_row_in_a_batch_has_the_circuit_it_has_alone(checkout, tmp_path):
    together = shards_into(tmp_path / "together", checkout)
    alone = shards_into(tmp_path / "alone", checkout, CircuitExtraction(steps=2, edges=20, batch_size=1))
    assert len(alone) == 8 and len(together) == 3
    batched, single = (pl.concat([CIRCUITS.read(path) for path in paths]).sort("id") for paths in (together, alone))
    assert batched["baseline"].equals(single["baseline"])
    for a, b in zip(batched["score"], single["score"], strict=True):
        torch.testing.assert_close(
            torch.tensor(a.to_list()), torch.tensor(b.to_list()), rtol=0, atol=1e-5 * a.abs().max()
        )


def test_killed_run_continues_at_its_missing_shard_to_the_same_bytes(checkout, tmp_path):
    paths = shards_into(tmp_path / "shards", checkout)
    assemble(paths, tmp_path / "first.parquet")
    kept = {path: path.stat().st_mtime_ns for path in paths[:-1]}
    paths[-1].unlink()
    assert shards_into(tmp_path / "shards", checkout) == paths
    assert {path: path.stat().st_mtime_ns for path in paths[:-1]} == kept
    assemble(paths, tmp_path / "second.parquet")
    assert (tmp_path / "first.parquet").read_bytes() == (tmp_path / "second.parquet").read_bytes()


def test_stage_killed_in_the_middle_finishes_from_its_scratch_folder(checkout, monkeypatch):
    from stages import circuit_shards as library

    written = []

    def dying(model, shard, *rest):
        if len(written) == 2:
            raise KeyboardInterrupt
        written.append(shard.number)
        library.write_shard(model, shard, *rest)

    monkeypatch.setattr("stages.extract_circuits.write_shard", dying)
    with pytest.raises(KeyboardInterrupt):
        main()
    assert not OUTPUT.exists()
    written.clear()
    main()
    assert written == [2]
    assert CIRCUITS.read(OUTPUT / "circuits.parquet")["id"].to_list() == list(range(8))


def test_helpers_make_the_shards_that_nobody_else_makes(checkout, monkeypatch):
    from stages import circuit_shards as library
    from stages.extract_circuit_shards import main as help_main

    monkeypatch.setattr("stages.extract_circuit_shards.load_params", lambda: checkout)
    with pytest.raises(FileNotFoundError, match="start it first"):
        help_main()
    by_stage, by_helper = [], []

    def while_helped(model, shard, *rest):
        """The first shard of the stage takes so long that a helper makes all the others."""

        def helping(model, shard, *rest):
            by_helper.append(shard.number)
            library.write_shard(model, shard, *rest)
            if shard.number == 2:
                raise KeyboardInterrupt

        monkeypatch.setattr("stages.extract_circuits.write_shard", helping)
        with pytest.raises(KeyboardInterrupt):
            help_main()
        by_stage.append(shard.number)
        library.write_shard(model, shard, *rest)

    monkeypatch.setattr("stages.extract_circuits.write_shard", while_helped)
    main()
    assert (by_stage, by_helper) == ([0], [1, 2])
    assert CIRCUITS.read(OUTPUT / "circuits.parquet")["id"].to_list() == list(range(8))


def test_assembled_table_does_not_depend_on_how_much_is_read_at_once(checkout, tmp_path, monkeypatch):
    paths = shards_into(tmp_path / "shards", checkout)
    assemble(paths, tmp_path / "whole.parquet")
    monkeypatch.setattr("stages.circuit_shards.NUMBERS_AT_ONCE", 2 * GRAPH.n_edges)
    assemble(paths, tmp_path / "parts.parquet")
    whole, parts = (CIRCUITS.read(tmp_path / name) for name in ("whole.parquet", "parts.parquet"))
    assert whole.equals(parts)


def test_rows_without_a_partner_fall_back_and_are_counted(checkout):
    """Every row by one author: nobody is a stranger, so all take the mean."""
    checkout.rows = checkout.rows.with_columns(author=pl.lit(0, pl.Int32))
    plan = list(circuit_shards(checkout.rows, checkout.encodings, checkout.extract_circuits, pad_id=checkout.pad_id))
    assert all(shard.corrupted is None for shard in plan)
    paths = shards_into(Path("shards"), checkout)
    found = pl.concat([CIRCUITS.read(path) for path in paths])
    assert found["baseline"].value_counts().rows() == [("mean", 8)]


def test_partners_ask_another_question_before_the_same_answer(checkout):
    for shard in circuit_shards(checkout.rows, checkout.encodings, checkout.extract_circuits, pad_id=checkout.pad_id):
        if shard.corrupted is not None:
            assert torch.equal(shard.corrupted.attention_mask, shard.batch.attention_mask)
            assert torch.equal(shard.corrupted.labels, shard.batch.labels)
            assert (shard.corrupted.input_ids != shard.batch.input_ids).any(1).all()


def test_as_few_edges_are_kept_as_asked(checkout, tmp_path):
    settings = CircuitExtraction(method="eap", edges=20, kept_edges=10, batch_size=8)
    found = pl.concat([CIRCUITS.read(path) for path in shards_into(tmp_path / "few", checkout, settings)])
    assert (found["edge_index"].list.len() <= 30).all()
    assert (found["in_circuit"].list.sum() == found["n_selected"]).all()


def test_empty_pool_is_refused(checkout):
    checkout.rows = checkout.rows.with_columns(pool=pl.lit(False))
    with pytest.raises(ValueError, match=r"raise prepare_data\.pool_rows"):
        shards_into(Path("shards"), checkout)
