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
def scratch_folder(stage: str, item: str | None, params: Any, deps: Sequence[str | Path]) -> Iterator[Path]:
    """The folder of this very run, kept when the run dies and removed when it succeeds.

    A lock keeps an orphan of a killed run and its successor apart: the successor waits.
    """
    key = _run_key(stage, item, params, deps)
    parent = Path(".scratch") / stage
    folder = parent / key
    folder.mkdir(parents=True, exist_ok=True)
    with (parent / f"{key}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        folder.mkdir(exist_ok=True)
        yield folder
        shutil.rmtree(folder)


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
