"""What DVC knows about a checkout: its stages, which of them have changed, and how a reproduced one came about."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from flows.environment import with_this_python

How = Literal["executed", "run cache", "unchanged"]
UNCHANGED = re.compile(r"^Stage '.+' didn't change, skipping", re.M)
RUN_CACHE = re.compile(r"^Stage '.+' is cached - skipping run", re.M)
CHUNK = 1 << 16


class StageFailed(RuntimeError):
    """A stage, or DVC itself, ended with an error; the message holds the end of what it printed."""


@dataclass(frozen=True)
class DvcGraph:
    """Stage → the stages it waits for, in an order that respects them; and the stages that DVC has to look at."""

    upstream: Mapping[str, tuple[str, ...]]
    changed: frozenset[str]


def read_graph(repo: str | Path = ".") -> DvcGraph:
    """The pipeline of a checkout as it is now.

    A stage is changed where DVC says so or where one that it waits for is: whether the latter's output really comes out
    different is known only when it has run.

    Raises: StageFailed where dvc.yaml cannot be read.
    """
    upstream = read_upstream(repo)
    status = json.loads(_dvc_output(repo, "status", "--json"))
    changed: set[str] = set()
    for stage, before in upstream.items():
        if stage in status or changed.intersection(before):
            changed.add(stage)
    return DvcGraph(upstream, frozenset(changed))


def read_upstream(repo: str | Path = ".") -> dict[str, tuple[str, ...]]:
    """Stage → the stages it waits for, those that can start together beside each other.

    Raises: StageFailed where dvc.yaml cannot be read.
    """
    from dvc.exceptions import DvcException
    from dvc.repo import Repo

    def address(stage) -> str:
        path = os.path.relpath(stage.path, opened.root_dir)
        return stage.name if path == "dvc.yaml" else f"{path}:{stage.name}"

    try:
        with Repo(str(repo)) as opened:
            graph = opened.index.graph
            upstream = {
                address(stage): tuple(sorted(address(other) for other in graph.successors(stage) if _is_run(other)))
                for stage in graph
                if _is_run(stage)
            }
    except DvcException as error:
        raise StageFailed(f"{repo}: {error}") from error
    return _in_order(upstream)


def behind(upstream: Mapping[str, Collection[str]], stages: Collection[str]) -> set[str]:
    """These stages and all that they wait for, directly or not.

    Raises: StageFailed where there is no such stage.
    """
    found: set[str] = set()
    waiting = list(stages)
    while waiting:
        stage = waiting.pop()
        if stage not in upstream:
            raise StageFailed(f"no stage {stage!r}; dvc.yaml has {', '.join(upstream)}")
        if stage not in found:
            found.add(stage)
            waiting.extend(upstream[stage])
    return found


def reproduce(
    repo: str | Path, stage: str, *, force: bool = False, environment: Mapping[str, str] | None = None
) -> How:
    """Reproduces one stage alone, passing on what it prints, and says how it came about.

    DVC runs in this process's group, so that cancelling a flow run ends the stage as well.

    Raises: StageFailed where DVC or the stage fails.
    """
    command = [sys.executable, "-m", "dvc", "--wait-for-lock", "repro", "--single-item", stage]
    code, output = _passed_on(
        [*command, "--force"] if force else command, repo, {**with_this_python(), **(environment or {})}
    )
    if code:
        raise StageFailed(f"dvc repro {stage} ended with {code}\n{output[-2000:].strip()}")
    return how_it_came(output)


def how_it_came(output: str) -> How:
    """Reads the output of `dvc repro --single-item`."""
    if UNCHANGED.search(output):
        return "unchanged"
    return "run cache" if RUN_CACHE.search(output) else "executed"


def _is_run(stage) -> bool:
    """Whether a node of DVC's graph has a command (a data file added by hand has none)."""
    return bool(getattr(stage, "cmd", None))


def _in_order(upstream: Mapping[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
    """The same graph with stages by their distance from the sources, so that those ready together are together."""
    depths: dict[str, int] = {}

    def depth(stage: str) -> int:
        if stage not in depths:
            depths[stage] = 1 + max((depth(before) for before in upstream[stage]), default=0)
        return depths[stage]

    return {stage: upstream[stage] for stage in sorted(upstream, key=lambda stage: (depth(stage), stage))}


def _dvc_output(repo: str | Path, *arguments: str) -> str:
    command = [sys.executable, "-m", "dvc", "--wait-for-lock", *arguments]
    done = subprocess.run(command, cwd=repo, env=with_this_python(), capture_output=True, text=True)
    if done.returncode:
        raise StageFailed(f"dvc {' '.join(arguments)} ended with {done.returncode}\n{done.stderr[-2000:].strip()}")
    return done.stdout


def _passed_on(command: list[str], folder: str | Path, environment: Mapping[str, str]) -> tuple[int, str]:
    """Runs a command whose output is shown as it comes, progress bars included, and returned as text."""
    output = b""
    with subprocess.Popen(
        command, cwd=folder, env=dict(environment), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, bufsize=0
    ) as process:
        while chunk := process.stdout.read(CHUNK):  # type: ignore[union-attr]
            os.write(2, chunk)
            output += chunk
    return process.returncode, output.decode(errors="replace")
