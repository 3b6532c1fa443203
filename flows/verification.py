"""Hashes again everything that a lineage names: outputs in the DVC cache, code at the commit that is recorded."""

import hashlib
import json
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from mlflow.exceptions import MlflowException

from efface.artifact_repository import cache_folder, object_path, tracked_files
from flows.registered import Registered
from stages.lineage import WRITTEN_BY_STAGES, all_stages, gaps, lineage_sha256

COMMIT = re.compile(r"[0-9a-f]{40}")


@dataclass(frozen=True)
class Finding:
    """One file or folder of a lineage; `problem` is empty where its hash is what was recorded."""

    path: str
    problem: str = ""


def verify(model: Registered) -> Iterator[Finding]:
    """Every file behind a version, once each, with that of its parent; gaps and a changed `lineage.json` come first."""
    for version in filter(None, (model, model.parent)):
        yield from (Finding(version.address, gap) for gap in gaps(version.lineage))
        found = lineage_sha256(version.lineage)
        if found != version.tags.get("lineage_sha256"):
            yield Finding(
                f"{version.address} lineage.json",
                f"its SHA-256 is {found}, the tag lineage_sha256 says {version.tags.get('lineage_sha256')}",
            )
    checked: set[tuple[str, str]] = set()
    for version in filter(None, (model, model.parent)):
        for record in all_stages(version.lineage).values():
            for path, md5 in {**record["deps"], **record["outs"]}.items():
                if (path, md5) not in checked:
                    checked.add((path, md5))
                    written = path.startswith(WRITTEN_BY_STAGES)
                    yield from _content(path, md5) if written else _code(path, md5, version.tags.get("git.commit", ""))


def _content(path: str, md5: str) -> Iterator[Finding]:
    """An output, file by file."""
    try:
        if md5.endswith(".dir"):
            yield _hashed(path, md5)
        for name, key in tracked_files(md5).items():
            yield _hashed(f"{path}/{name}" if name else path, key)
    except (MlflowException, json.JSONDecodeError, KeyError, TypeError) as error:
        yield Finding(path, f"cannot be read: {error}")


def _hashed(path: str, md5: str) -> Finding:
    try:
        stored = object_path(md5)
    except MlflowException as error:
        return Finding(path, str(error))
    found = _file_md5(stored)
    if found == md5.removesuffix(".dir"):
        return Finding(path)
    return Finding(path, f"damaged: {stored.relative_to(cache_folder())} in the DVC cache now has MD5 {found}")


@cache
def _file_md5(file: Path) -> str:
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "md5").hexdigest()


@cache
def _code(path: str, md5: str, commit: str) -> tuple[Finding, ...]:
    """A file or folder of the repository, as its commit has it, hashed as DVC hashes it."""
    if not COMMIT.fullmatch(commit):
        return (Finding(path, f"no commit is recorded, got {commit!r}"),)
    try:
        names = _git("ls-tree", "-r", "-z", "--name-only", commit, "--", f":(literal){path}").decode().split("\0")[:-1]
        hashes = {name: hashlib.md5(_git("cat-file", "blob", f"{commit}:{name}")).hexdigest() for name in names}
    except subprocess.CalledProcessError:
        return (Finding(path, f"commit {commit} is not in this repository; run `git fetch --all` and try again"),)
    if md5.endswith(".dir"):
        entries = [{"md5": hashes[name], "relpath": name.removeprefix(f"{path}/")} for name in names]
        listing = json.dumps(sorted(entries, key=lambda entry: entry["relpath"]), sort_keys=True)
        found = hashlib.md5(listing.encode()).hexdigest() + ".dir"
    else:
        found = hashes.get(path)
    if found == md5:
        return (Finding(path),)
    return (Finding(path, f"commit {commit[:12]} holds MD5 {found}, the stage read {md5}: it ran uncommitted code"),)


def _git(*arguments: str) -> bytes:
    return subprocess.run(["git", *arguments], check=True, capture_output=True).stdout
