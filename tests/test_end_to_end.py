"""The whole pipeline on a micro configuration: every stage does its real job, only smaller."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest
import yaml

ROOT = Path(__file__).resolve().parent.parent
EDITS = ("grom", "qr_erase_localised", "grad_diff")


def micro_params() -> dict:
    """The default parameters, shrunk: two layers, 60 rows, three edits on `default` and one on `hard`."""
    params = yaml.safe_load((ROOT / "params.yaml").read_text())
    params["profile"] = "micro"
    params["sets"], params["retained"], params["task_matrices"] = ["default", "hard"], ["default"], ["default"]
    params["prepare_data"] |= {
        "authors": 12, "questions_per_author": 5, "holdout_authors": 1, "pool_rows": 40, "anchor_candidates": 16,
        "utility_rows": 8, "forget_set_size": 6, "real_authors": 8, "world_facts": 8,
    }  # fmt: skip
    params["train_target"]["model"] |= {"layers": 2, "hidden": 64, "heads": 4, "kv_heads": 2, "intermediate": 128}
    params["train_target"] |= {"epochs": 25, "batch_size": 8}
    params["select_anchors"] |= {"size": 4}
    params["edit"]["grom"] |= {"layers": [0, 1]}
    keep = {f"{edit}-default" for edit in EDITS} | {"grom-hard"}
    params["grid"] = {name: item for name, item in params["grid"].items() if name in keep}
    params["models"] = {
        name: item for name, item in params["models"].items() if name in keep | {"target", "retained-default"}
    }
    params["quantize_attack"] |= {"schemes": ["rtn_4"]}
    params["compare"] |= {"bootstrap": 50}
    return params


def checkout(folder: Path) -> Path:
    """A copy of the code under version control, with the micro parameters and no lock file."""
    skip = {".git", ".venv", ".dvc", "data", "models", "dvc.lock", ".scratch", ".state", "mlflow.db"}
    shutil.copytree(ROOT, folder, ignore=lambda _, names: [name for name in names if name in skip])
    (folder / "params.yaml").write_text(yaml.safe_dump(micro_params(), sort_keys=False))
    for command in (["git", "init", "--quiet"], [sys.executable, "-m", "dvc", "init", "--quiet"]):
        subprocess.run(command, cwd=folder, check=True)
    return folder


def run(folder: Path, *command: str) -> str:
    environment = os.environ | {"PYTHONPATH": str(folder), "DVC_SITE_CACHE_DIR": str(folder / ".state" / "dvc")}
    environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}"
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return done.stdout


@pytest.mark.end_to_end
def test_pipeline_runs_repeats_and_reruns_only_what_changed(tmp_path):
    folder = checkout(tmp_path / "checkout")
    repro = (sys.executable, "-m", "stages.server", "--", sys.executable, "-m", "stages.dvc", "repro")
    run(folder, *repro)

    metrics = json.loads((folder / "data/compare/metrics.json").read_text())
    assert {"target", "retained-default", "grom-default", "grom-hard"} <= set(metrics)
    results = pl.read_parquet(folder / "data/evaluate/target/results.parquet")
    assert results["value"].is_finite().all()
    report = (folder / "data/report/index.html").read_text()
    assert "grom" in report and "https://" not in report.replace("https://www.w3.org", "")

    assert "Running stage" not in run(folder, *repro)

    params = yaml.safe_load((folder / "params.yaml").read_text())
    params["edit"]["grad_diff"]["epochs"] = 2
    (folder / "params.yaml").write_text(yaml.safe_dump(params, sort_keys=False))
    ran = [line.split("'")[1] for line in run(folder, *repro).splitlines() if line.startswith("Running stage")]
    assert "edit@grad_diff-default" in ran
    assert not [stage for stage in ran if "@" in stage and "grad_diff-default" not in stage]

    table = run(folder, sys.executable, "-m", "stages", "results_table")
    assert "grom" in table and "hard" in table
    register = (sys.executable, "-m", "stages", "register_models")
    assert "5 new model version(s), 0 already there" in run(folder, *register)
    assert "0 new model version(s), 5 already there" in run(folder, *register)
    assert "recorded" in run(folder, sys.executable, "-m", "stages", "check_registered", "grom-hard")
