"""MLflow's view of weights that DVC keeps: resolves `dvc://<md5>[.dir][/path]` inside the DVC cache.

A registered model names its weights by content and owns no copy of them. The cache is the one named by
`EFFACE_DVC_CACHE`, else that of the DVC repository around the working directory.
"""

import configparser
import hashlib
import json
import os
import re
import shutil
from pathlib import Path, PurePosixPath
from urllib.parse import unquote, urlparse

from mlflow.entities import FileInfo
from mlflow.exceptions import MlflowException
from mlflow.store.artifact.artifact_repo import ArtifactRepository

CACHE = "EFFACE_DVC_CACHE"
CONTENT_KEY = re.compile(r"[0-9a-f]{32}(\.dir)?")


class DvcArtifactRepository(ArtifactRepository):
    """The files of one content key, read only; every download is checked against its md5.

    Raises: MlflowException where the URI holds no md5, or the cache lacks the content.
    """

    def __init__(self, artifact_uri: str, tracking_uri: str | None = None, registry_uri: str | None = None) -> None:
        super().__init__(artifact_uri, tracking_uri, registry_uri)
        parsed = urlparse(artifact_uri)
        self.files = _files_below(tracked_files(parsed.netloc), unquote(parsed.path).strip("/"))

    def list_artifacts(self, path: str | None = None) -> list[FileInfo]:
        prefix = f"{path.strip('/')}/" if path and path.strip("/.") else ""
        infos: dict[str, FileInfo] = {}
        for name, md5 in self.files.items():
            head, _, tail = name.removeprefix(prefix).partition("/")
            if name and name.startswith(prefix):
                size = None if tail else object_path(md5).stat().st_size
                infos[prefix + head] = FileInfo(prefix + head, bool(tail), size)
        return [infos[name] for name in sorted(infos)]

    def _download_file(self, remote_file_path: str, local_path: str) -> None:
        md5 = self.files.get(remote_file_path) or self.files.get("")
        if md5 is None:
            raise MlflowException(f"{self.artifact_uri}: no file {remote_file_path!r}; it has {sorted(self.files)}")
        Path(local_path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(object_path(md5), local_path)
        with open(local_path, "rb") as file:
            found = hashlib.file_digest(file, "md5").hexdigest()
        if found != md5:
            os.remove(local_path)
            raise MlflowException(
                f"{object_path(md5)}: damaged, its md5 is {found}; delete it and run `dvc fetch` or `dvc repro`"
            )

    def log_artifact(self, local_file: str, artifact_path: str | None = None) -> None:
        raise MlflowException(f"{self.artifact_uri}: read only; DVC writes these files")

    def log_artifacts(self, local_dir: str, artifact_path: str | None = None) -> None:
        self.log_artifact(local_dir)


def tracked_files(content_key: str) -> dict[str, str]:
    """Relative path → md5 of everything under a content key; a single file has the path "".

    Raises: MlflowException where the key is not an md5, is not in the cache, or lists a path outside its folder.
    """
    if not CONTENT_KEY.fullmatch(content_key):
        raise MlflowException(f"{content_key!r}: expected the md5 of a DVC output, as in dvc://<md5>.dir")
    if not content_key.endswith(".dir"):
        return {"": content_key}
    files = {entry["relpath"]: entry["md5"] for entry in json.loads(object_path(content_key).read_text())}
    for name, md5 in files.items():
        path = PurePosixPath(name)
        if path.is_absolute() or ".." in path.parts or not CONTENT_KEY.fullmatch(md5):
            raise MlflowException(f"dvc://{content_key}: refused, it lists the unsafe path {name!r}")
    return files


def object_path(content_key: str) -> Path:
    """Where the cache keeps this content.

    Raises: MlflowException where it does not.
    """
    path = cache_folder() / "files" / "md5" / content_key[:2] / content_key[2:]
    if not path.is_file():
        raise MlflowException(
            f"dvc://{content_key}: not in the DVC cache {cache_folder()}; run `dvc fetch` or `dvc repro`, "
            f"or set {CACHE} to the cache that has it"
        )
    return path


def cache_folder() -> Path:
    """The DVC cache: `EFFACE_DVC_CACHE`, else the one configured for the repository around the working directory.

    Raises: MlflowException where there is neither.
    """
    if os.environ.get(CACHE):
        return Path(os.environ[CACHE])
    for folder in (Path.cwd(), *Path.cwd().parents):
        if (folder / ".dvc" / "config").is_file():
            return _configured_cache(folder / ".dvc")
    raise MlflowException(f"{Path.cwd()}: not inside a DVC repository; change into the checkout or set {CACHE}")


def _configured_cache(dvc: Path) -> Path:
    """`cache.dir` of the repository's configuration files, relative to their folder as DVC writes it."""
    config = configparser.ConfigParser(interpolation=None)
    config.read([dvc / "config", dvc / "config.local"])
    return dvc / Path(config.get("cache", "dir", fallback="cache"))


def _files_below(files: dict[str, str], path: str) -> dict[str, str]:
    """The part of `files` below `path`, named relative to it; a single file answers to any name."""
    if not path or "" in files:
        return files
    inside = [name for name in files if name == path or name.startswith(f"{path}/")]
    below = {name.removeprefix(path).lstrip("/"): files[name] for name in inside}
    if not below:
        raise MlflowException(f"no file or folder {path!r}; there are {sorted(files)}")
    return below
