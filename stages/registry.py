"""Finds and reads what MLflow's registry holds: versions, their metrics and files, and the models themselves."""

import logging
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities.model_registry import ModelVersion
    from transformers import PreTrainedModel

LINEAGE, CARD = "lineage.json", "README.md"


def tracking_uri() -> str:
    """`MLFLOW_TRACKING_URI`, else the SQLite file that `mlflow ui` opens by default in the checkout."""
    return os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{Path('mlflow.db').resolve()}"


def load_registered(name: str, version: int | None = None, *, uri: str | None = None) -> "PreTrainedModel":
    """A registered model, base plus delta, from the content that its tags name; the newest version by default.

    Raises: ValueError where the registry has no such model or version.
    """
    from efface.artifact_repository import DvcArtifactRepository
    from efface.editing.delta import load_edited
    from efface.models import load_model

    found = registered_version(name, version, uri=uri)
    with tempfile.TemporaryDirectory() as base, tempfile.TemporaryDirectory() as delta:
        DvcArtifactRepository(f"dvc://{found.tags['base_content_key']}").download_artifacts("", base)
        if found.tags["content_key"] == found.tags["base_content_key"]:
            return load_model(base)
        DvcArtifactRepository(str(found.source)).download_artifacts("", delta)
        return load_edited(base, Path(delta) / "delta.safetensors")


def registered_version(name: str, version: int | None = None, *, uri: str | None = None) -> "ModelVersion":
    """One version of a registered model, the newest by default.

    Raises: ValueError where there is none, naming those there are.
    """
    versions = {int(found.version): found for found in registered_versions(name, uri=uri)}
    chosen = max(versions) if version is None else version
    if chosen not in versions:
        raise ValueError(f"{name} has no version {chosen}; there are: {sorted(versions)}")
    return versions[chosen]


def registered_versions(name: str, *, uri: str | None = None) -> list["ModelVersion"]:
    """Every version of a registered model, in order.

    Raises: ValueError where there is none, naming the models there are.
    """
    client = registry_client(uri)
    known = sorted(model.name for model in client.search_registered_models())
    if name not in known:
        raise ValueError(f"no registered model {name!r}; there are: {', '.join(known) or 'none'}")
    return sorted(client.search_model_versions(f"name = '{name}'"), key=lambda found: int(found.version))


def recorded_metrics(name: str, version: int | None = None, *, uri: str | None = None) -> dict[str, float]:
    """The metrics beside a registered version, as the comparison found them: `<quantization>.<metric>` → value."""
    found = registered_version(name, version, uri=uri)
    return dict(registry_client(uri).get_run(str(found.run_id)).data.metrics)


def recorded_file(version: "ModelVersion", file: str, *, uri: str | None = None) -> str:
    """The text of `lineage.json` or of the model card beside a registered version.

    Raises: ValueError where the registry has lost it.
    """
    text = logged_file(registry_client(uri), str(version.run_id), file)
    if text is None:
        raise ValueError(
            f"{version.name} version {version.version}: its run holds no {file}; "
            "run `python -m stages register_models` in the checkout that computed it"
        )
    return text


def registry_client(uri: str | None = None) -> "MlflowClient":
    """MLflow's client for the registry at `uri`, that of `tracking_uri` by default."""
    uri = uri or tracking_uri()
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    os.environ.setdefault("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "false")
    from mlflow import MlflowClient

    for chatty in ("alembic", "mlflow.store.db.utils"):
        logging.getLogger(chatty).setLevel(logging.WARNING)
    return MlflowClient(tracking_uri=uri, registry_uri=uri)


def logged_file(client: "MlflowClient", run_id: str, file: str) -> str | None:
    """The text of a file of a run; None where it has none."""
    if file not in {found.path for found in client.list_artifacts(run_id)}:
        return None
    with tempfile.TemporaryDirectory() as folder:
        return Path(client.download_artifacts(run_id, file, folder)).read_text()
