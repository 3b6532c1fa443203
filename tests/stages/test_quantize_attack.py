"""The attack on a target, on a retained model and on an edit of a small checkout."""

from pathlib import Path
from types import SimpleNamespace

import polars as pl
import pytest
import torch

from efface.editing.delta import save_delta
from efface.models import WEIGHTS, file_md5, load_model, load_tokenizer, save_model, scratch_llama
from stages import evaluate, quantize_attack
from stages.params import Evaluate, ModelItem, QuantizeAttack
from stages.tables.quantized_weights import QUANTIZED_WEIGHTS
from stages.tables.results import RESULTS

EDITED = "model.layers.1.mlp.down_proj.weight"
SCHEMES = ("rtn_8", "nf4")
TARGET_WEIGHTS = Path("models/target") / WEIGHTS


@pytest.fixture
def params(training_checkout: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A random target, and a delta that reverses one matrix of it."""
    size = len(load_tokenizer("data/prepare_data/tokenizer"))
    target = scratch_llama(
        vocab_size=size, layers=2, hidden=32, heads=4, kv_heads=2, intermediate=48, tie_embeddings=True, seed=0
    )
    save_model(target, "models/target")
    delta = {EDITED: -2 * target.state_dict()[EDITED]}
    save_delta("models/edit/grom-default/delta.safetensors", delta, base_md5=file_md5(TARGET_WEIGHTS))
    training_checkout.models = {
        "target": ModelItem(base="models/target", weights="models/target"),
        "grom-default": ModelItem(base="models/target", weights="models/edit/grom-default", edit="grom", set="default"),
    }
    training_checkout.evaluate = Evaluate(batch_size=8, max_new_tokens=4)
    training_checkout.quantize_attack = QuantizeAttack(schemes=SCHEMES)
    for stage in (evaluate, quantize_attack):
        monkeypatch.setattr(stage, "load_params", lambda: training_checkout)
    return training_checkout


def read(model: str) -> tuple[pl.DataFrame, pl.DataFrame]:
    folder = Path("data/quantize_attack") / model
    return RESULTS.read(folder / "results.parquet"), QUANTIZED_WEIGHTS.read(folder / "weights.parquet")


def test_every_scheme_measures_what_evaluate_does(params):
    evaluate.main("target")
    quantize_attack.main("target")
    plain = RESULTS.read("data/evaluate/target/results.parquet").filter(~pl.col("metric").str.contains("rouge"))
    results, weights = read("target")
    assert weights.is_empty()
    assert results["quantization"].unique(maintain_order=True).to_list() == list(SCHEMES)
    for name in SCHEMES:
        rows = results.filter(pl.col("quantization") == name)
        assert rows.select("model", "id", "metric", "dtype").equals(plain.select("model", "id", "metric", "dtype"))
        assert (rows["value"] - plain["value"]).abs().max() > 0
    errors = [
        (results.filter(pl.col("quantization") == name)["value"] - plain["value"]).abs().sum() for name in SCHEMES
    ]
    assert errors[0] < errors[1]


def test_an_edit_says_what_is_left_of_it_and_leaves_its_base_alone(params):
    before = file_md5(TARGET_WEIGHTS)
    quantize_attack.main("grom-default")
    results, weights = read("grom-default")
    assert results["value"].is_finite().all()
    changed = weights.filter(pl.col("delta_norm") > 0)
    assert changed["module"].unique().to_list() == [EDITED.removesuffix(".weight")]
    assert changed["layer"].to_list() == [1, 1] and changed["scheme"].to_list() == list(SCHEMES)
    assert (changed["changed_code_share"] > 0.5).all()
    assert weights.group_by("scheme").len()["len"].to_list() == [14, 14]
    assert file_md5(TARGET_WEIGHTS) == before


def test_same_inputs_give_the_same_bytes(params):
    found = []
    for _ in range(2):
        quantize_attack.main("grom-default")
        found.append([path.read_bytes() for path in sorted(Path("data/quantize_attack/grom-default").iterdir())])
    assert found[0] == found[1]


def test_a_killed_attack_goes_on_at_its_next_scheme(params, monkeypatch):
    measured, results = [], quantize_attack.results

    def killed_at_the_second(item, model, name, *rest):
        if name == "nf4" and len(measured) == 1:
            measured.append("killed")
            raise KeyboardInterrupt
        measured.append(name)
        return results(item, model, name, *rest)

    monkeypatch.setattr(quantize_attack, "results", killed_at_the_second)
    with pytest.raises(KeyboardInterrupt):
        quantize_attack.main("target")
    quantize_attack.main("target")
    assert measured == ["rtn_8", "killed", "nf4"]
    assert read("target")[0]["quantization"].n_unique() == 2


def test_answers_are_generated_on_demand(params):
    params.quantize_attack = QuantizeAttack(schemes=("rtn_8",), generate=True)
    quantize_attack.main("target")
    assert "rougeL_recall" in read("target")[0]["metric"]


def test_without_schemes_the_tables_are_empty(params):
    params.quantize_attack = QuantizeAttack(schemes=())
    quantize_attack.main("grom-default")
    assert all(table.is_empty() for table in read("grom-default"))


def test_unknown_scheme_and_model_are_refused_by_name(params):
    with pytest.raises(ValueError, match=r"grom-hard.*params\.models has target, grom-default"):
        quantize_attack.main("grom-hard")
    params.quantize_attack = QuantizeAttack(schemes=("rtn_8", "gptq"))
    with pytest.raises(ValueError, match="'gptq' is unknown"):
        quantize_attack.main("target")


def test_a_quantized_model_that_is_not_finite_names_the_weight(params):
    model = load_model("models/target")
    torch.nn.init.constant_(model.model.layers[0].mlp.up_proj.weight, torch.inf)
    save_model(model, "models/target")
    with pytest.raises(ValueError, match="not finite"):
        quantize_attack.main("target")
