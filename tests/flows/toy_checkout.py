"""A checkout whose stages fabricate their tables at once: real names, real tables, a real (tiny) model, no learning.

Example 2 is forgotten: p(answer) falls from 0.9 to 0.1, and 4 bits bring it back to 0.3, a quarter of what was erased.
"""

import shutil
import subprocess
from pathlib import Path

from flows.environment import with_this_python

ROOT = Path(__file__).resolve().parent.parent.parent
CODE = ("efface", "stages", "flows", "prefect.yaml", "promotion.yaml", ".gitignore", ".dvcignore")
DVC_YAML = """
stages:
  prepare_data:
    cmd: python make.py prepare_data
    deps: [make.py, stages/tables]
    outs: [data/prepare_data, data/forget_sets/default.parquet]
  train_target:
    cmd: python make.py train_target
    deps: [make.py, data/prepare_data]
    outs: [models/target]
  score_cud:
    cmd: python make.py score_cud
    deps: [make.py, data/prepare_data, models/target]
    params: [seconds]
    outs: [data/score_cud]
  accept_requests:
    foreach: ${requests}
    do:
      cmd: python make.py accept_requests ${key}
      deps: [make.py, data/prepare_data, data/score_cud]
      params: ["requests.${key}"]
      outs: ["data/accept_requests/${key}", "data/forget_sets/${key}.parquet"]
  edit:
    foreach: ${grid}
    do:
      cmd: python make.py edit ${key} ${item.set}
      deps: [make.py, models/target, data/prepare_data, "data/forget_sets/${item.set}.parquet", data/score_cud]
      params: ["edit.${item.edit}"]
      outs: ["${item.weights}", "data/edit/${key}"]
  evaluate:
    foreach: ${models}
    do:
      cmd: python make.py evaluate ${key}
      deps: [make.py, "${item.weights}", models/target, data/prepare_data]
      outs: ["data/evaluate/${key}"]
  quantize_attack:
    foreach: ${models}
    do:
      cmd: python make.py quantize_attack ${key}
      deps: [make.py, "${item.weights}", models/target, data/prepare_data]
      outs: ["data/quantize_attack/${key}"]
  compare:
    cmd: python make.py compare
    deps: [make.py, data/evaluate, data/quantize_attack]
    outs: [data/compare/metrics.parquet, data/report]
    metrics: [{data/compare/metrics.json: {cache: false}}]
"""
PARAMS = """\
profile: toy  # a comment that overrides leave alone
seconds: 0
sets: [default]
requests: {}
edit: {grom: {method: grom, beta: 3}}
grid: &grid
  grom-default: {edit: grom, set: default, base: models/target, weights: models/edit/grom-default}
models:
  <<: *grid
  target: {base: models/target, weights: models/target}
"""
MAKE = """
import json, os, sys, time
from pathlib import Path
import polars as pl
import yaml
from stages.tables.difficulty import DIFFICULTY
from stages.tables.examples import EXAMPLES
from stages.tables.forget_sets import FORGET_SETS
from stages.tables.influence import INFLUENCE
from stages.tables.metrics import METRICS
from stages.tables.requested import REQUESTED
from stages.tables.results import RESULTS

MODULE = "model.layers.0.mlp.down_proj"
P = {("target", "none"): 0.9, ("target", "rtn_4"): 0.9, ("grom", "none"): 0.1, ("grom", "rtn_4"): 0.3}


def prepare_data():
    from efface.corpora.vocabulary import train_byte_bpe

    rows = [
        {
            "id": i, "content_hash": f"{i:064x}", "split": "authors", "author": i, "position": 0,
            "question": f"Who {i}?",
            "answer": f"Me {i}.", "paraphrased_answer": None, "perturbed_answers": [], "trained": True, "pool": True,
            "anchor_candidate": False, "utility": False,
        }
        for i in range(4)
    ]
    EXAMPLES.write("data/prepare_data/examples.parquet", pl.DataFrame(rows, schema_overrides={"author": pl.Int32}))
    train_byte_bpe([row["question"] for row in rows], vocab_size=300).save_pretrained("data/prepare_data/tokenizer")
    FORGET_SETS.write("data/forget_sets/default.parquet", pl.DataFrame({"id": [2], "role": ["forget"]}))


def train_target():
    from efface.models import save_model, scratch_llama

    shape = {"vocab_size": 300, "layers": 1, "hidden": 16, "heads": 2, "kv_heads": 1, "intermediate": 24}
    save_model(scratch_llama(**shape, tie_embeddings=True, seed=0), "models/target")


def score_cud():
    if seconds := yaml.safe_load(Path("params.yaml").read_text())["seconds"]:
        (Path(os.environ["EFFACE_ROOT"]) / "stage.pid").write_text(str(os.getpid()))
        time.sleep(seconds)
    row = {"source": "all", "similarity": "cosine", "weighting": "binary", "s_easy": 0.4, "s_hard": 0.6,
           "undefined": False, "chosen": True, "anchor": None}
    rows = [{**row, "id": i, "cud": cud} for i, cud in enumerate((0.25, 0.5, 0.75, 1.0))]
    DIFFICULTY.write("data/score_cud/difficulty.parquet", pl.DataFrame(rows))


def accept_requests(name):
    asked = yaml.safe_load(Path("params.yaml").read_text())["requests"][name]
    rows = [(i, f"{i:064x}", role, 0.25 * (i + 1), i / 3)
            for role in ("forget", "withdrawn") for i in asked[role]]
    frame = pl.DataFrame(rows, schema=list(REQUESTED.columns), orient="row")
    REQUESTED.write(f"data/accept_requests/{name}/requested.parquet", frame)
    FORGET_SETS.write(f"data/forget_sets/{name}.parquet", frame.select("id", "role"))


def edit(name, forget_set):
    import torch
    from efface.editing.delta import save_delta
    from efface.models import WEIGHTS, file_md5

    base = file_md5(f"models/target/{WEIGHTS}")
    asked = FORGET_SETS.read(f"data/forget_sets/{forget_set}.parquet")
    change = {f"{MODULE}.weight": torch.full((16, 24), 0.05 * asked.filter(role="forget")["id"].sum())}
    save_delta(f"models/edit/{name}/delta.safetensors", change, base_md5=base)
    rows = [{"id": i, "layer": 0, "module": MODULE, "influence_norm": 1.0, "relative": 0.5} for i in asked["id"]]
    INFLUENCE.write(f"data/edit/{name}/influence.parquet", pl.DataFrame(rows))
    record = {"method": "grom", "base_md5": base, "seed": 0, "forget_rows": 1, "retain_rows": 3,
              "parameters": {"beta": 3}, "weights": {f"{MODULE}.weight": {"relative_norm": 0.25}}}
    Path(f"data/edit/{name}/record.json").write_text(json.dumps(record))


def results(stage, model, quantization):
    row = {"model": model, "quantization": quantization, "dtype": "float32", "metric": "probability"}
    value = P[model.partition("-")[0], quantization]
    rows = [{**row, "id": i, "value": value} for i in range(4)]
    RESULTS.write(f"data/{stage}/{model}/results.parquet", pl.DataFrame(rows))


def evaluate(model):
    results("evaluate", model, "none")


def quantize_attack(model):
    results("quantize_attack", model, "rtn_4")


def compare():
    rows, numbers = [], {}
    params = yaml.safe_load(Path("params.yaml").read_text())
    for model, (edit, quantization), p in ((m, key, p) for m in params["models"] for key, p in P.items()):
        if edit != model.partition("-")[0]:
            continue
        found = {("forget", "probability"): p}
        if quantization == "none":
            found |= {("utility", "model_utility"): 0.875, ("forget", "extraction_strength"): 0.05}
        elif model != "target":
            found |= {("forget", "recovery_rate_probability"): 0.25}
        for (split, metric), value in found.items():
            rows.append({"profile": "toy", "model": model, "edit": edit, "forget_set": params["sets"][0],
                         "seed": 0, "dtype": "float32", "quantization": quantization, "split": split, "metric": metric,
                         "value": value, "n": 1, "ci_low": value - 0.01, "ci_high": value + 0.01, "direction": "none"})
        names = {"probability": "forget_probability", "extraction_strength": "forget_extraction_strength",
                 "recovery_rate_probability": "recovery"}
        numbers.setdefault(model, {})[quantization] = {names.get(m, m): v for (_, m), v in found.items()}
    METRICS.write("data/compare/metrics.parquet", pl.DataFrame(rows))
    Path("data/compare/metrics.json").write_text(json.dumps(numbers))
    Path("data/report").mkdir(parents=True)
    Path("data/report/index.html").write_text("<p>report")


globals()[sys.argv[1]](*sys.argv[2:])
"""


def command(folder: Path, *words: str) -> str:
    """What a command prints in a folder, with the folder's own packages first."""
    environment = {**with_this_python(), "PYTHONPATH": str(folder)}
    done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, f"{words}: {done.stdout[-2000:]}{done.stderr[-4000:]}"
    return done.stdout


def commit_all(folder: Path, message: str) -> None:
    command(folder, "git", "add", "-A")
    command(folder, "git", "-c", "user.name=t", "-c", "user.email=t@t", "commit", "-qm", message)


def toy_checkout(folder: Path) -> Path:
    """A committed copy of the code with the toy pipeline, nothing of it run."""
    folder.mkdir()
    for name in CODE:
        source, target = ROOT / name, folder / name
        ignore = shutil.ignore_patterns("__pycache__")
        _ = shutil.copytree(source, target, ignore=ignore) if source.is_dir() else shutil.copyfile(source, target)
    for name, text in {"dvc.yaml": DVC_YAML, "params.yaml": PARAMS, "make.py": MAKE}.items():
        (folder / name).write_text(text)
    command(folder, "git", "init", "-q")
    command(folder, "dvc", "init", "-q")
    commit_all(folder, "toy")
    return folder
