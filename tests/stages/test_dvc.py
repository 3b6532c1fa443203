"""`stages.dvc` leaves the very `dvc.lock` that DVC would."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from dvc.utils.serialize import dump_yaml, load_yaml, modify_yaml

from stages.dvc import HEAD, with_entries

ROOT = Path(__file__).parents[2]
DVC_YAML = """
stages:
  first:
    cmd: mkdir -p out && echo 1 > out/first
    params: [first]
    outs: [out/first]
  each:
    foreach: ${models}
    do:
      cmd: cp out/first out/${key} && echo ${item.note} >> out/${key}
      deps: [out/first]
      params: ["models.${key}"]
      outs: ["out/${key}"]
"""
PARAMS = """
first: 1.0e-5
models:
  a-b: {note: "yes", rate: 3.0e-3, layers: [0, 1, 2], searched: {target: 0.1, floor: null}}
  c: {note: 'a quote and a hash', flag: true, long: %s}
"""


def checkout(folder: Path) -> Path:
    folder.mkdir()
    (folder / "dvc.yaml").write_text(DVC_YAML)
    (folder / "params.yaml").write_text(PARAMS % ("word " * 60))
    run(folder, "dvc", "init", "-q", "--no-scm")
    return folder


def run(folder: Path, *module: str) -> str:
    environment = os.environ | {"PYTHONPATH": str(ROOT), "DVC_SITE_CACHE_DIR": str(folder / "state")}
    done = subprocess.run(
        [sys.executable, "-m", *module], cwd=folder, env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout


def test_lock_is_the_one_that_dvc_writes(tmp_path: Path) -> None:
    """From nothing, then with one stage changed, then with nothing to do."""
    plain, ours = checkout(tmp_path / "plain"), checkout(tmp_path / "ours")
    for change in ("", "1.0e-4", ""):
        for folder, dvc in ((plain, "dvc"), (ours, "stages.dvc")):
            params = folder / "params.yaml"
            params.write_text(params.read_text().replace("3.0e-3", change or "3.0e-3"))
            run(folder, dvc, "repro")
        assert (ours / "dvc.lock").read_bytes() == (plain / "dvc.lock").read_bytes()
    assert "up to date" in run(ours, "dvc", "status")


def test_an_entry_of_the_committed_lock_is_replaced_or_added_as_dvc_does(tmp_path: Path) -> None:
    lock = tmp_path / "dvc.lock"
    lock.write_text((ROOT / "dvc.lock").read_text())
    entries = load_yaml(lock)["stages"]
    changed = {"train_target": {**entries["train_target"], "cmd": "python -m stages train_target again"}}
    added = {"edit@new: one": entries["edit@grom-default"]}
    before = lock.read_text()
    with modify_yaml(lock) as data:
        data["stages"].update({**changed, **added})
    assert with_entries(before, {**changed, **added}) == lock.read_text()
    assert with_entries(lock.read_text(), added) == lock.read_text()


@pytest.mark.parametrize("more", [{"datasets": [{"name": "d", "url": "u"}]}, {"schema": "3.0"}])
def test_a_lock_that_holds_more_than_stages_is_left_to_dvc(tmp_path: Path, more: dict) -> None:
    dump_yaml(tmp_path / "dvc.lock", {"schema": "2.0", "stages": {"a": {"cmd": "b"}}, **more})
    assert with_entries((tmp_path / "dvc.lock").read_text(), {"a": {"cmd": "c"}}) is None
    assert with_entries(HEAD, {"a": {"cmd": "c"}}) == f"{HEAD}  a:\n    cmd: c\n"
