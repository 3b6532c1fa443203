"""Unfinished work survives a failure, and only the same run finds it again."""

import pytest

from stages.scratch import scratch_folder


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "efface").mkdir()
    (tmp_path / "efface" / "code.py").write_text("x = 1\n")
    (tmp_path / "input").write_text("rows")
    return tmp_path


def fail_after_writing(params):
    with pytest.raises(RuntimeError), scratch_folder("train", None, params, ["input"]) as folder:
        (folder / "epoch_1").write_text("weights")
        raise RuntimeError("killed")


def found(params) -> bool:
    with scratch_folder("train", None, params, ["input"]) as folder:
        return (folder / "epoch_1").exists()


def test_same_run_resumes(checkout):
    fail_after_writing({"epochs": 2})
    assert found({"epochs": 2})


def test_finished_run_leaves_nothing(checkout):
    fail_after_writing({"epochs": 2})
    assert found({"epochs": 2})
    assert not found({"epochs": 2})


@pytest.mark.parametrize("changed", ["params", "input", "code"])
def test_changed_run_starts_anew(checkout, changed):
    fail_after_writing({"epochs": 2})
    if changed == "input":
        (checkout / "input").write_text("other rows")
    if changed == "code":
        (checkout / "efface" / "code.py").write_text("x = 2\n")
    assert not found({"epochs": 3 if changed == "params" else 2})


def test_missing_input_is_named(checkout):
    with (
        pytest.raises(FileNotFoundError, match="absent: input of the stage not found"),
        scratch_folder("a", None, {}, ["absent"]),
    ):
        pass
