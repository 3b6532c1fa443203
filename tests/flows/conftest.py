"""Prefect reads its settings when it is imported, so its state and DVC's go to a folder of this test run first."""

import atexit
import os
import shutil
import tempfile

os.environ["PREFECT_HOME"] = tempfile.mkdtemp(prefix="efface-prefect-")
os.environ["DVC_SITE_CACHE_DIR"] = os.environ["PREFECT_HOME"] + "/dvc"
os.environ["PREFECT_LOGGING_LEVEL"] = "WARNING"
os.environ.pop("PREFECT_API_URL", None)
atexit.register(shutil.rmtree, os.environ["PREFECT_HOME"], ignore_errors=True)
