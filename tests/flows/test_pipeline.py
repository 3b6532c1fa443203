"""The flow over a toy DVC repository: states, order, failure and retry, with a private Prefect server."""

import subprocess
from pathlib import Path

import pytest

from flows.environment import with_this_python

pytestmark = pytest.mark.services

DVC_YAML = """
stages:
  first:
    cmd: python copy_upper.py seed.txt first.txt
    deps: [copy_upper.py, seed.txt]
    outs: [first.txt]
  second:
    foreach: [a, b]
    do:
      cmd: python copy_upper.py first.txt second-${item}.txt
      deps: [copy_upper.py, first.txt]
      params: ["suffix.${item}"]
      outs: ["second-${item}.txt"]
"""
COPY = """
import sys, yaml
source, target = sys.argv[1:]
text = open(source).read()
if "refused" in text:
    sys.exit("seed.txt: refused is not allowed")
name = target.removeprefix("second-").removesuffix(".txt")
open(target, "w").write(text.upper() + yaml.safe_load(open("params.yaml"))["suffix"].get(name, ""))
"""


STAGES = ("first", "second@a", "second@b")
EXECUTED, UNCHANGED, RUN_CACHE = ("Completed", "executed"), ("Cached", "unchanged"), ("Cached", "run cache")


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    files = {"dvc.yaml": DVC_YAML, "params.yaml": "suffix: {a: one, b: two}", "copy_upper.py": COPY, "seed.txt": "seed"}
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    for command in (["git", "init", "-q"], ["dvc", "init", "-q"]):
        subprocess.run(command, cwd=tmp_path, check=True, env=with_this_python())
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(capfd: pytest.CaptureFixture, *arguments: str) -> tuple[int, dict[str, tuple[str, str]]]:
    """The exit code, and the printed table: stage → (state, first words of what happened)."""
    from flows.pipeline import main

    code = main(list(arguments))
    lines = [line.split(maxsplit=2) for line in capfd.readouterr().out.splitlines()]
    return code, {
        line[0]: (line[1], " ".join(line[2:]).partition(",")[0]) for line in lines if line[:1] and line[0] in STAGES
    }


def test_states_follow_what_dvc_did(checkout: Path, capfd: pytest.CaptureFixture) -> None:
    assert run(capfd) == (0, dict.fromkeys(STAGES, EXECUTED))
    assert (checkout / "second-b.txt").read_text() == "SEEDtwo"

    assert run(capfd) == (0, dict.fromkeys(STAGES, UNCHANGED))

    (checkout / "params.yaml").write_text("suffix: {a: one, b: three}")
    assert run(capfd) == (0, {"first": UNCHANGED, "second@a": UNCHANGED, "second@b": EXECUTED})

    (checkout / "params.yaml").write_text("suffix: {a: one, b: two}")
    assert run(capfd) == (0, {"first": UNCHANGED, "second@a": UNCHANGED, "second@b": RUN_CACHE})
    assert (checkout / "second-b.txt").read_text() == "SEEDtwo"

    (checkout / "seed.txt").write_text("refused")
    code, rows = run(capfd)
    assert code == 1
    assert {stage: state for stage, (state, _) in rows.items()} == {
        "first": "Failed",
        "second@a": "NotReady",
        "second@b": "NotReady",
    }
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.filters import ArtifactFilter, ArtifactFilterFlowRunId, TaskRunFilter, TaskRunFilterName

    with get_client(sync_client=True) as client:
        firsts = client.read_task_runs(task_run_filter=TaskRunFilter(name=TaskRunFilterName(any_=["first"])))
        flows = ArtifactFilterFlowRunId(any_=[task.flow_run_id for task in firsts])
        artifacts = {found.key for found in client.read_artifacts(artifact_filter=ArtifactFilter(flow_run_id=flows))}
    assert {task.state_name for task in firsts} == {"Completed", "Cached", "Failed"}
    assert artifacts == {"stages", "dag"}
