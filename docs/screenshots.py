"""Pictures of what the pipeline shows: report, Prefect, MLflow; `python docs/screenshots.py` after `make repro`.

Starts a Prefect server and an MLflow page of its own on loopback, runs the flow (all stages cached), opens every page
in a headless Chromium, and writes docs/screenshots/*.png. Nothing is left running.
"""

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

OUTPUT = Path("docs/screenshots")
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
QUIET = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--hide-scrollbars",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--virtual-time-budget=20000",
)  # fmt: skip
PATIENCE = 120


def main() -> None:
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        sys.exit(f"no browser: expected one of {', '.join(BROWSERS)} on the path")
    OUTPUT.mkdir(exist_ok=True)
    with ExitStack() as running:
        home = running.enter_context(tempfile.TemporaryDirectory())
        prefect, mlflow = free_port(), free_port()
        api = f"http://127.0.0.1:{prefect}/api"
        environment = {**os.environ, "PREFECT_API_URL": api, "PREFECT_HOME": home, "MLFLOW_DISABLE_TELEMETRY": "true"}
        environment["PREFECT_SERVER_ANALYTICS_ENABLED"] = "false"
        server = ["prefect", "server", "start", "--host", "127.0.0.1", "--port", str(prefect)]
        running.enter_context(service(server, f"{api}/health", environment))
        page = ["mlflow", "ui", "--port", str(mlflow), "--backend-store-uri", "sqlite:///mlflow.db"]
        running.enter_context(service(page, f"http://127.0.0.1:{mlflow}/health", environment))
        subprocess.run([sys.executable, "-m", "flows.pipeline"], env=environment, check=True)
        run = asked(f"{api}/flow_runs/filter", {})[0]["id"]
        name = "efface-tiny-grom"
        for picture, address, height in (
            ("report", Path("data/report/index.html").resolve().as_uri(), 2400),
            ("prefect_runs", f"http://127.0.0.1:{prefect}/runs", 1000),
            ("prefect_flow_run", f"http://127.0.0.1:{prefect}/runs/flow-run/{run}", 1400),
            ("prefect_artifacts", f"http://127.0.0.1:{prefect}/artifacts", 1000),
            ("mlflow_models", f"http://127.0.0.1:{mlflow}/#/models", 1000),
            ("mlflow_version", f"http://127.0.0.1:{mlflow}/#/models/{name}/versions/1", 1400),
        ):
            profile = running.enter_context(tempfile.TemporaryDirectory())
            size = [f"--window-size=1280,{height}", f"--user-data-dir={profile}"]
            file = OUTPUT / f"{picture}.png"
            subprocess.run([browser, *QUIET, *size, f"--screenshot={file.resolve()}", address], check=True)
            print(file)


@contextmanager
def service(module: list[str], health: str, environment: dict[str, str]) -> Iterator[None]:
    """A Python module that serves while this lasts; silent."""
    process = subprocess.Popen([sys.executable, "-m", *module], env=environment, stdout=subprocess.DEVNULL)
    try:
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            try:
                urllib.request.urlopen(health, timeout=5)
                break
            except OSError:
                time.sleep(0.5)
        else:
            sys.exit(f"{' '.join(module)} did not answer within {PATIENCE} s")
        yield
    finally:
        process.terminate()
        process.wait(30)


def asked(address: str, body: dict) -> list[dict]:
    request = urllib.request.Request(address, json.dumps(body).encode(), {"Content-Type": "application/json"})
    return json.load(urllib.request.urlopen(request, timeout=60))


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


if __name__ == "__main__":
    main()
