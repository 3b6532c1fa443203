"""A real Prefect server and a real worker, on loopback: what is deployed runs, registers once, ends when cancelled."""

import json
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from toy_checkout import command, toy_checkout

from flows.environment import SETTINGS, with_this_python

pytestmark = pytest.mark.services
PATIENCE = 240
NIGHTLY, ON_DEMAND = "efface-scheduled/nightly", "efface-scheduled/on-demand"


class Services:
    """A server at `url` whose worker runs what the toy checkout at `folder` deploys."""

    def __init__(self, folder: Path, url: str, environment: dict[str, str]) -> None:
        self.folder, self.url, self.environment = folder, url, environment

    def prefect(self, *words: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "prefect", "--no-prompt", *words],
            cwd=self.folder, env=self.environment, capture_output=True, text=True,
        )  # fmt: skip
        assert done.returncode == 0, f"{words}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
        return done.stdout

    def ask(self, path: str, body: dict | None = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, {"Content-Type": "application/json"})
        return json.load(urllib.request.urlopen(request, timeout=60))

    def fire(self, deployment: str, *words: str) -> str:
        """Starts a run and returns its id."""
        self.prefect("deployment", "run", deployment, *words)
        return self.ask("/flow_runs/filter", {"sort": "EXPECTED_START_TIME_DESC"} | _of_state("SCHEDULED"))[0]["id"]

    def ended(self, run: str) -> dict:
        """A run when it has ended."""
        return until(lambda: run_if_ended(self.ask(f"/flow_runs/{run}")))

    def artifacts(self, run: str) -> set[str]:
        found = self.ask("/artifacts/filter", {"artifacts": {"flow_run_id": {"any_": [run]}}})
        return {artifact["key"] for artifact in found}

    def tasks(self, run: str) -> dict[str, str]:
        """Task → the name of its state."""
        found = self.ask("/task_runs/filter", {"flow_runs": {"id": {"any_": [run]}}})
        return {task["name"]: task["state_name"] for task in found}


def _of_state(kind: str) -> dict:
    return {"flow_runs": {"state": {"type": {"any_": [kind, "PENDING", "RUNNING"]}}, "tags": {"all_": ["fired"]}}}


def run_if_ended(run: dict) -> dict | None:
    return run if run["state_type"] in ("COMPLETED", "FAILED", "CRASHED", "CANCELLED") else None


