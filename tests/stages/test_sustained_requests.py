"""Three deletion requests, one after the other, on a small model that has learnt its rows."""

from pathlib import Path
from types import SimpleNamespace

import polars as pl
import pytest
import torch

from efface.editing.grom import Grom
from efface.models import load_model, load_tokenizer, save_model, scratch_llama
from efface.tokenization import padding_id
from efface.training.loop import answer_loss, finetune, shuffled_batches
from efface.unlearning.ascent import GradAscent
from stages import sustained_requests
from stages.encoded_rows import encoded_rows
from stages.params import Compare, Evaluate, SustainedItem
from stages.tables.anchors import ANCHORS
from stages.tables.sustained import SUSTAINED
from stages.training import training_rows

FOLDER = Path("data/sustained_requests/grom")


@pytest.fixture
def params(training_checkout: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    tokenizer = load_tokenizer("data/prepare_data/tokenizer")
    model = scratch_llama(
        vocab_size=len(tokenizer),
        layers=2,
        hidden=32,
        heads=4,
        kv_heads=2,
        intermediate=48,
        tie_embeddings=True,
        seed=0,
    )
    rows = encoded_rows(training_rows(), tokenizer, training_checkout.tokenization)
    batches = shuffled_batches(rows, batch_size=6, pad_id=padding_id(tokenizer), seed=0)
    finetune(model, batches, answer_loss, epochs=100, learning_rate=1e-2, seed=0)
    save_model(model, "models/target")
    anchor = {"id": [0], "role": ["easy"], "source": ["all"], "agreed": [True], "votes": [2], "mean_rank": [0.0]}
    ANCHORS.write("data/select_anchors/anchors.parquet", pl.DataFrame(anchor))
    training_checkout.edit = {
        "grom": Grom(layers=(0, 1), beta=60.0, retain_weight=5.0, ridge=0.01),
        "one_shot": Grom(layers=(0, 1), sequential=False),
        "grad_ascent": GradAscent(learning_rate=1e-3, epochs=2, gradient_accumulation=1),
    }
    common = {"set": "default", "base": "models/target", "reads": "models/target", "requests": 3}
    training_checkout.sustained = {name: SustainedItem(edit=name, **common) for name in training_checkout.edit}
    training_checkout.evaluate = Evaluate(batch_size=8, max_new_tokens=4)
    training_checkout.compare = Compare(bootstrap=20)
    monkeypatch.setattr(sustained_requests, "load_params", lambda: training_checkout)
    return training_checkout


def test_each_request_is_forgotten_when_it_comes(params):
    sustained_requests.main("grom")
    curve = pl.read_csv(FOLDER / "curve.csv")
    assert curve["request"].to_list() == [0, 1, 2, 3]
    assert curve["p_forget"][0] > 0.8
    assert (curve["p_first"][1:] < curve["p_first"][0] / 2).all(), "a forgotten request stays forgotten"
    assert curve["p_pending"].is_null().to_list() == [False, False, False, True]
    found = SUSTAINED.read(FOLDER / "measurements.parquet")
    rows = found.filter(split="forget", metric="probability").sort("request")
    assert rows["n"].to_list() == [3, 1, 2, 3]
    assert rows["value"][0] == pytest.approx(curve["p_forget"][0])


def test_the_first_request_is_one_ordinary_edit(params):
    """The same editor on the same rows, run through the edit stage's own parts."""
    from efface.editing.delta import apply_delta
    from stages.edit import asked, sides
    from stages.edit_task import EditTask
    from stages.editors import edit_outcome

    requests = sustained_requests.split_requests([2, 5, 7], 3, seed=0)
    rows, tokenizer = training_rows(), load_tokenizer("data/prepare_data/tokenizer")
    now = pl.col("id").is_in(requests[0])
    frames = sides(rows.filter(now), rows.filter(~now))
    encoded = {
        side: dict(zip(frame["id"], encoded_rows(frame, tokenizer, params.tokenization), strict=True))
        for side, frame in frames.items()
    }
    expected = load_model("models/target")
    texts = asked(frames["forget"], tokenizer, params.tokenization)
    task = EditTask(expected, **encoded, reads=Path("models/target"), seed=0, pad_id=padding_id(tokenizer), asked=texts)
    apply_delta(expected, edit_outcome(params.edit["grom"], task).delta)
    found = load_model("models/target")
    sustained_requests._carry_out(found, requests, 1, "grom", params, Path("."))
    for name, value in expected.state_dict().items():
        torch.testing.assert_close(found.state_dict()[name], value, msg=name)


def test_rows_of_earlier_requests_are_not_retained(params, monkeypatch):
    tasks = []
    monkeypatch.setattr(
        sustained_requests, "edit_outcome", lambda edit, task: tasks.append(task) or SimpleNamespace(delta={})
    )
    sustained_requests.main("grom")
    forgotten = [set(task.forget) for task in tasks]
    assert len(set.union(*forgotten)) == 3
    for place, task in enumerate(tasks):
        assert not set(task.retain) & set.union(*forgotten[: place + 1])
        assert set.union(*forgotten[place + 1 :], set()) <= set(task.retain), "pending rows are retained"


@pytest.mark.parametrize("series", ["grom", "grad_ascent"])
def test_a_killed_series_goes_on_and_gives_the_same_bytes(params, monkeypatch, series):
    folder = Path("data/sustained_requests") / series
    sustained_requests.main(series)
    whole = {path.name: path.read_bytes() for path in folder.iterdir()}
    work, calls = sustained_requests._carry_out, []

    def dies(*args):
        calls.append(args[2])
        if len(calls) == 2:
            raise KeyboardInterrupt
        work(*args)

    monkeypatch.setattr(sustained_requests, "_carry_out", dies)
    with pytest.raises(KeyboardInterrupt):
        sustained_requests.main(series)
    sustained_requests.main(series)
    assert calls == [1, 2, 2, 3]
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == whole


def test_what_cannot_be_carried_out_is_named(params):
    with pytest.raises(ValueError, match="edit one_shot reads task matrices or keys of the unedited base"):
        sustained_requests.main("one_shot")
    with pytest.raises(ValueError, match="no such series"):
        sustained_requests.main("rmu")
    with pytest.raises(ValueError, match="4 requests of 3 examples"):
        sustained_requests.split_requests([2, 5, 7], 4, seed=0)
