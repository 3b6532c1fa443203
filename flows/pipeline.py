"""The pipeline of dvc.yaml as a Prefect flow: one task per stage, `Cached` where DVC had nothing to do.

DVC decides and computes; Prefect orders, retries and shows. `python -m flows.pipeline` needs no server: Prefect starts
a private one for as long as the flow runs.
"""

import argparse
import subprocess
import sys
import time
from collections.abc import Collection, Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from flows.dag_picture import as_data_url, dag_svg
from flows.dvc_graph import DvcGraph, StageFailed, behind, read_graph, read_upstream, reproduce
from flows.environment import set_environment, with_this_python
from flows.profile_run import clone_environment, keep_results, work_clone
from stages.lineage import FLOW_RUN

set_environment()

from prefect import flow, task  # noqa: E402  (reads its settings when it is imported)
from prefect.artifacts import (  # noqa: E402
    create_image_artifact,
    create_link_artifact,
    create_markdown_artifact,
    create_table_artifact,
)
from prefect.futures import PrefectFuture  # noqa: E402
from prefect.runtime import flow_run  # noqa: E402
from prefect.states import Completed, Failed, State  # noqa: E402

from flows.workers import at_once, on_dask, task_runner  # noqa: E402

METRICS, REPORT = Path("data/compare/metrics.parquet"), Path("data/report/index.html")
AFTER_STAGES = {
    "register_models": ["stages", "register_models"],
    "promotion": ["flows.promotion"],
    "certify": ["flows.certificates"],
}
SHARDED, HELPER = "extract_circuits", "extract_circuit_shards"
NOT_BEGUN, HELPERS_WAIT = "start it first", 20
AT_ONCE = task_runner()


@task(task_run_name="{stage}", retries=1, retry_delay_seconds=2)
def run_stage(repo: str, stage: str, is_changed: bool, environment: dict[str, str], force: bool = False) -> State:
    """Reproduces one stage of dvc.yaml; one that DVC found clean beforehand costs no process."""
    start = time.monotonic()
    how = reproduce(repo, stage, force=force, environment=environment) if is_changed or force else "unchanged"
    message = f"{how}, {time.monotonic() - start:.1f} s"
    return Completed(message=message) if how == "executed" else Completed(name="Cached", message=message)


@task(task_run_name=HELPER)
def make_shards(repo: str, environment: dict[str, str]) -> State:
    """Makes shards of the circuits beside the stage that wants them; nothing where that is over before it is seen."""
    end = time.monotonic() + HELPERS_WAIT
    while time.monotonic() < end:
        try:
            return Completed(message=_output(repo, ["stages", HELPER], environment) or "helped")
        except StageFailed as error:
            if NOT_BEGUN not in str(error):
                raise
        time.sleep(1)
    return Completed(name="NotNeeded", message=f"no unfinished {SHARDED} to help")


@task(task_run_name="{step}", retries=2, retry_delay_seconds=5)
def after_stages(repo: str, step: str, environment: dict[str, str], arguments: tuple[str, ...] = ()) -> State:
    """A step outside dvc.yaml: brings MLflow's registry in step, judges what came into it, certifies deletions."""
    return Completed(message=_output(repo, [*AFTER_STAGES[step], *arguments], environment))


@flow(name="efface", task_runner=AT_ONCE)
def pipeline(repo: str = ".", profile: str | None = None, force: bool = False, registration: bool = True) -> State:
    """Reproduces the checkout at `repo`, or one of its profiles in a work clone, and registers the models.

    As many stages run at once as `EFFACE_CONCURRENT_STAGES` says (default 1), each on its share of the cores, here or
    on the Dask cluster that `EFFACE_DASK` names; several processes then make the circuits of one pool. A stage
    that fails stops those that wait for it, and no other.
    """
    root = Path(repo).resolve()
    folder = work_clone(root, profile) if profile else root
    environment = {**(clone_environment(root) if profile else {}), FLOW_RUN: str(flow_run.id)}
    states = reproduce_stages(folder, environment, force=force)
    if registration and not not_completed(states):
        states |= register(folder, environment)
    publish(folder, states, report=folder / REPORT)
    if profile and not not_completed(states):
        keep_results(root, profile)
    return outcome(states)


