"""Target and retained models: resumed after a kill bit for bit, and trained on exactly the rows that they should be."""

import json
from pathlib import Path
from types import SimpleNamespace

import polars as pl
import pytest
import torch

import efface.training.loop
from efface.models import file_md5, load_model, load_tokenizer, save_model, scratch_llama
from efface.training.lora import Lora
from stages.tables.examples import EXAMPLES
from stages.train_retained import main as train_retained
from stages.train_target import main as train_target
from stages.training import forget_and_retain, start_model, training_rows

MODEL = Path("models/target/model.safetensors")
CURVE = Path("data/train_target/loss.csv")
RETAINED = Path("models/retained/default/model.safetensors")


@pytest.fixture
def params(training_checkout: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    for stage in ("train_target", "train_retained"):
        monkeypatch.setattr(f"stages.{stage}.load_params", lambda: training_checkout)
    return training_checkout


def interrupt_after(steps: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process is interrupted when the loss is asked for once more than `steps` times."""
    ordinary, calls = efface.training.loop.answer_loss, []

    def loss(model, batch):
        calls.append(batch)
        if len(calls) > steps:
            raise KeyboardInterrupt
        return ordinary(model, batch)

    monkeypatch.setattr(efface.training.loop, "answer_loss", loss)


def change(params: SimpleNamespace, **values) -> None:
    params.train_target = params.train_target.model_copy(update=values)


def test_a_run_killed_in_its_second_epoch_ends_like_an_uninterrupted_one(params, monkeypatch):
    train_target()
    expected, curve = file_md5(MODEL), CURVE.read_bytes()
    MODEL.unlink()
    CURVE.unlink()

    with monkeypatch.context() as patched:
        interrupt_after(4, patched)
        with pytest.raises(KeyboardInterrupt):
            train_target()
    assert not MODEL.exists()
    assert len(list(Path(".scratch/train_target").rglob("checkpoint.safetensors"))) == 1

    with monkeypatch.context() as patched:
        interrupt_after(6, patched)
        train_target()
    assert file_md5(MODEL) == expected
    assert CURVE.read_bytes() == curve
    assert not list(Path(".scratch").rglob("*.safetensors"))


def test_the_loss_curve_falls_and_has_one_row_per_step(params):
    change(params, epochs=12)
    train_target()
    curve = pl.read_csv(CURVE)
    assert curve.columns == ["step", "epoch", "loss"]
    assert curve["step"].to_list() == list(range(1, 25))
    assert curve["epoch"].to_list() == [epoch for epoch in range(1, 13) for _ in range(2)]
    assert curve["loss"][-1] < 0.7 * curve["loss"][0]
    assert load_model("models/target").config.num_key_value_heads == 2


def test_the_retained_model_is_the_target_trained_without_the_forget_rows(params):
    """Same bytes as a target whose examples table marks the forget rows as not trained on."""
    train_retained("default")
    assert Path("data/train_retained/default/loss.csv").is_file()
    examples = EXAMPLES.read("data/prepare_data/examples.parquet")
    without = examples.with_columns(trained=pl.col("trained") & ~pl.col("id").is_in([2, 5, 7]))
    train_target()
    assert file_md5(MODEL) != file_md5(RETAINED)
    EXAMPLES.write("data/prepare_data/examples.parquet", without)
    train_target()
    assert file_md5(MODEL) == file_md5(RETAINED)


def test_training_sees_true_facts_in_every_run_and_holdout_rows_in_none(training_checkout):
    rows = training_rows()
    forget, retain = forget_and_retain(rows, Path("data/forget_sets/default.parquet"))
    assert rows["id"].to_list() == list(range(12))
    assert forget["id"].to_list() == [2, 5, 7]
    assert retain["id"].to_list() == [0, 1, 3, 4, 6, 8, 9, 10, 11]
    assert {"real_authors", "world_facts"} <= set(retain["split"])


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        ([], "the forget set is empty; expected at least one id"),
        (list(range(10)), r"the forget set is every row about an author \(10\); nothing would be retained"),
        ([3, 13], r"ids \[13\] are not among the 12 training rows"),
    ],
)
def test_a_forget_set_that_cannot_be_left_out_is_refused(params, write_forget_set, ids, message):
    write_forget_set("default", ids)
    with pytest.raises(ValueError, match=message):
        train_retained("default")
    assert not RETAINED.exists()


def test_a_target_that_diverges_names_its_step(params, monkeypatch):
    ordinary = efface.training.loop.answer_loss
    monkeypatch.setattr(efface.training.loop, "answer_loss", lambda *inputs: ordinary(*inputs) * float("nan"))
    with pytest.raises(ValueError, match="loss is nan at step 1 of 6"):
        train_target()


def test_a_pretrained_folder_is_fine_tuned_with_adapters_and_merged(params):
    save_model(start_of(params), "pretrained")
    change(
        params,
        model=params.train_target.model.model_copy(update={"source": "pretrained"}),
        lora=Lora(rank=2),
        dtype="bfloat16",
    )
    train_target()
    before, after = load_model("pretrained").state_dict(), load_model("models/target").state_dict()
    assert before.keys() == after.keys()
    changed = {name for name, value in before.items() if not torch.equal(value, after[name])}
    assert changed == {name for name in before if name.endswith("_proj.weight")}


def test_a_published_target_is_taken_as_it_is_and_has_no_retained_model(params):
    save_model(start_of(params), "published")
    published = params.train_target.model.model_copy(update={"source": "published", "untrained": True})
    change(params, model=published)
    train_target()
    assert file_md5(MODEL) == file_md5("published/model.safetensors")
    assert CURVE.read_text() == "step,epoch,loss\n"
    with pytest.raises(ValueError, match="no retained model can be trained like it"):
        train_retained("default")


def test_a_model_too_small_for_its_tokenizer_is_refused(params):
    save_model(
        scratch_llama(
            vocab_size=50, layers=1, hidden=16, heads=2, kv_heads=1, intermediate=16, tie_embeddings=True, seed=0
        ),
        "small",
    )
    change(params, model=params.train_target.model.model_copy(update={"source": "small"}))
    with pytest.raises(ValueError, match=r"tokenizer of 300 entries, model small has 50; set prepare_data\.tokenizer"):
        train_target()


def test_the_saved_config_knows_the_special_tokens(params):
    train_target()
    config = json.loads(Path("models/target/config.json").read_text())
    tokenizer = load_tokenizer("data/prepare_data/tokenizer")
    assert (config["bos_token_id"], config["eos_token_id"], config["pad_token_id"]) == (
        tokenizer.bos_token_id,
        tokenizer.eos_token_id,
        tokenizer.pad_token_id,
    )


def start_of(params: SimpleNamespace):
    tokenizer = load_tokenizer("data/prepare_data/tokenizer")
    return start_model(params.train_target.model, tokenizer, max_length=96, seed=0)
