"""Factors and energies as the tables promise, from either start, without a row that measures utility."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import load_file

from efface.models import file_md5, linear_module_names, load_model, load_tokenizer, save_model
from efface.task_matrices.factors import TaskMatrices
from stages import build_task_matrices
from stages.build_task_matrices import retain_sample
from stages.tables.energies import ENERGIES
from stages.training import start_model, training_rows

OUTPUT = Path("data/build_task_matrices/default")


@pytest.fixture
def params(training_checkout: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    monkeypatch.setattr(build_task_matrices, "load_params", lambda: training_checkout)
    tokenizer = load_tokenizer("data/prepare_data/tokenizer")
    save_model(start_model(training_checkout.train_target.model, tokenizer, max_length=96, seed=1), "models/target")
    return training_checkout


def test_factors_and_energies_of_every_module_and_partition(params):
    build_task_matrices.main("default")
    modules = linear_module_names(load_model("models/target"))
    factors, table = load_file(OUTPUT / "factors.safetensors"), ENERGIES.read(OUTPUT / "energies.parquet")
    expected = {f"{m}/{part}/{side}" for m in modules for part in ("forget", "retain") for side in ("left", "right")}
    assert set(factors) == expected
    assert table["partition"].to_list() == ["forget"] * len(modules) + ["retain"] * len(modules)
    for row in table.iter_rows(named=True):
        left, right = (factors[f"{row['module']}/{row['partition']}/{side}"] for side in ("left", "right"))
        assert left.shape[1] == right.shape[0] == row["rank"] <= 3
        assert 0 < torch.linalg.norm(left @ right) <= row["frobenius_norm"] * (1 + 1e-5)
        assert row["layer"] == int(row["module"].split(".")[2])
    for _, rows in table.group_by("partition"):
        assert rows.unique("layer")["energy_share"].sum() == pytest.approx(1.0)


@pytest.mark.parametrize("start", ["base", "target"])
def test_a_second_run_writes_the_same_bytes(params, start):
    params.build_task_matrices = replace(params.build_task_matrices, start=start, modules=("down_proj",))
    first = []
    for _ in range(2):
        build_task_matrices.main("default")
        first.append([file_md5(OUTPUT / name) for name in ("factors.safetensors", "energies.parquet")])
    assert first[0] == first[1]


def test_the_start_matters_and_a_base_may_be_named(params):
    written = []
    for start, base in (("base", None), ("target", None), ("base", "models/target")):
        params.build_task_matrices = replace(params.build_task_matrices, start=start, base=base, modules=("down_proj",))
        build_task_matrices.main("default")
        written.append(file_md5(OUTPUT / "factors.safetensors"))
    assert written[0] != written[1] == written[2]


def test_a_published_target_needs_its_base_named(params):
    published = params.train_target.model.model_copy(update={"source": "models/target", "untrained": True})
    params.train_target = params.train_target.model_copy(update={"model": published})
    params.build_task_matrices = replace(params.build_task_matrices, start="base")
    with pytest.raises(ValueError, match=r"name the model it was trained from as build_task_matrices\.base"):
        build_task_matrices.main("default")


def test_the_retain_sample_never_measures_utility(training_checkout):
    rows = training_rows()
    assert set(retain_sample(rows, 100, seed=0)["id"]) == set(range(9))
    few, fewer = (set(retain_sample(rows, count, seed=0)["id"]) for count in (5, 3))
    assert len(few) == 5
    assert fewer < few
    with pytest.raises(ValueError, match="every retained row measures utility"):
        retain_sample(rows.filter("utility"), 3, seed=0)


def test_parameters_out_of_range_are_refused():
    with pytest.raises(ValueError, match=r"build_task_matrices\.rank is 0"):
        TaskMatrices(rank=0)
    with pytest.raises(ValueError, match=r"build_task_matrices\.energy is 1\.5"):
        TaskMatrices(energy=1.5)
