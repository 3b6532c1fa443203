"""What a fine-tuning run remembers after each epoch: one safetensors file, replaced whole, so never half new."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import nn

FILE = "checkpoint.safetensors"


@dataclass(frozen=True)
class LossPoint:
    """Loss of one optimizer step; steps and epochs count from 1."""

    step: int
    epoch: int
    loss: float


def save_checkpoint(
    folder: str | Path,
    run: dict[str, Any],
    trained: dict[str, nn.Parameter],
    optimizer: torch.optim.Optimizer,
    curve: list[LossPoint],
    memory: Mapping[str, torch.Tensor],
) -> None:
    """Writes parameters, moments and the loss's memory, and in the header what run this is and its losses so far."""
    path = Path(folder) / FILE
    path.parent.mkdir(parents=True, exist_ok=True)
    tensors = {f"parameter/{name}": parameter.detach() for name, parameter in trained.items()}
    for name, parameter in trained.items():
        for moment, value in optimizer.state[parameter].items():
            tensors[f"{moment}/{name}"] = value
    tensors |= {f"memory/{name}": value for name, value in memory.items()}
    header = {"efface": json.dumps({"run": run, "curve": [asdict(point) for point in curve]})}
    unfinished = path.with_suffix(".unfinished")
    save_file({key: value.cpu().contiguous() for key, value in tensors.items()}, unfinished, metadata=header)
    unfinished.replace(path)


def load_checkpoint(
    folder: str | Path,
    run: dict[str, Any],
    trained: dict[str, nn.Parameter],
    optimizer: torch.optim.Optimizer,
    memory: Mapping[str, torch.Tensor],
) -> list[LossPoint]:
    """Sets parameters, moments and memory as after the last finished epoch; an empty curve where there is none.

    Raises: ValueError where the file is damaged or of a run with other settings.
    """
    path = Path(folder) / FILE
    if not path.is_file():
        return []
    remedy = "delete it to train from the start"
    try:
        with safe_open(path, framework="pt") as file:
            header = json.loads((file.metadata() or {}).get("efface", "{}"))
            tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118 (not a mapping)
    except SafetensorError as error:
        raise ValueError(f"{path}: not a readable checkpoint ({error}); {remedy}") from error
    found = header.get("run", {})
    if found != run:
        changed = sorted(key for key in {*run, *found} if run.get(key) != found.get(key))
        raise ValueError(f"{path}: checkpoint of a run that differs in {', '.join(changed)}; {remedy}")
    _restore(tensors, trained, optimizer, memory)
    return [LossPoint(**point) for point in header["curve"]]


@torch.no_grad()
def _restore(
    tensors: dict[str, torch.Tensor],
    trained: dict[str, nn.Parameter],
    optimizer: torch.optim.Optimizer,
    memory: Mapping[str, torch.Tensor],
) -> None:
    for key, value in tensors.items():
        kind, name = key.split("/", 1)
        if kind == "memory":
            memory[name].copy_(value)
            continue
        parameter = trained[name]
        if kind == "parameter":
            parameter.copy_(value)
        elif kind == "step":
            optimizer.state[parameter][kind] = value
        else:
            optimizer.state[parameter][kind] = value.to(parameter.device)
