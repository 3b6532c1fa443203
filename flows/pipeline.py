"""The pipeline of dvc.yaml as a Prefect flow: one task per stage, `Cached` where DVC had nothing to do.

DVC decides and computes; Prefect orders, retries and shows. `python -m flows.pipeline` needs no server: Prefect starts
a private one for as long as the flow runs.
"""

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, cast

from flows.dvc_graph import StageFailed, read_graph, reproduce
from flows.environment import set_environment, with_this_python
from flows.profile_run import clone_environment, keep_results, work_clone

set_environment()

from prefect import flow, task  # noqa: E402  (reads its settings when it is imported)
from prefect.artifacts import create_link_artifact, create_markdown_artifact, create_table_artifact  # noqa: E402
from prefect.futures import PrefectFuture  # noqa: E402
from prefect.runtime import flow_run  # noqa: E402
from prefect.states import Completed, Failed, State  # noqa: E402
from prefect.task_runners import TaskRunner, ThreadPoolTaskRunner  # noqa: E402

CONCURRENT = "EFFACE_CONCURRENT_STAGES"
FLOW_RUN = "EFFACE_FLOW_RUN"
REPORT = Path("data/report/index.html")
AT_ONCE = cast(TaskRunner[PrefectFuture[Any]], ThreadPoolTaskRunner(max_workers=int(os.environ.get(CONCURRENT, "1"))))


@task(task_run_name="{stage}", retries=1, retry_delay_seconds=2)
def run_stage(repo: str, stage: str, is_changed: bool, environment: dict[str, str], force: bool = False) -> State:
    """Reproduces one stage of dvc.yaml; one that DVC found clean beforehand costs no process."""
    start = time.monotonic()
    how = reproduce(repo, stage, force=force, environment=environment) if is_changed or force else "unchanged"
    message = f"{how}, {time.monotonic() - start:.1f} s"
    return Completed(message=message) if how == "executed" else Completed(name="Cached", message=message)


@task(task_run_name="register_models", retries=2, retry_delay_seconds=5)
def register_models(repo: str, environment: dict[str, str]) -> State:
    """Brings MLflow's registry in step with what DVC has computed; a failure leaves all of that as it is."""
    return Completed(message=_stage_output(repo, "register_models", environment))


@flow(name="efface", task_runner=AT_ONCE)
def pipeline(repo: str = ".", profile: str | None = None, force: bool = False, registration: bool = True) -> State:
    """Reproduces the checkout at `repo`, or one of its profiles in a work clone, and registers the models.

    As many stages run at once as `EFFACE_CONCURRENT_STAGES` says (default 1), each on its share of the cores. A stage
    that fails stops those that wait for it, and no other.
    """
    root = Path(repo).resolve()
    folder = work_clone(root, profile) if profile else root
    environment = {**(clone_environment(root) if profile else {}), FLOW_RUN: str(flow_run.id)}
    with _server_of(folder) as address:
        tasks = _submit(folder, {**environment, **address}, force=force)
        for future in tasks.values():
            future.wait()
    if registration and _has_stage(folder, "register_models"):
        tasks["register_models"] = register_models.submit(
            str(folder), environment, wait_for=list(tasks.values()), return_state=False
        )
        tasks["register_models"].wait()
    states = {stage: future.state for stage, future in tasks.items()}
    _publish(folder, states)
    failed = [stage for stage, state in states.items() if not state.is_completed()]
    if failed:
        return Failed(message=f"not completed: {', '.join(failed)}")
    if profile:
        keep_results(root, profile)
    return Completed(message=f"{len(states)} tasks completed")


def _submit(folder: Path, environment: dict[str, str], *, force: bool) -> dict[str, PrefectFuture[State]]:
    """Every stage as a task that waits for those upstream of it."""
    graph = read_graph(folder)
    futures: dict[str, PrefectFuture[State]] = {}
    for stage, upstream in graph.upstream.items():
        futures[stage] = run_stage.submit(
            str(folder),
            stage,
            stage in graph.changed,
            environment,
            force=force,
            wait_for=[futures[before] for before in upstream],
            return_state=False,
        )
    return futures


def _publish(folder: Path, states: Mapping[str, State]) -> None:
    """Shows the states as a table, and puts them, the results and the report into Prefect's artifacts."""
    rows = [
        {"stage": stage, "state": state.name, "what": _first_line(state.message)} for stage, state in states.items()
    ]
    print(_aligned(rows))
    create_table_artifact(key="stages", table=rows, description="One line per stage of dvc.yaml")
    if _has_stage(folder, "results_table") and all(state.is_completed() for state in states.values()):
        results = _stage_output(folder, "results_table", {})
        print(results)
        create_markdown_artifact(key="results", markdown=f"```\n{results}\n```", description="Results table")
    if (folder / REPORT).is_file():
        create_link_artifact(key="report", link=(folder / REPORT).as_uri(), link_text=str(REPORT))


def _server_of(folder: Path) -> AbstractContextManager[dict[str, str]]:
    """The stage server of a checkout that has one."""
    if not (folder / "stages" / "server.py").is_file():
        return nullcontext({})
    from stages.server import stage_server

    return stage_server(folder)


def _has_stage(folder: Path, stage: str) -> bool:
    return (folder / "stages" / f"{stage}.py").is_file()


def _stage_output(folder: Path | str, stage: str, environment: Mapping[str, str]) -> str:
    """What a stage outside dvc.yaml prints.

    Raises: StageFailed with its message where it fails.
    """
    command = [sys.executable, "-m", "stages", stage]
    done = subprocess.run(
        command, cwd=folder, env={**with_this_python(), **environment}, capture_output=True, text=True
    )
    if done.returncode:
        raise StageFailed(f"{stage}: {done.stderr[-2000:].strip()}")
    return done.stdout.strip()


def _first_line(message: str | None) -> str:
    return (message or "").partition("\n")[0]


def _aligned(rows: list[dict[str, str]]) -> str:
    columns = list(rows[0])
    widths = {column: max(len(column), *(len(row[column]) for row in rows)) for column in columns}
    lines = [{column: column for column in columns}, {column: "-" * widths[column] for column in columns}, *rows]
    return "\n".join("  ".join(line[column].ljust(widths[column]) for column in columns).rstrip() for line in lines)


def main(argv: list[str]) -> int:
    """Runs the flow on the checkout in the working directory; 0 where every stage completed."""
    parser = argparse.ArgumentParser(prog="python -m flows.pipeline", description=main.__doc__)
    parser.add_argument("--profile", help="run this profile in a work clone instead")
    parser.add_argument("--force", action="store_true", help="run every stage, changed or not")
    parser.add_argument("--no-registration", action="store_true", help="leave MLflow's registry alone")
    chosen = parser.parse_args(argv)
    state = pipeline(
        profile=chosen.profile, force=chosen.force, registration=not chosen.no_registration, return_state=True
    )
    return 0 if state.is_completed() else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
