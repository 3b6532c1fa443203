"""Keeps MLflow's registry in step with what DVC has computed: the base model and every edit, addressed by content.

Runs after `dvc repro` and outside dvc.yaml. Calling it again creates nothing; a lost registry is repaired. A version's
source is `dvc://<md5>.dir` in the DVC cache (see efface/artifact_repository.py), so weights are never copied.
"""

import fcntl
import hashlib
import json
import math
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from stages.lineage import FLOW_RUN, Lock, content_key, lineage_of, lineage_sha256, producer_of, read_lock
from stages.registry import CARD, LINEAGE, logged_file, registry_client, tracking_uri

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities.model_registry import ModelVersion

METRICS = Path("data/compare/metrics.json")
RECEIPTS = Path("data/register_models/receipts.json")
CODE = ("efface", "stages", "dvc.yaml")


class RegistryError(ValueError):
    """MLflow cannot be read or written; whatever was computed is untouched."""


@dataclass(frozen=True)
class Registrable:
    """One model to register: `model` is its name in the results, `weights` a folder that DVC tracks."""

    profile: str
    model: str
    weights: str
    base: str
    edit: str = ""
    set: str = ""
    method: str = ""

    @property
    def name(self) -> str:
        """Its name in the registry; versions of one edit differ in forget set and content."""
        return f"efface-{self.profile}-{self.edit or self.model}"


@dataclass(frozen=True)
class Receipt:
    """What the registry holds for one model."""

    name: str
    version: int
    content_key: str


def main(item: str | None = None) -> None:
    from mlflow.exceptions import MlflowException

    uri = tracking_uri()
    try:
        receipts, created = register(uri)
    except MlflowException as error:
        remedy = "Nothing computed is lost; run `python -m stages register_models` again when it is back."
        raise RegistryError(f"MLflow at {uri}: {error}. {remedy}") from error
    _write_receipts(receipts)
    print(f"registry {uri}: {created} new model version(s), {len(receipts) - created} already there")


def register(uri: str) -> tuple[dict[str, Receipt], int]:
    """Registers every model of params.yaml that dvc.lock records and the cache holds; what is registered, and how many
    versions are new. Models that are not there yet are named on stderr and left out."""
    lock = read_lock()
    metrics = json.loads(METRICS.read_text()) if METRICS.is_file() else {}
    client = registry_client(uri)
    receipts: dict[str, Receipt] = {}
    created = 0
    with _one_at_a_time():
        for model in registrables(yaml.safe_load(Path("params.yaml").read_text())):
            if not _is_computed(lock, model):
                print(f"{model.model}: {model.weights} is not computed yet; run `dvc repro`", file=sys.stderr)
                continue
            version, is_new = _ensure_version(client, model, lock)
            _ensure_record(client, version, model, lock, _numbers(metrics.get(model.model, {})))
            receipts[model.model] = Receipt(model.name, int(version.version), content_key(lock, model.weights))
            created += is_new
    return receipts, created


def registrables(params: Mapping[str, Any]) -> list[Registrable]:
    """The bases first, so that an edit finds its parent, then the grid, as params.yaml lists them."""
    grid, edits = params.get("grid") or {}, params.get("edit") or {}
    bases = dict.fromkeys(["models/target", *(entry["base"] for entry in grid.values())])
    return [
        *(Registrable(params["profile"], _base_name(base), weights=base, base=base) for base in bases),
        *(
            Registrable(
                params["profile"],
                model,
                weights=entry["weights"],
                base=entry["base"],
                edit=entry["edit"],
                set=entry["set"],
                method=edits.get(entry["edit"], {}).get("method", ""),
            )
            for model, entry in grid.items()
        ),
    ]


