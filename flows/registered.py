"""One version of a registered model, found by `NAME`, `NAME@alias` or `NAME/version`, and all that is known of it."""

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from efface.artifact_repository import object_path, tracked_files
from stages.lineage import all_stages
from stages.registry import (
    LINEAGE,
    recorded_file,
    recorded_metrics,
    registered_version,
    registered_versions,
    registry_client,
)

ADDRESS = re.compile(r"(?P<name>[\w.-]+)(@(?P<alias>[\w-]+)|/(?P<version>\d+))?")
PARENT = re.compile(r"models:/(?P<name>[^/]+)/(?P<version>\d+)")


class NotRegistered(ValueError):
    """An address that names no version of the registry; the message says which there are."""


@dataclass(frozen=True)
class Registered:
    """A version with its tags, aliases, metrics, `lineage.json`, and the version that it was edited from."""

    name: str
    version: int
    tags: Mapping[str, str]
    aliases: tuple[str, ...]
    metrics: Mapping[str, float]
    lineage: Mapping[str, Any]
    parent: "Registered | None"

    @property
    def address(self) -> str:
        return f"{self.name}/{self.version}"

    def files(self, folder: str) -> dict[str, Path]:
        """Relative name → place in the DVC cache of all that a stage of the lineage wrote below a folder.

        Raises: NotRegistered where no stage did; MlflowException where the cache lacks it.
        """
        for record in all_stages(self.lineage).values():
            for out, key in record["outs"].items():
                if f"{folder}/".startswith(f"{out}/"):
                    below = f"{folder}/".removeprefix(f"{out}/")
                    names = tracked_files(key).items()
                    return {name.removeprefix(below): object_path(md5) for name, md5 in names if name.startswith(below)}
        raise NotRegistered(f"{self.address}: its lineage names no {folder}")

    def content(self, path: str) -> Path:
        """Where the DVC cache keeps one file that a stage of the lineage wrote.

        Raises: NotRegistered where no stage did; MlflowException where the cache lacks it.
        """
        for folder, name in ((path, ""), path.rsplit("/", 1)):
            with suppress(NotRegistered, KeyError):
                return self.files(folder)[name]
        raise NotRegistered(f"{self.address}: its lineage names no {path}")


def find_registered(address: str) -> Registered:
    """The version at an address; without alias or version the newest.

    Raises: NotRegistered where there is none.
    """
    parts = ADDRESS.fullmatch(address)
    if parts is None:
        raise NotRegistered(f"{address!r}: expected NAME, NAME@alias or NAME/version, as in efface-tiny-grom/1")
    name, alias, version = parts["name"], parts["alias"], parts["version"]
    try:
        if alias:
            aliases = registry_client().get_registered_model(registered_versions(name)[0].name).aliases
            if alias not in aliases:
                raise NotRegistered(f"{name} has no alias {alias!r}; it has: {', '.join(sorted(aliases)) or 'none'}")
            version = aliases[alias]
        return _registered(name, int(version) if version else None)
    except ValueError as error:
        raise NotRegistered(str(error)) from error


def every_edit() -> list[Registered]:
    """Every registered version that is an edit, by name and version."""
    names = sorted(model.name for model in registry_client().search_registered_models())
    versions = [version for name in names for version in registered_versions(name)]
    return [_registered(found.name, int(found.version)) for found in versions if found.tags.get("edit")]


def _registered(name: str, version: int | None) -> Registered:
    found = registered_version(name, version)
    parent = PARENT.fullmatch(found.tags.get("parent", ""))
    return Registered(
        name=name,
        version=int(found.version),
        tags=dict(found.tags),
        aliases=tuple(sorted(found.aliases)),
        metrics=recorded_metrics(name, int(found.version)),
        lineage=json.loads(recorded_file(found, LINEAGE)),
        parent=_registered(parent["name"], int(parent["version"])) if parent else None,
    )
