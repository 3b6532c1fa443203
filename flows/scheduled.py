"""The flow that a schedule or a person fires: the pipeline in a throw-away clone, its results on a branch, then MLflow.

Nothing of the main checkout is touched but its DVC cache, its registry, and the report under `.scratch/reports/`.
"""

import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from flows.pipeline import AT_ONCE, FLOW_RUN, REPORT, not_completed, outcome, publish, register, reproduce_stages
from flows.profile_run import clone_environment
from flows.run_clone import commit_results, run_clone, set_parameters

# After flows.pipeline, which puts the environment in place that Prefect reads when it is imported.
from prefect import flow, task  # isort: skip
from prefect.runtime import flow_run  # isort: skip
from prefect.states import Completed, State  # isort: skip


@task(task_run_name="commit_results", retries=2, retry_delay_seconds=5)
def commit(folder: str, run: str) -> State:
    """Pushes lock, parameters and metrics to `runs/<flow-run-id>`."""
    found = commit_results(Path(folder), run)
    return Completed(message=f"runs/{run} is {found}" if found else "nothing changed, nothing to commit")


@flow(name="efface-scheduled", task_runner=AT_ONCE)
def scheduled(
    repo: str = ".",
    profile: str | None = None,
    overrides: dict[str, Any] | None = None,
    late_after_minutes: int | None = None,
) -> State:
    """Reproduces the newest commit, with a profile's parameters and single values changed, and registers the models.

    A run that starts more than `late_after_minutes` behind its schedule does nothing: after a night without workers
    the missed ones would otherwise all run, one after the other. Registration comes after the commit, so that the
    commit that a version names holds the lock that it was made from.
    """
    late = datetime.now(UTC) - (flow_run.scheduled_start_time or datetime.now(UTC))
    if late_after_minutes is not None and late > timedelta(minutes=late_after_minutes):
        return Completed(name="Skipped", message=f"{late} behind its schedule, {late_after_minutes} min are allowed")
    root, run = Path(repo).resolve(), str(flow_run.id)
    environment = {**clone_environment(root), FLOW_RUN: run}
    with run_clone(root, run) as folder:
        set_parameters(folder, profile, overrides or {})
        states = reproduce_stages(folder, environment)
        if not not_completed(states):
            committed = commit.submit(str(folder), run, return_state=False)
            committed.wait()
            states["commit_results"] = committed.state
        if not not_completed(states):
            states |= register(folder, environment)
        publish(folder, states, report=_kept_report(root, folder, run))
    return outcome(states)


def _kept_report(root: Path, folder: Path, run: str) -> Path:
    """Where the report of a run stays when its clone goes."""
    kept = root / ".scratch" / "reports" / f"{run}.html"
    if (folder / REPORT).is_file():
        kept.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(folder / REPORT, kept)
    return kept
