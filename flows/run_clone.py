"""A throw-away clone for one scheduled run: the newest commit of the origin, on the DVC cache of the main checkout."""

import fcntl
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from flows.profile_run import command_output, put_profile, share_cache

PLAIN = re.compile(r"[\w./:@+ -]*")
RESULTS = ("dvc.lock", "params.yaml", "data/compare/metrics.json")
AUTHOR = ("-c", "user.name=efface", "-c", "user.email=efface@localhost")


class OverrideError(ValueError):
    """A parameter to override that params.yaml does not have; the message says which it has there."""


@contextmanager
def run_clone(root: Path, run: str) -> Iterator[Path]:
    """A clone under `.scratch/runs/`, removed at the end; those that a killed run has left are removed first.

    It is cloned from the origin of `root`, or from `root` itself where that has none. A lock beside the folder tells a
    run that is still going on from one that was killed.
    """
    runs = root / ".scratch" / "runs"
    runs.mkdir(parents=True, exist_ok=True)
    _remove_abandoned(runs)
    with (runs / f"{run}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            folder = runs / run
            command_output(root, "git", "clone", "--quiet", _origin(root), str(folder))
            share_cache(root, folder)
            yield folder
        finally:
            _remove(Path(lock.name))


def set_parameters(folder: Path, profile: str | None, overrides: Mapping[str, Any]) -> None:
    """Puts a profile's parameters and lock into a clone, then single values: `edit.grom.beta` → 100.

    Comments stay. Raises: ProfileError where there is no such profile; OverrideError where there is no such parameter
    or a value could mean something to a shell.
    """
    from dvc.utils.serialize import modify_yaml

    if profile:
        put_profile(folder, profile, folder)
    if not overrides:
        return
    for text in _texts(overrides):
        if not PLAIN.fullmatch(text):
            raise OverrideError(f"override with {text!r}: DVC puts values into commands; expected {PLAIN.pattern}")
    with modify_yaml(folder / "params.yaml") as params:
        for name, value in overrides.items():
            *sections, last = name.split(".")
            place = params
            for key in sections:
                place = place.get(key) if isinstance(place, Mapping) else None
            if not isinstance(place, dict) or last not in place:
                known = ", ".join(place) if isinstance(place, Mapping) else "nothing below it"
                raise OverrideError(f"override {name!r}: no such parameter; params.yaml has there: {known}")
            place[last] = value


def _texts(value: Any) -> Iterator[str]:
    """Every text inside a value, keys too."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping | list):
        for part in [*value, *value.values()] if isinstance(value, Mapping) else value:
            yield from _texts(part)


def commit_results(folder: Path, run: str) -> str | None:
    """Commits lock, parameters and metrics to the branch `runs/<run>` of the origin; the commit, None if no change.

    `git checkout runs/<run> && dvc checkout` in the main checkout brings the whole run back.
    """
    command_output(folder, "git", "add", "--", *(name for name in RESULTS if (folder / name).is_file()))
    if not command_output(folder, "git", "diff", "--cached", "--name-only"):
        return None
    command_output(folder, "git", *AUTHOR, "commit", "--quiet", "--message", f"Results of flow run {run}")
    command_output(folder, "git", "push", "--quiet", "origin", f"HEAD:refs/heads/runs/{run}")
    return command_output(folder, "git", "rev-parse", "HEAD").strip()


def _origin(root: Path) -> str:
    remotes = command_output(root, "git", "remote").split()
    return command_output(root, "git", "remote", "get-url", "origin").strip() if "origin" in remotes else str(root)


def _remove_abandoned(runs: Path) -> None:
    for file in runs.glob("*.lock"):
        with suppress(OSError), file.open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _remove(file)


def _remove(lock: Path) -> None:
    shutil.rmtree(lock.with_suffix(""), ignore_errors=True)
    lock.unlink(missing_ok=True)
