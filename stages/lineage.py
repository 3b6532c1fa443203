"""Where a file comes from, as `dvc.lock` records it: stages upstream of it, with the md5 of everything they read."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

Lock = dict[str, dict[str, Any]]
FLOW_RUN = "EFFACE_FLOW_RUN"  # the environment variable that names the flow run which computes
WRITTEN_BY_STAGES = ("data/", "models/")
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
MEASURES = ("score_cud", "evaluate@{model}", "quantize_attack@{model}")
STEPS = {
    "base model": ("train_target",),
    "data and forget set": ("prepare_data", "accept_requests"),
    "circuits and CUD": ("select_anchors", "extract_circuits", "score_cud"),
    "edit": ("extract_activations", "build_task_matrices", "edit"),
    "evaluation": ("evaluate",),
    "attack": ("quantize_attack",),
}


def read_lock(path: str | Path = "dvc.lock") -> Lock:
    """Stage name → its recorded command, parameters, dependencies and outputs.

    Raises: FileNotFoundError where nothing has been run yet.
    """
    if not Path(path).is_file():
        raise FileNotFoundError(f"{path}: no such file; `dvc repro` writes it")
    return (yaml.load(Path(path).read_text(), Loader=LOADER) or {}).get("stages", {})


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


def lineage_of(lock: Lock, path: str, model: str = "") -> dict[str, Any]:
    """Where `path` comes from, and what measured it.

    `stages`: every stage that it depends on, nearest first, with command, parameters, and md5 of what is read and
    written. `measured`: the same of the stages that looked at it under the name `model`, and of those behind them.
    """
    made = _behind(lock, [producer_of(lock, path)])
    beside = _behind(lock, [name.format(model=model) for name in MEASURES]) if model else {}
    measured = {stage: record for stage, record in beside.items() if stage not in made}
    return {"path": path, "content_key": content_key(lock, path), "stages": made, "measured": measured}


def lineage_sha256(lineage: Mapping[str, Any]) -> str:
    """One hash for the whole recipe, whatever was measured afterwards."""
    recipe = {part: lineage[part] for part in ("path", "content_key", "stages")}
    return hashlib.sha256(json.dumps(recipe, sort_keys=True).encode()).hexdigest()


def all_stages(lineage: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The stages that made something and those that measured it."""
    return {**lineage["stages"], **lineage.get("measured", {})}


def steps(lineage: Mapping[str, Any]) -> dict[str, dict[str, dict[str, Any]]]:
    """The stages of a lineage in the order in which a reader asks for them: step → stage → record."""
    found = all_stages(lineage)
    placed = {
        step: {stage: found[stage] for stage in found if stage.partition("@")[0] in names}
        for step, names in STEPS.items()
    }
    known = {name for names in STEPS.values() for name in names}
    return {**placed, "other": {stage: found[stage] for stage in found if stage.partition("@")[0] not in known}}


def gaps(lineage: Mapping[str, Any]) -> list[str]:
    """What a lineage does not account for: a step without a stage, or something read that no recorded stage wrote."""
    stages = all_stages(lineage)
    wanted = [step for step in STEPS if step != "edit" or lineage["path"].startswith("models/edit/")]
    found = [f"no stage recorded for: {step}" for step in wanted if not steps(lineage)[step]]
    written = {path: md5 for record in stages.values() for path, md5 in record["outs"].items()}
    for stage, record in stages.items():
        for path, md5 in record["deps"].items():
            if not path.startswith(WRITTEN_BY_STAGES):
                continue
            if path not in written and not any(_inside(path, out) for out in written):
                found.append(f"{stage} read {path}, which no recorded stage writes")
            elif path in written and written[path] != md5:
                found.append(f"{stage} read {path} as {md5}, but it was written as {written[path]}; run `dvc repro`")
    return found


def _behind(lock: Lock, first: Sequence[str | None]) -> dict[str, dict[str, Any]]:
    """These stages, where the lock has them, and every stage that they depend on, nearest first."""
    stages: dict[str, dict[str, Any]] = {}
    waiting = list(first)
    while waiting:
        stage = waiting.pop(0)
        if stage not in lock or stage in stages:
            continue
        record = lock[stage]
        stages[stage] = {
            "cmd": record["cmd"],
            "params": record.get("params", {}),
            "deps": {dep["path"]: dep["md5"] for dep in record.get("deps", [])},
            "outs": {out["path"]: out["md5"] for out in record.get("outs", [])},
        }
        for dep in record.get("deps", []):
            if dep["path"].startswith(WRITTEN_BY_STAGES):
                waiting.extend(_producers_for(lock, dep["path"]))
    return stages


def _producers_for(lock: Lock, dep: str) -> list[str]:
    """The stages that write a dependency, all of it or a part of it."""
    return [
        stage
        for stage, record in lock.items()
        if any(_inside(dep, out["path"]) or _inside(out["path"], dep) for out in record.get("outs", []))
    ]


def _inside(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")