def reproduce_stages(
    folder: Path, environment: dict[str, str], *, force: bool = False, until: Collection[str] = ()
) -> dict[str, State]:
    """Runs stages as tasks that wait for those upstream of them; stage → how its task ended.

    Every stage, or, given some to go `until`, these and those upstream of them.
    """
    graph = read_graph(folder)
    wanted = behind(graph.upstream, until) if until else graph.upstream.keys()
    futures: dict[str, PrefectFuture[State]] = {}
    with _server_of(folder) as address:
        for stage, upstream in graph.upstream.items():
            if stage not in wanted:
                continue
            futures[stage] = run_stage.submit(
                str(folder),
                stage,
                stage in graph.changed,
                {**environment, **address},
                force=force,
                wait_for=[futures[before] for before in upstream],
                return_state=False,
            )
        for future in [*futures.values(), *_helpers(folder, futures, graph, {**environment, **address}, force)]:
            future.wait()
    return {stage: future.state for stage, future in futures.items()}


def _helpers(
    folder: Path, futures: Mapping[str, PrefectFuture[State]], graph: DvcGraph, environment: dict[str, str], force: bool
) -> list[PrefectFuture[State]]:
    """One task for every other process that may work beside the stage that is made in shards."""
    if SHARDED not in futures or not (force or SHARDED in graph.changed):
        return []
    upstream = [futures[before] for before in graph.upstream[SHARDED]]
    return [
        make_shards.submit(str(folder), environment, wait_for=upstream, return_state=False)
        for _ in range(at_once() - 1)
    ]


def register(folder: Path, environment: dict[str, str]) -> dict[str, State]:
    """Registers the models of a checkout and judges them; a failure leaves all that was computed as it is."""
    states: dict[str, State] = {}
    needed = {"register_models": "stages/register_models.py", "promotion": "promotion.yaml"}
    for step, file in needed.items():
        if (folder / file).is_file() and not not_completed(states):
            future = after_stages.submit(str(folder), step, environment, return_state=False)
            future.wait()
            states[step] = future.state
    return states


def not_completed(states: Mapping[str, State]) -> list[str]:
    return [stage for stage, state in states.items() if not state.is_completed()]


def outcome(states: Mapping[str, State]) -> State:
    """How a flow ends whose tasks ended so."""
    if failed := not_completed(states):
        return Failed(message=f"not completed: {', '.join(failed)}")
    return Completed(message=f"{len(states)} tasks completed")


def publish(folder: Path, states: Mapping[str, State], *, report: Path) -> None:
    """Prints the states and the results, and shows them, the report and a picture of the DAG as Prefect's artifacts."""
    rows = [
        {"stage": stage, "state": state.name, "what": _first_line(state.message)} for stage, state in states.items()
    ]
    print(_aligned(rows))
    create_table_artifact(key="stages", table=rows, description="One line per stage of dvc.yaml")
    names = {stage: str(state.name) for stage, state in states.items()}
    picture = as_data_url(dag_svg(read_upstream(folder), names))
    create_image_artifact(key="dag", image_url=picture, description="Stages by how their tasks ended")
    if (folder / METRICS).is_file() and not not_completed(states):
        results = _output(folder, ["stages", "results_table"], {})
        print(results)
        create_markdown_artifact(key="results", markdown=f"```\n{results}\n```", description="Results table")
    if "promotion" in states:
        verdicts = str(states["promotion"].message)
        print(verdicts)
        create_markdown_artifact(key="promotion", markdown=f"```\n{verdicts}\n```", description="Verdicts of the gate")
    if report.is_file():
        create_link_artifact(key="report", link=report.as_uri(), link_text=report.name)


def _server_of(folder: Path) -> AbstractContextManager[dict[str, str]]:
    """The stage server of a checkout that has one; workers on other machines could not reach it."""
    if on_dask() or not (folder / "stages" / "server.py").is_file():
        return nullcontext({})
    from stages.server import stage_server

    return stage_server(folder)


def _output(folder: Path | str, module: list[str], environment: Mapping[str, str]) -> str:
    """What a Python module of the checkout prints.

    Raises: StageFailed with its message where it fails.
    """
    environment = {**with_this_python(), **environment}
    done = subprocess.run([sys.executable, "-m", *module], cwd=folder, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise StageFailed(f"{' '.join(module)}: {done.stderr[-2000:].strip()}")
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
