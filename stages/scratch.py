"""Where a stage keeps unfinished work, so that a kill loses nothing.

DVC deletes a stage's outputs before it runs the stage. Progress therefore lives in `.scratch/<stage>/<key>/`, where the
key is a hash of the parameters, the inputs and the code: a changed run never resumes from another run's shards.
"""

import fcntl
import hashlib
import json
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

CODE = ("efface", "stages")


@contextmanager
def scratch_folder(
    stage: str, item: str | None, params: Any, deps: Sequence[str | Path], *, helpers: bool = False
) -> Iterator[Path]:
    """The folder of this very run, kept when the run dies and removed when it succeeds.

    A lock keeps an orphan of a killed run and its successor apart: the successor waits. With `helpers`, other processes
    may work in the folder at the same time, and its removal waits until they have left.
    """
    folder, lock_file = _places(stage, item, params, deps)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with lock_file.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_SH if helpers else fcntl.LOCK_EX)
        folder.mkdir(exist_ok=True)
        yield folder
        fcntl.flock(lock, fcntl.LOCK_EX)
        shutil.rmtree(folder, ignore_errors=helpers)


@contextmanager
def helped_folder(stage: str, item: str | None, params: Any, deps: Sequence[str | Path]) -> Iterator[Path]:
    """The folder of the same run in another process, made by `scratch_folder` with `helpers`.

    Raises: FileNotFoundError where no such run has begun or left unfinished work.
    """
    folder, lock_file = _places(stage, item, params, deps)
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder}: no unfinished {stage} of these inputs, parameters and code; start it first")
    with lock_file.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_SH)
        yield folder


@contextmanager
def claim(path: Path, *, wait: bool) -> Iterator[bool]:
    """Whether the caller is to make this file: it is not there, and no other process is at it.

    With `wait`, until the other process has made it or died.
    """
    with path.with_suffix(".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield not path.exists()


def _places(stage: str, item: str | None, params: Any, deps: Sequence[str | Path]) -> tuple[Path, Path]:
    """Folder and lock file of a run."""
    folder = Path(".scratch") / stage / _run_key(stage, item, params, deps)
    return folder, folder.with_suffix(".lock")


def _run_key(stage: str, item: str | None, params: Any, deps: Sequence[str | Path]) -> str:
    digest = hashlib.sha256(json.dumps([stage, item, params], sort_keys=True, default=str).encode())
    code = [path for folder in CODE for path in sorted(Path(folder).rglob("*.py"))]
    for path in [*code, *(file for dep in deps for file in _files(Path(dep)))]:
        digest.update(f"\0{path}\0".encode())
        with path.open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()[:16]


def _files(path: Path) -> list[Path]:
    if path.is_file():
        return [path]
    if path.is_dir():
        return sorted(file for file in path.rglob("*") if file.is_file())
    raise FileNotFoundError(f"{path}: input of the stage not found; run `dvc repro` to make it")
