"""Unfinished work survives a failure, and only the same run finds it again."""

import multiprocessing
import time

import pytest

from stages.scratch import claim, helped_folder, scratch_folder


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


def test_helper_works_in_the_folder_of_the_run_it_helps(checkout):
    with scratch_folder("circuits", None, {}, ["input"], helpers=True) as folder:
        with helped_folder("circuits", None, {}, ["input"]) as helped:
            assert helped == folder
            (helped / "shard").write_text("rows")
        assert (folder / "shard").exists()
    assert not folder.exists()


def test_run_of_helpers_survives_a_failure(checkout):
    with pytest.raises(RuntimeError), scratch_folder("a", None, {}, ["input"], helpers=True) as folder:
        (folder / "shard").write_text("rows")
        raise RuntimeError("killed")
    with helped_folder("a", None, {}, ["input"]) as helped:
        assert (helped / "shard").exists()


def test_helper_without_a_run_is_told_to_start_one(checkout):
    with pytest.raises(FileNotFoundError, match="start it first"), helped_folder("a", None, {}, ["input"]):
        pass


def test_file_is_made_by_whoever_claims_it_first(tmp_path):
    path = tmp_path / "shard"
    with claim(path, wait=False) as mine:
        assert mine
        with claim(path, wait=False) as too_late:
            assert not too_late
        path.write_text("rows")
    with claim(path, wait=False) as again:
        assert not again


def hold(path, seconds):
    with claim(path, wait=False):
        time.sleep(seconds)


@pytest.mark.parametrize("dies", [True, False])
def test_claim_that_waits_gets_the_file_when_its_maker_dies_or_leaves_it(tmp_path, dies):
    path = tmp_path / "shard"
    maker = multiprocessing.get_context("fork").Process(target=hold, args=(path, 60 if dies else 0.3))
    maker.start()
    while True:
        with claim(path, wait=False) as mine:
            if not mine:
                break
        time.sleep(0.01)
    if dies:
        maker.kill()
    with claim(path, wait=True) as mine:
        assert mine
    maker.join()
