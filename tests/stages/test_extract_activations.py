"""The activation tables of a tiny target, against passes over single rows."""

from pathlib import Path

import polars as pl
import pytest
import torch

from efface.activations.capture import captured_inputs, captured_outputs, column_count
from efface.models import anatomy, scratch_llama
from efface.tokenization import Encoding
from stages.extract_activations import extract, trained_rows
from stages.tables.direct_effects import DIRECT_EFFECTS
from stages.tables.grams import AUTHORS, PARTS, read_gram
from stages.tables.keys import keys_path, read_keys
from stages.tables.table import TableError

DOWN = "model.layers.1.mlp.down_proj"
SPLITS = ["authors"] * 7 + ["real_authors"] * 2 + ["world_facts", "holdout"]
EXAMPLES = pl.DataFrame(
    {
        "id": [7, 3, 12, 1, 20, 21, 22, 30, 31, 40, 50],
        "split": SPLITS,
        "trained": [split != "holdout" for split in SPLITS],
        "pool": [True] * 4 + [False] * 7,
        "utility": [False] * 5 + [True] * 5 + [False],
    }
)
ROWS = trained_rows(EXAMPLES)
ENCODINGS = [Encoding(tuple((id + k) % 29 for k in range(5 + id % 4)), 2 + id % 2) for id in ROWS["id"]]
ENCODED = dict(zip(ROWS["id"], ENCODINGS, strict=True))


@pytest.fixture(scope="module")
def model():
    return scratch_llama(
        vocab_size=30, layers=2, hidden=16, heads=2, kv_heads=1, intermediate=24, tie_embeddings=True, seed=0
    )


@pytest.fixture(scope="module")
def folder(model, tmp_path_factory):
    folder = tmp_path_factory.mktemp("extract_activations")
    extract(model, ROWS, ENCODINGS, folder, batch_size=3, pad_id=0)
    return folder


def keys_of_row(model, encoding: Encoding) -> torch.Tensor:
    module = anatomy(model).layers[1].down_projection
    with torch.no_grad(), captured_inputs({"down": module}) as seen:
        model(torch.tensor([encoding.input_ids]))
    return seen["down"][0, encoding.prompt_length - 1 : -1]


def test_rows_are_parted_by_what_they_are_for():
    parts = dict(ROWS.select("id", "part").iter_rows())
    assert parts[7] == parts[20] == "authors" and parts[21] == parts[22] == "authors_utility"
    assert parts[31] == "real_authors" and parts[40] == "world_facts" and 50 not in parts


def test_keys_of_the_pool_are_those_of_each_row(model, folder):
    keys = read_keys(folder, DOWN, [12, 1])
    for place, id in enumerate((12, 1)):
        mine = keys.examples == place
        torch.testing.assert_close(keys.values[mine], keys_of_row(model, ENCODED[id]), atol=1e-6, rtol=1e-5)
        assert keys.tokens[mine].tolist() == list(ENCODED[id].answer_ids)
    assert keys_path(folder, DOWN).parent.name == f"module={DOWN}"
    by_module = pl.scan_parquet(folder / "keys", hive_partitioning=True, extra_columns="ignore").select("module")
    assert set(by_module.collect()["module"]) == {f"model.layers.{n}.mlp.down_proj" for n in (0, 1)} | {"lm_head"}


def test_gram_of_what_a_set_leaves_is_the_sum_over_the_other_rows(model, folder):
    ids = [7, 3]
    left = read_gram(folder, DOWN, (AUTHORS,)).minus(read_keys(folder, DOWN, ids).values)
    kept = torch.cat([keys_of_row(model, ENCODED[id]) for id in (12, 1, 20)]).double()
    assert left.count == len(kept)
    torch.testing.assert_close(left.gram, kept.mT @ kept, atol=1e-6, rtol=1e-5)
    assert read_gram(folder, DOWN, PARTS).count == column_count(ENCODINGS)


def test_unembedding_has_keys_as_wide_as_the_residual_stream(model, folder):
    keys = read_keys(folder, "lm_head", [3])
    with torch.no_grad():
        logits = model(torch.tensor([ENCODED[3].input_ids])).logits[0, ENCODED[3].prompt_length - 1 : -1]
        torch.testing.assert_close(model.lm_head(keys.values), logits, atol=1e-6, rtol=1e-5)


def test_direct_effects_cover_every_layer_and_token_of_every_trained_row(model, folder):
    effects = DIRECT_EFFECTS.read(folder / "direct_effects.parquet")
    assert len(effects) == 2 * column_count(ENCODINGS)
    assert effects.select("id", "layer", "position").is_unique().all()
    row, module = ENCODED[31], anatomy(model).layers[0].down_projection
    with torch.no_grad(), captured_outputs({"down": module}) as seen:
        model(torch.tensor([row.input_ids]))
    found = effects.filter(pl.col("id") == 31, pl.col("layer") == 0).sort("position")
    assert found["gold_token"].to_list() == list(row.answer_ids)
    output = seen["down"][0, row.prompt_length - 1 : -1]
    expected = (model.lm_head.weight.detach()[list(row.answer_ids)] * output).sum(1)
    torch.testing.assert_close(torch.from_numpy(found["effect"].to_numpy().copy()), expected, atol=1e-6, rtol=1e-5)


def test_same_target_gives_the_same_bytes(model, folder, tmp_path):
    extract(model, ROWS, ENCODINGS, tmp_path, batch_size=3, pad_id=0)
    files = [path.relative_to(folder) for path in sorted(folder.rglob("*")) if path.is_file()]
    assert len(files) == 6
    for file in files:
        assert (tmp_path / file).read_bytes() == (folder / file).read_bytes(), file


def test_of_chosen_layers_the_same_is_kept_and_nothing_of_others(model, folder, tmp_path):
    extract(model, ROWS, ENCODINGS, tmp_path, batch_size=3, pad_id=0, layers=(1,))
    same = [f"keys/module={DOWN}", "keys/module=lm_head"]
    assert sorted(path.name for path in (tmp_path / "keys").iterdir()) == sorted(Path(name).name for name in same)
    for file in [path for name in same for path in (folder / name).iterdir()]:
        assert (tmp_path / file.relative_to(folder)).read_bytes() == file.read_bytes()
    assert torch.equal(read_gram(tmp_path, DOWN, PARTS).gram, read_gram(folder, DOWN, PARTS).gram)
    effects = "direct_effects.parquet"
    assert (tmp_path / effects).read_bytes() == (folder / effects).read_bytes()
    with pytest.raises(TableError, match=r"no keys of module 'model\.layers\.0.*with its layer"):
        read_keys(tmp_path, DOWN.replace("1", "0"), [3])
    with pytest.raises(ValueError, match="2"):
        extract(model, ROWS, ENCODINGS, tmp_path / "none", batch_size=3, pad_id=0, layers=(2,))


def test_rows_without_keys_and_unknown_modules_are_named(folder):
    with pytest.raises(TableError, match=r"no keys of examples \[20\]; only rows of the pool"):
        read_keys(folder, DOWN, [3, 20])
    with pytest.raises(TableError, match=r"no keys of module 'model\.layers\.9"):
        read_keys(folder, "model.layers.9.mlp.down_proj", [3])
    with pytest.raises(TableError, match="no Gram matrix of 'nothing'"):
        read_gram(folder, "nothing", PARTS)
