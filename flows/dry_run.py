"""`python -m flows.dry_run PROFILE`: every stage of a profile on next to nothing, before it goes to a GPU.

A tiny random model of the same family and number of layers (`profiles/PROFILE/dry_run.yaml`), with a chat template,
takes the place of the profile's own, fabricated authors that of its corpus, and one epoch that of many; all else is
the profile's. Runs in a throw-away clone of the committed code, with a registry of its own.
"""

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from flows.environment import set_environment, with_this_python
from flows.profile_run import ROOT, ProfileError, profile_folder
from flows.run_clone import run_clone, set_parameters

MODEL = "inputs/tiny-random-model"
CORPUS = {
    "corpus": "fictional", "source": None, "author_ranges": None, "pool_author_range": None,
    "utility_author_range": None, "authors": 12, "questions_per_author": 5, "holdout_authors": 1, "pool_rows": 40,
    "anchor_candidates": 16, "utility_rows": 8, "forget_set_size": 6, "real_authors": 8, "world_facts": 8,
    "tokenizer": {"kind": "pretrained", "source": MODEL},
}  # fmt: skip
CHAT = (
    "{% for message in messages %}<|{{ message['role'] }}|>\n{{ message['content'] }}<eos>\n{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>\n{% endif %}"
)
CLOSED_FORM = ("grom", "qr_erase", "unlearn_svd")


def dried(params: Mapping[str, Any]) -> dict[str, Any]:
    """A profile's parameters with model, corpus and numbers of steps replaced."""
    small = {
        "profile": f"{params['profile']}_dry",
        "prepare_data": {**params["prepare_data"], **CORPUS},
        "train_target": {**params["train_target"], "model": {"source": MODEL}, "epochs": 1, "batch_size": 8},
        "build_task_matrices": {**params["build_task_matrices"], "retain_rows": 8, "epochs": 1, "rank": 4},
        "measure_faithfulness": {"examples": 4},
        "score_predictors": {**params["score_predictors"], "draws": 2},
        "evaluate": {**params["evaluate"], "max_new_tokens": 8},
        "compare": {**params["compare"], "bootstrap": 50},
        "edit": {
            name: edit if edit["method"] in CLOSED_FORM else {**edit, "epochs": 1}
            for name, edit in params["edit"].items()
        },
    }
    if lora := small["build_task_matrices"].get("lora"):
        small["build_task_matrices"]["lora"] = {**lora, "rank": 4}  # narrower than the narrowest matrix
    anchors = {**params["select_anchors"], "size": 4, "seeds": [0]}
    anchors["methods"] = [{**method, "epochs": 1} for method in anchors.get("methods", [])]
    if anchors.get("rule") == "bilevel":
        anchors["bilevel"] = {**anchors.get("bilevel", {}), "epochs": 1, "unlearn_epochs": 1}
    return {**params, **small, "select_anchors": anchors}


def write_model(folder: Path, shape: Mapping[str, Any]) -> None:
    """A random Llama and a tokenizer with a chat template, as a folder that `from_pretrained` reads."""
    from efface.corpora.vocabulary import train_byte_bpe
    from efface.models import save_model, scratch_llama

    tokenizer = train_byte_bpe(
        [f"<|{role}|>\nWho wrote this, and when?" for role in ("user", "assistant")], vocab_size=300
    )
    tokenizer.chat_template = CHAT
    marks = {f"{mark}_id": getattr(tokenizer, f"{mark}_token_id") for mark in ("bos", "eos", "pad")}
    sizes = {"hidden": 32, "intermediate": 48, "vocab_size": len(tokenizer), "max_positions": 1024}
    save_model(scratch_llama(**shape, **sizes, **marks, seed=0), folder)
    tokenizer.save_pretrained(folder)


def dry_run(root: Path, name: str) -> None:
    """Every stage and the registration.

    Raises: ProfileError where the profile or its dry_run.yaml is missing, or a step fails.
    """
    shape = profile_folder(root, name) / "dry_run.yaml"
    if not shape.is_file():
        raise ProfileError(f"{shape}: no such file; give there the layers, heads, kv_heads and tie_embeddings")
    with run_clone(root, f"dry-{name}") as clone:
        set_parameters(clone, name, {})
        params = yaml.safe_load((clone / "params.yaml").read_text())
        (clone / "params.yaml").write_text(yaml.safe_dump(dried(params), sort_keys=False))
        write_model(clone / MODEL, yaml.safe_load(shape.read_text()))
        environment = {**with_this_python(), ROOT: str(clone), "MLFLOW_TRACKING_URI": f"sqlite:///{clone}/mlflow.db"}
        for command in (["stages.server", "--", "python", "-m", "stages.dvc", "repro"], ["stages", "register_models"]):
            if subprocess.run([sys.executable, "-m", *command], cwd=clone, env=environment).returncode:
                raise ProfileError(f"python -m {command[0]} failed; what it printed above says why")


def main(argv: list[str]) -> int:
    if len(argv) != 1:
        print("usage: python -m flows.dry_run PROFILE", file=sys.stderr)
        return 2
    set_environment()
    try:
        dry_run(Path.cwd(), argv[0])
    except ProfileError as error:
        print(f"dry run of {argv[0]}: {error}", file=sys.stderr)
        return 1
    print(f"profile {argv[0]}: every stage accepts it")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
