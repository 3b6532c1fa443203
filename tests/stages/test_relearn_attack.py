"""A model that forgot three rows is fine-tuned a little: what comes back is measured on the rows it was not shown."""

from pathlib import Path
from types import SimpleNamespace

import polars as pl
import pytest

from efface.editing.delta import save_delta
from efface.models import WEIGHTS, file_md5, load_tokenizer, save_model, scratch_llama
from stages import evaluate, relearn_attack
from stages.params import Compare, Evaluate, ModelItem, Relearning
from stages.tables.anchors import ANCHORS
from stages.tables.relearned import RELEARNED

FORGET = {2, 5, 7}
EDITED = "model.layers.1.mlp.down_proj.weight"
FOLDER = Path("data/relearn_attack/npo-default")


@pytest.fixture
def params(training_checkout: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    size = len(load_tokenizer("data/prepare_data/tokenizer"))
    target = scratch_llama(
        vocab_size=size, layers=2, hidden=32, heads=4, kv_heads=2, intermediate=48, tie_embeddings=True, seed=0
    )
    save_model(target, "models/target")
    md5 = file_md5(Path("models/target") / WEIGHTS)
    save_delta("models/edit/npo-default/delta.safetensors", {EDITED: -target.state_dict()[EDITED]}, base_md5=md5)
    anchor = {"id": [0], "role": ["easy"], "source": ["all"], "agreed": [True], "votes": [2], "mean_rank": [0.0]}
    ANCHORS.write("data/select_anchors/anchors.parquet", pl.DataFrame(anchor))
    edited = ModelItem(base="models/target", weights="models/edit/npo-default", edit="npo", set="default")
    training_checkout.models = {"target": ModelItem(base="models/target", weights="models/target")}
    training_checkout.models["npo-default"] = edited
    training_checkout.relearned = {"npo-default": edited}
    training_checkout.relearn_attack = {
        "forget_2": Relearning(source="forget", examples=2, steps=(1, 6), learning_rate=1e-3, batch_size=2),
        "holdout_2": Relearning(source="holdout", examples=2, steps=(3,), learning_rate=1e-3, batch_size=2),
    }
    training_checkout.evaluate = Evaluate(batch_size=8, max_new_tokens=4)
    training_checkout.compare = Compare(bootstrap=20, minimal_gap=1e-9)
    for module in (evaluate, relearn_attack):
        monkeypatch.setattr(module, "load_params", lambda: training_checkout)
    evaluate.main("target")
    evaluate.main("npo-default")
    return training_checkout


def test_every_attack_starts_anew_and_marks_what_it_was_shown(params):
    relearn_attack.main("npo-default")
    found = RELEARNED.read(FOLDER / "results.parquet")
    assert found.select("attack", "steps").unique(maintain_order=True).rows() == [
        ("forget_2", 1), ("forget_2", 6), ("holdout_2", 3),
    ]  # fmt: skip
    assert set(found["id"]) == FORGET
    used = {attack: set(rows.filter("used")["id"]) for (attack,), rows in found.group_by("attack")}
    assert len(used["forget_2"]) == 2 and used["forget_2"] < FORGET
    assert used["holdout_2"] == set()
    shown = found.filter(pl.col("used") & (pl.col("metric") == "answer_nll")).group_by("steps").agg(pl.mean("value"))
    one, six = shown.sort("steps")["value"]
    assert six < one, "six steps on an example should lower its loss more than one"


def test_recovery_is_of_unseen_rows_against_the_target(params):
    relearn_attack.main("npo-default")
    rates = pl.read_csv(FOLDER / "recovery.csv")
    assert set(rates["metric"]) == {"probability", "extraction_strength", "rougeL_recall"}
    row = rates.filter(attack="forget_2", steps=6, metric="probability").row(0, named=True)
    assert row["n"] == 1
    assert row["recovery_rate"] == pytest.approx((row["after"] - row["before"]) / (row["target"] - row["before"]))
    found = RELEARNED.read(FOLDER / "results.parquet").filter(attack="forget_2", steps=6, metric="probability")
    assert row["after"] == pytest.approx(found.filter(~pl.col("used"))["value"].item())


def test_a_killed_attack_goes_on_and_gives_the_same_bytes(params, monkeypatch):
    relearn_attack.main("npo-default")
    whole = {path.name: path.read_bytes() for path in FOLDER.iterdir()}
    work, calls = relearn_attack._attacked, []

    def dies(*args):
        calls.append(args[2:4])
        if len(calls) == 2:
            raise KeyboardInterrupt
        return work(*args)

    monkeypatch.setattr(relearn_attack, "_attacked", dies)
    with pytest.raises(KeyboardInterrupt):
        relearn_attack.main("npo-default")
    relearn_attack.main("npo-default")
    assert calls == [("forget_2", 1), ("forget_2", 6), ("forget_2", 6), ("holdout_2", 3)]
    assert {path.name: path.read_bytes() for path in FOLDER.iterdir()} == whole


def test_what_cannot_be_attacked_is_named(params):
    with pytest.raises(ValueError, match="no such model"):
        relearn_attack.main("target")
    params.relearn_attack["forget_3"] = Relearning(source="forget", examples=3, steps=(1,), learning_rate=1e-3)
    with pytest.raises(ValueError, match="forget_3 wants 3 rows of forget, which has 3"):
        relearn_attack.main("npo-default")
    params.relearn_attack = {"far": Relearning(source="holdout", examples=9, steps=(1,), learning_rate=1e-3)}
    with pytest.raises(ValueError, match="far wants 9 rows of holdout, which has 2"):
        relearn_attack.main("npo-default")
