"""The flow on a Dask cluster of several processes: the same results as with threads, made by other processes."""

import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from flows.environment import with_this_python

pytestmark = pytest.mark.services
STAGES = ("a", "b", "c")
DVC_YAML = """
stages:
  shard:
    foreach: [a, b, c]
    do:
      cmd: python shard.py ${item}
      deps: [shard.py]
      outs: ["shard-${item}.txt"]
  all:
    cmd: cat shard-a.txt shard-b.txt shard-c.txt > all.txt
    deps: [shard-a.txt, shard-b.txt, shard-c.txt]
    outs: [all.txt]
"""
SHARD = """
import os, sys, time
import psutil
time.sleep(1)
open(f"shard-{sys.argv[1]}.txt", "w").write(f"shard {sys.argv[1]} by {os.environ['OMP_NUM_THREADS']} thread\\n")
open(f"{sys.argv[1]}.log", "w").write("\\n".join(" ".join(each.cmdline()) for each in psutil.Process().parents()))
"""


def run(folder: Path, **variables: str) -> str:
    folder.mkdir()
    for name, text in {"dvc.yaml": DVC_YAML, "shard.py": SHARD}.items():
        (folder / name).write_text(text)
    environment = {**with_this_python(), "PYTHONPATH": str(Path(__file__).resolve().parents[2]), "OMP_NUM_THREADS": "1"}
    environment |= {"EFFACE_CONCURRENT_STAGES": "2", **variables}
    for command in (["git", "init", "-q"], ["dvc", "init", "-q"], [sys.executable, "-m", "flows.pipeline"]):
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, f"{command}: {done.stdout[-2000:]}{done.stderr[-4000:]}"
    return (folder / "all.txt").read_text()


def test_dask_workers_give_what_threads_give(tmp_path: Path) -> None:
    threads, workers = run(tmp_path / "threads"), run(tmp_path / "dask", EFFACE_DASK="local")
    assert threads == workers == "".join(f"shard {item} by 1 thread\n" for item in STAGES)
    locks = [yaml.safe_load((tmp_path / name / "dvc.lock").read_text()) for name in ("threads", "dask")]
    assert locks[0] == locks[1]
    parents = {name: (tmp_path / name / "a.log").read_text() for name in ("threads", "dask")}
    worker = "spawn_main"  # how Python starts the processes of a local cluster
    assert worker in parents["dask"] and worker not in parents["threads"]


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    from flows.workers import task_runner

    monkeypatch.setenv("EFFACE_DASK", "local")
    monkeypatch.setitem(sys.modules, "prefect_dask", None)
    with pytest.raises(ModuleNotFoundError, match=r"EFFACE_DASK is 'local', but .*pip install 'efface\[dask\]'"):
        task_runner()