@contextmanager
def _one_at_a_time() -> Iterator[None]:
    """Keeps two registrations on one cache apart: MLflow would let both create the same version."""
    from efface.artifact_repository import cache_folder

    with (cache_folder() / "register_models.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _is_computed(lock: Lock, model: Registrable) -> bool:
    from mlflow.exceptions import MlflowException

    from efface.artifact_repository import object_path

    try:
        return all(object_path(content_key(lock, path)) for path in (model.weights, model.base))
    except (KeyError, MlflowException):
        return False


def _ensure_version(client: "MlflowClient", model: Registrable, lock: Lock) -> tuple["ModelVersion", bool]:
    """The version of exactly these weights on this base for this set, and whether it had to be created."""
    key = content_key(lock, model.weights)
    same = {"content_key": key, "base_content_key": content_key(lock, model.base), "forget_set": model.set or "none"}
    for version in client.search_model_versions(f"name = '{model.name}'"):
        if all(version.tags.get(tag) == value for tag, value in same.items()):
            return version, False
    if not client.search_registered_models(f"name = '{model.name}'"):
        about = (
            f"Changes that edit `{model.edit}` makes to its base." if model.edit else "A model that edits start from."
        )
        client.create_registered_model(model.name, description=about)
    run = client.create_run(_experiment(client, model.profile), run_name=f"{model.profile} {model.model}")
    version = client.create_model_version(model.name, source=f"dvc://{key}", run_id=run.info.run_id, tags=same)
    client.set_terminated(run.info.run_id)
    return version, True


def _ensure_record(
    client: "MlflowClient", version: "ModelVersion", model: Registrable, lock: Lock, metrics: Mapping[str, float]
) -> None:
    """Puts metrics, lineage and card of a version into its run, where they are not there already.

    Where the same weights came about or were measured anew, tags and `lineage.json` follow; what they were before is
    kept under `earlier/`.
    """
    from mlflow.entities import Metric

    from stages.model_card import model_card

    run_id, lineage = str(version.run_id), lineage_of(lock, model.weights, model.model)
    have = client.get_run(run_id).data.metrics
    now = int(version.creation_timestamp)
    changed = [Metric(name, value, now, 0) for name, value in metrics.items() if have.get(name) != value]
    if changed:
        client.log_batch(run_id, metrics=changed)
    before = logged_file(client, run_id, LINEAGE)
    if before is None or json.loads(before) != lineage:
        if before is not None:
            _keep_earlier(client, version, json.loads(before))
        client.log_dict(run_id, lineage, LINEAGE)
        for name, value in _descriptive_tags(client, model, lock).items():
            client.set_model_version_tag(version.name, version.version, name, value)
    card = model_card(model.name, model.model, base=model.base, set=model.set, edit=model.edit)
    if logged_file(client, run_id, CARD) != card:
        client.log_text(run_id, card, CARD)


def _keep_earlier(client: "MlflowClient", version: "ModelVersion", lineage: Mapping[str, Any]) -> None:
    record = {"tags": dict(version.tags), **lineage}
    digest = hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()
    client.log_dict(str(version.run_id), record, f"earlier/{digest[:16]}.json")


def _descriptive_tags(client: "MlflowClient", model: Registrable, lock: Lock) -> dict[str, str]:
    stage = producer_of(lock, model.weights) or ""
    deps = {dep["path"]: dep["md5"] for dep in lock[stage].get("deps", [])}
    status = _git("status", "--porcelain", "--", *CODE)
    tags = {
        "profile": model.profile,
        "model": model.model,
        "edit": model.edit,
        "method": model.method,
        "forget_set_key": deps.get(f"data/forget_sets/{model.set}.parquet", ""),
        "parent": _parent(client, model, content_key(lock, model.base)) if model.edit else "",
        "dvc.stage": stage,
        "dvc.path": model.weights,
        "lineage_sha256": lineage_sha256(lineage_of(lock, model.weights)),
        "git.commit": _git("rev-parse", "HEAD") or "unknown",
        "git.dirty": "unknown" if status is None else str(bool(status)),
        "flow_run": os.environ.get(FLOW_RUN, ""),
    }
    return {name: value for name, value in tags.items() if value}


def _parent(client: "MlflowClient", model: Registrable, base_key: str) -> str:
    """The registered version of the base that an edit changes, as `models:/<name>/<version>`."""
    base = Registrable(model.profile, _base_name(model.base), weights=model.base, base=model.base)
    for version in client.search_model_versions(f"name = '{base.name}'"):
        if version.tags.get("content_key") == base_key:
            return f"models:/{version.name}/{version.version}"
    return ""


def _experiment(client: "MlflowClient", profile: str) -> str:
    """The experiment of a profile's runs; beside a SQLite registry its files are kept in `mlruns`."""
    name = f"efface-{profile}"
    found = client.get_experiment_by_name(name)
    if found is not None:
        return found.experiment_id
    _, is_file, path = client.tracking_uri.partition("sqlite:///")
    return client.create_experiment(
        name, artifact_location=str(Path(path).resolve().parent / "mlruns") if is_file else None
    )


def _numbers(metrics: Mapping[str, Any], prefix: str = "") -> dict[str, float]:
    """Every finite number of nested metrics, under its keys joined by dots, in characters that MLflow allows."""
    numbers: dict[str, float] = {}
    for key, value in metrics.items():
        name = re.sub(r"[^\w\-. /]", "_", f"{prefix}{key}")
        if isinstance(value, Mapping):
            numbers |= _numbers(value, f"{name}.")
        elif isinstance(value, int | float) and math.isfinite(value):
            numbers[name] = float(value)
    return numbers


def _write_receipts(receipts: Mapping[str, Receipt]) -> None:
    """Receipts say what this registry holds, so they are no part of the repository."""
    RECEIPTS.parent.mkdir(parents=True, exist_ok=True)
    (RECEIPTS.parent / ".gitignore").write_text("*\n")
    RECEIPTS.write_text(json.dumps({model: asdict(receipt) for model, receipt in receipts.items()}, indent=2) + "\n")


def _base_name(path: str) -> str:
    return path.removeprefix("models/").replace("/", "-")


def _git(*arguments: str) -> str | None:
    """What a git command prints; None outside a git repository."""
    done = subprocess.run(["git", *arguments], capture_output=True, text=True)
    return done.stdout.strip() if done.returncode == 0 else None
