"""Settings under which a checkout runs by itself: no server, nothing outside its folder, nothing sent anywhere."""

import os
import sys
from pathlib import Path

SETTINGS = {
    "DO_NOT_TRACK": "true",
    "DVC_NO_ANALYTICS": "1",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "120",
    "TOKENIZERS_PARALLELISM": "false",
}


def set_environment(root: str | Path = ".") -> None:
    """Puts the state of Prefect and DVC under `.state/`, where the caller's environment does not say otherwise.

    Prefect reads its settings when it is imported: call this before. A team's server is used by setting
    PREFECT_API_URL, its profiles by setting PREFECT_HOME.
    """
    state = Path(root).resolve() / ".state"
    for name, folder in {"PREFECT_HOME": state / "prefect", "DVC_SITE_CACHE_DIR": state / "dvc"}.items():
        if name not in os.environ:
            folder.mkdir(parents=True, exist_ok=True)
            os.environ[name] = str(folder)
    for name, value in SETTINGS.items():
        os.environ.setdefault(name, value)


def with_this_python() -> dict[str, str]:
    """The environment for a command, in which `python` and `dvc` are those of this interpreter."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    return {**os.environ, "PATH": path}
