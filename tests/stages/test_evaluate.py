"""One random model of a small checkout, measured on every row that it can be compared on."""

from pathlib import Path
from types import SimpleNamespace

import polars as pl
import pytest

from efface.editing.delta import save_delta
from efface.evaluation.suite import example_scores
from efface.models import WEIGHTS, file_md5, load_tokenizer, save_model, scratch_llama
from stages import evaluate
from stages.params import Evaluate, ModelItem
from stages.tables.results import RESULTS

EDITED = "model.layers.1.mlp.down_proj.weight"
RESULT = Path("data/evaluate/target/results.parquet")


@pytest.fixture
def params(training_checkout: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    size = len(load_tokenizer("data/prepare_data/tokenizer"))
    target = scratch_llama(
        vocab_size=size, layers=2, hidden=32, heads=4, kv_heads=2, intermediate=48, tie_embeddings=True, seed=0
    )
    save_model(target, "models/target")
    delta = {EDITED: -2 * target.state_dict()[EDITED]}
    md5 = file_md5(Path("models/target") / WEIGHTS)
    save_delta("models/edit/grom-default/delta.safetensors", delta, base_md5=md5)
    training_checkout.models = {
        "target": ModelItem(base="models/target", weights="models/target"),
        "grom-default": ModelItem(base="models/target", weights="models/edit/grom-default", edit="grom", set="default"),
        "npo-default": ModelItem(base="models/target", weights="models/edit/npo-default", edit="npo", set="default"),
    }
    training_checkout.evaluate = Evaluate(batch_size=8, max_new_tokens=4)
    monkeypatch.setattr(evaluate, "load_params", lambda: training_checkout)
    return training_checkout


def test_every_row_that_is_compared_is_measured(params):
    """The pool (0–7), the utility row 9, facts 10 and 11, the holdout 12 and 13; row 8 is only trained on."""
    evaluate.main("target")
    results = RESULTS.read(RESULT)
    assert results["id"].unique().to_list() == [0, 1, 2, 3, 4, 5, 6, 7, 9, 10, 11, 12, 13]
    assert results.select("model", "quantization", "dtype").unique().rows() == [("target", "none", "float32")]
    assert results["value"].is_finite().all()
    expected = {
        "answer_nll",
        "probability",
        "extraction_strength",
        "exact_memorization",
        "rougeL_recall",
        "rouge1_recall",
    }
    assert set(results["metric"]) == expected


def test_an_edit_is_measured_on_its_base(params):
    evaluate.main("target")
    evaluate.main("grom-default")
    edited = RESULTS.read("data/evaluate/grom-default/results.parquet")
    assert (edited["value"] - RESULTS.read(RESULT)["value"]).abs().max() > 0


def test_a_killed_run_goes_on_at_its_next_shard_with_the_same_bytes(params, monkeypatch):
    """Shards of five rows; killed in the third, only the third is measured again."""
    monkeypatch.setattr(evaluate, "SHARD", 5)
    evaluate.main("target")
    whole = RESULT.read_bytes()
    RESULT.unlink()
    measured = []

    def counted(model, tokenizer, examples, **settings):
        measured.append(list(examples))
        if len(measured) == 3:
            raise KeyboardInterrupt
        return example_scores(model, tokenizer, examples, **settings)

    monkeypatch.setattr("efface.evaluation.suite.example_scores", counted)
    with pytest.raises(KeyboardInterrupt):
        evaluate.main("target")
    evaluate.main("target")
    assert measured[2:] == [[11, 12, 13]] * 2
    assert RESULT.read_bytes() == whole


def test_generation_can_be_left_out(params):
    params.evaluate = Evaluate(batch_size=8, max_new_tokens=4, generate=False)
    evaluate.main("target")
    assert RESULTS.read(RESULT).filter(pl.col("metric").str.contains("rouge")).is_empty()


def test_unknown_models_and_missing_weights_are_named(params):
    with pytest.raises(ValueError, match=r"'grom-hard'.*params\.models has target, grom-default"):
        evaluate.main("grom-hard")
    with pytest.raises(FileNotFoundError, match=r"'npo-default'.*models/edit/npo-default"):
        evaluate.main("npo-default")
    Path("models/edit/npo-default").mkdir()
    with pytest.raises(FileNotFoundError, match=r"npo-default holds no delta\.safetensors"):
        evaluate.main("npo-default")
