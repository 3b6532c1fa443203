"""Deletion requests dropped into a folder of the toy checkout: batch after batch, down to what is certified."""

import json
from pathlib import Path

import polars as pl
import pytest
from toy_checkout import command, toy_checkout

from flows.certificates import batches

pytestmark = pytest.mark.services
HASHES = [f"{number:064x}" for number in range(4)]
NAME = "efface-toy-grom"


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return toy_checkout(tmp_path_factory.mktemp("deletion") / "checkout")


@pytest.fixture
def inbox(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.chdir(checkout)
    folder = checkout.parent / "requests"
    folder.mkdir(exist_ok=True)
    return folder


def run(capfd: pytest.CaptureFixture, *arguments: str) -> tuple[int, str]:
    """The exit code and what was printed."""
    from flows.deletion_request import main

    return main([*arguments, *(["--edit", "grom"] if "--edit" not in arguments else [])]), capfd.readouterr().out


def certificate(inbox: Path, batch: dict, number: int) -> dict:
    return json.loads((inbox / "certificates" / batch["batch"] / f"{HASHES[number]}.json").read_text())


def test_good_requests_are_carried_out_and_the_others_refused_by_name(checkout: Path, inbox: Path, capfd) -> None:
    lines = [
        {"request": "r2", "content_hash": HASHES[2]},
        {"request": "malformed", "content_hash": "../" + HASHES[1]},
        {"request": "again", "content_hash": HASHES[2]},
        {"request": "stranger", "content_hash": "f" * 64},
        {"request": "r1 | <b>", "content_hash": HASHES[1]},
    ]
    (inbox / "first.jsonl").write_text("\n".join(json.dumps(line) for line in lines) + "\nno json")
    (inbox / "half.parquet").write_bytes(b"PAR1")
    code, printed = run(capfd, str(inbox))
    assert code == 1 and "the other files are dealt with, but half.parquet" in printed
    (inbox / "half.parquet").unlink()

    (batch,) = batches(inbox)
    assert [each["request"] for each in batch["accepted"]] == ["r2", "r1 | <b>"]
    assert {each["request"]: each["reason"].partition(":")[0] for each in batch["refused"]} == {
        "malformed": "malformed",
        "": "malformed",
        "again": "duplicate",
        "stranger": "unknown",
    }
    assert batch["standing"] == [HASHES[1], HASHES[2]] and batch["model"] == f"{NAME}/1"
    found = certificate(inbox, batch, 2)
    assert (found["request"], found["action"], found["model"]) == ("r2", "delete", f"{NAME}/1")
    assert found["difficulty"] == {"cud": 0.75, "harder_than": pytest.approx(2 / 3)}
    assert found["influence_on_the_edit"] == {"model.layers.0.mlp.down_proj": 0.5}
    assert (found["probability_before"], found["probability_after"]) == (0.9, 0.1)
    assert found["attacks"]["rtn_4"] == {"probability": 0.3, "recovery": pytest.approx(0.25)}
    assert "recovery after rtn_4 0.25 is 0.15 above 0.1" in found["promotion"] and found["missing"] == []
    assert len(found["lineage_sha256"]) == 64 and found["parent"] == "efface-toy-target/1"
    assert len(list((inbox / "certificates").rglob("*.json"))) == 3
    assert command(checkout, "git", "status", "--porcelain") == ""

    # The commit that the version names holds the lock that it was made from.
    lock = command(checkout, "git", "show", f"{found['git_commit']}:dvc.lock")
    assert "accept_requests@standing" in lock and f"runs/{found['flow_run']}" in command(checkout, "git", "branch")
    tree = json.loads(command(checkout, "python", "-m", "flows.lineage", f"{NAME}/1", "--json"))
    assert "accept_requests@standing" in tree["steps"]["data and forget set"] and tree["gaps"] == []


def test_nothing_new_is_skipped(inbox: Path, capfd) -> None:
    code, printed = run(capfd, str(inbox))
    assert code == 0 and "no request is new" in printed
    assert len(batches(inbox)) == 1


def test_a_later_batch_adds_and_withdraws(checkout: Path, inbox: Path, capfd) -> None:
    rows = [
        {"request": "r3", "action": "delete", "content_hash": HASHES[3]},
        {"request": "r1 back", "action": "withdraw", "content_hash": HASHES[1]},
        {"request": "r0 back", "action": "withdraw", "content_hash": HASHES[0]},
        {"request": "r2 twice", "action": "delete", "content_hash": HASHES[2]},
    ]
    pl.DataFrame(rows).write_parquet(inbox / "second.parquet")
    code, printed = run(capfd, str(inbox))
    assert code == 0
    assert "refused r0 back (second.parquet, 3): unknown" in printed and "stands already" in printed
    _, batch = batches(inbox)
    assert batch["standing"] == [HASHES[2], HASHES[3]] and batch["withdrawn"] == [1]
    assert (batch["model"], batch["supersedes"]) == (f"{NAME}/2", f"{NAME}/1")
    assert certificate(inbox, batch, 1)["action"] == "withdraw" and certificate(inbox, batch, 3)["model"] == f"{NAME}/2"
    forgotten = json.loads(command(checkout, "python", "-m", "flows.lineage", "--example", "1", "--json"))
    assert [each["model"] for each in forgotten] == [f"{NAME}/1"]


def test_when_nothing_stands_the_target_is_the_model_again(inbox: Path, capfd) -> None:
    lines = [{"request": str(i), "action": "withdraw", "content_hash": HASHES[i]} for i in (2, 3)]
    (inbox / "third.jsonl").write_text("\n".join(map(json.dumps, lines)))
    assert run(capfd, str(inbox))[0] == 0
    batch = batches(inbox)[-1]
    assert batch["standing"] == [] and batch["model"] is None and batch["supersedes"] == f"{NAME}/2"
    assert certificate(inbox, batch, 2)["model"] is None


def test_unusable_calls_are_named(inbox: Path, capfd) -> None:
    code, printed = run(capfd, str(inbox / "nowhere"))
    assert code == 1 and "no such folder; make it" in printed
    (inbox / "fourth.jsonl").write_text(json.dumps({"request": "r", "content_hash": HASHES[0]}))
    code, printed = run(capfd, str(inbox), "--edit", "rmu")
    assert code == 1 and "edit 'rmu': not among this profile's edits, which are grom" in printed
    assert len(batches(inbox)) == 3
