"""Where a file comes from, as `dvc.lock` records it: stages upstream of it, with the md5 of everything they read."""

import hashlib
import json
from pathlib import Path
from typing import Any

import yaml

Lock = dict[str, dict[str, Any]]


def read_lock(path: str | Path = "dvc.lock") -> Lock:
    """Stage name → its recorded command, parameters, dependencies and outputs.

    Raises: FileNotFoundError where nothing has been run yet.
    """
    if not Path(path).is_file():
        raise FileNotFoundError(f"{path}: no such file; `dvc repro` writes it")
    return (yaml.safe_load(Path(path).read_text()) or {}).get("stages", {})


def producer_of(lock: Lock, path: str) -> str | None:
    """The stage that writes `path`, or the folder that holds it."""
    for stage, record in lock.items():
        if any(_inside(path, out["path"]) for out in record.get("outs", [])):
            return stage
    return None


def content_key(lock: Lock, path: str) -> str:
    """The md5 of an output, with the ending `.dir` for a folder.

    Raises: KeyError where no recorded stage writes exactly this path.
    """
    for record in lock.values():
        for out in record.get("outs", []):
            if out["path"] == path:
                return out["md5"]
    raise KeyError(path)


def lineage_of(lock: Lock, path: str) -> dict[str, Any]:
    """Every stage that `path` depends on, nearest first: command, parameters, and md5 of what it reads and writes."""
    stages: dict[str, Any] = {}
    waiting = [producer_of(lock, path)]
    while waiting:
        stage = waiting.pop(0)
        if stage is None or stage in stages:
            continue
        record = lock[stage]
        stages[stage] = {
            "cmd": record["cmd"],
            "params": record.get("params", {}),
            "deps": {dep["path"]: dep["md5"] for dep in record.get("deps", [])},
            "outs": {out["path"]: out["md5"] for out in record.get("outs", [])},
        }
        for dep in record.get("deps", []):
            waiting.extend(_producers_for(lock, dep["path"]))
    return {"path": path, "content_key": content_key(lock, path), "stages": stages}


def lineage_sha256(lineage: dict[str, Any]) -> str:
    """One hash for the whole recipe."""
    return hashlib.sha256(json.dumps(lineage, sort_keys=True).encode()).hexdigest()


def _producers_for(lock: Lock, dep: str) -> list[str]:
    """The stages that write a dependency, all of it or a part of it."""
    return [
        stage
        for stage, record in lock.items()
        if any(_inside(dep, out["path"]) or _inside(out["path"], dep) for out in record.get("outs", []))
    ]


def _inside(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")
