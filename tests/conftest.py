"""What every test may ask for."""

import os
from pathlib import Path

import pytest

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("DVC_NO_ANALYTICS", "1")
os.environ.setdefault("DO_NOT_TRACK", "true")
os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def shared_folder() -> Path:
    """Published data and expected values, outside the repository; `EFFACE_SHARED` names another place."""
    folder = Path(os.environ.get("EFFACE_SHARED", ROOT.parent / "shared"))
    if not folder.is_dir():
        pytest.skip(f"reference data not found at {folder}; set EFFACE_SHARED to run this test")
    return folder