def until(found: Callable[[], Any]) -> Any:
    """The first thing that is found, asking twice a second."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        if thing := found():
            return thing
        time.sleep(0.5)
    raise AssertionError(f"nothing found within {PATIENCE} s: {found}")


@pytest.fixture(scope="module")
def services(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Services]:
    folder = toy_checkout(tmp_path_factory.mktemp("scheduled") / "checkout")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    url = f"http://127.0.0.1:{port}/api"
    environment = {
        **with_this_python(), **SETTINGS, "PREFECT_API_URL": url, "PREFECT_HOME": str(folder.parent / "prefect"),
        "PREFECT_SERVER_SERVICES_SCHEDULER_ENABLED": "false", "PREFECT_WORKER_QUERY_SECONDS": "1",
        "DVC_SITE_CACHE_DIR": str(folder.parent / "dvc"),
    }  # fmt: skip
    environment.pop("MLFLOW_TRACKING_URI", None)
    made = Services(folder, url, environment)
    prefect = [sys.executable, "-m", "prefect"]
    server = started(folder, environment, *prefect, "server", "start", "--host", "127.0.0.1", "--port", str(port))
    worker = None
    try:
        until(lambda: healthy(url))
        made.prefect("work-pool", "create", "gpu-pool", "--type", "process")
        made.prefect("deploy", "--all")
        worker = started(
            folder, environment | {"CUDA_VISIBLE_DEVICES": "7"},
            *prefect, "worker", "start", "--pool", "gpu-pool", "--name", "gpu7", "--limit", "1",
        )  # fmt: skip
        yield made
    finally:
        for process in filter(None, (worker, server)):
            process.send_signal(signal.SIGINT)
        for process in filter(None, (worker, server)):
            process.wait(60)


def started(folder: Path, environment: dict[str, str], *words: str) -> subprocess.Popen:
    log = (folder.parent / f"{words[3]}.log").open("w")
    return subprocess.Popen(words, cwd=folder, env=environment, stdout=log, stderr=subprocess.STDOUT)


def healthy(url: str) -> bool:
    try:
        return urllib.request.urlopen(f"{url}/health", timeout=5).status == 200
    except OSError:
        return False


def test_a_fired_run_registers_once_and_leaves_a_branch(services: Services) -> None:
    folder = services.folder
    first = services.ended(services.fire(ON_DEMAND, "--tag", "fired", "--param", 'overrides={"edit.grom.beta": 7}'))
    assert first["state_name"] == "Completed", (folder.parent / "worker.log").read_text()[-4000:]
    run = first["id"]
    states = services.tasks(run)
    assert {states[stage] for stage in ("prepare_data", "edit@grom-default", "compare")} == {"Completed"}
    assert states["register_models"] == states["promotion"] == states["commit_results"] == "Completed"
    assert services.artifacts(run) == {"stages", "dag", "results", "promotion", "report"}
    assert (folder / f".scratch/reports/{run}.html").read_text() == "<p>report"
    assert not list((folder / ".scratch/runs").iterdir())

    params = command(folder, "git", "show", f"runs/{run}:params.yaml")
    assert "profile: toy  # a comment" in params and "beta: 7" in params
    assert "beta: 7" in command(folder, "git", "show", f"runs/{run}:dvc.lock")
    assert command(folder, "git", "status", "--porcelain") == ""
    versions = registered(folder)
    assert [(version["flow_run"], version["forget_set"]) for version in versions.values()] == [
        (run, "default"),
        (run, "none"),
    ]
    commit = command(folder, "git", "rev-parse", f"runs/{run}").strip()
    assert {version["git.commit"] for version in versions.values()} == {commit}

    second = services.ended(services.fire(ON_DEMAND, "--tag", "fired", "--param", 'overrides={"edit.grom.beta": 7}'))
    states = services.tasks(second["id"])
    assert second["state_name"] == "Completed" and states["edit@grom-default"] == "Cached"
    assert registered(folder) == versions


def registered(folder: Path) -> dict[str, dict[str, str]]:
    """Address → tags of every version in the registry."""
    listing = (
        "import json; from stages.registry import registry_client as c; "
        "print(json.dumps({f'{v.name}/{v.version}': dict(v.tags) for v in c().search_model_versions()}))"
    )
    return dict(sorted(json.loads(command(folder, "python", "-c", listing)).items()))


def test_cancelling_ends_the_stage_and_the_next_run_clears_up(services: Services) -> None:
    pid = services.folder / "stage.pid"
    run = services.fire(ON_DEMAND, "--tag", "fired", "--param", 'overrides={"seconds": 600}')
    stage = int(until(lambda: pid.read_text() if pid.is_file() else ""))
    assert Path(f"/proc/{stage}").exists() and (services.folder / f".scratch/runs/{run}").is_dir()
    services.prefect("flow-run", "cancel", run)
    until(lambda: not Path(f"/proc/{stage}").exists())
    assert services.ended(run)["state_name"] == "Cancelled"
    pid.unlink()

    wrong = services.ended(services.fire(ON_DEMAND, "--tag", "fired", "--param", 'overrides={"edit.grm.beta": 1}'))
    assert wrong["state_name"] == "Failed"
    assert "override 'edit.grm.beta': no such parameter; params.yaml has there: " in wrong["state"]["message"]
    assert not list((services.folder / ".scratch/runs").iterdir())


def test_a_run_that_is_late_does_nothing(services: Services) -> None:
    run = services.ended(services.fire(NIGHTLY, "--tag", "fired", "--start-at", "2 hours ago"))
    assert run["state_name"] == "Skipped" and "behind its schedule, 60 min are allowed" in run["state"]["message"]
    assert services.tasks(run["id"]) == {}
