"""A delta: the change an edit makes to a model's weights, kept alone and applied to the base model."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from jaxtyping import Float
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor
from transformers import PreTrainedModel

from efface.models import WEIGHTS, file_md5, load_model, untie_unembedding

FORMAT = 1
DELTA = "delta.safetensors"
REMEDY = "delete it and run the edit stage again (`dvc repro`)"


@dataclass(frozen=True)
class LowRank:
    """left · right, a weight change of rank at most the inner width."""

    left: Float[Tensor, "out rank"]
    right: Float[Tensor, "rank in"]

    @property
    def shape(self) -> torch.Size:
        return torch.Size((self.left.shape[0], self.right.shape[1]))

    def dense(self) -> Float[Tensor, "out in"]:
        """The product, in the factors' precision."""
        return self.left @ self.right


Delta = dict[str, Tensor | LowRank]


def dense(change: Tensor | LowRank) -> Tensor:
    """The change as one tensor."""
    return change.dense() if isinstance(change, LowRank) else change


def changed_weight(weight: Tensor, change: Tensor | LowRank) -> Tensor:
    """W + change, added in float32 and rounded to W's type: the definition of an edited weight."""
    return (weight.detach().float() + dense(change).to(weight.device).float()).to(weight.dtype)


@torch.no_grad()
def apply_delta(model: PreTrainedModel, delta: Mapping[str, Tensor | LowRank]) -> None:
    """Adds the delta to the model in place; a delta that names a tied unembedding gives it weights of its own first.

    Raises: ValueError where the model has no such parameter, or one of another shape.
    """
    if any(
        module is model.get_output_embeddings() and f"{name}.weight" in delta for name, module in model.named_modules()
    ):
        untie_unembedding(model)
    parameters = dict(model.named_parameters(remove_duplicate=False))
    for name, change in delta.items():
        if name not in parameters:
            raise ValueError(
                f"delta names {name!r}, which this {type(model).__name__} has not; use the delta's own base"
            )
        weight = parameters[name]
        if weight.shape != change.shape:
            raise ValueError(
                f"{name}: delta has shape {tuple(change.shape)}, expected the base's {tuple(weight.shape)}"
            )
        weight.copy_(changed_weight(weight, change))


def save_delta(path: str | Path, delta: Mapping[str, Tensor | LowRank], *, base_md5: str) -> None:
    """One safetensors file in float32, the same bytes for the same delta; `base_md5` is that of the base's weights.

    Raises: ValueError where a change is not finite.
    """
    tensors = {}
    for name, change in sorted(delta.items()):
        low_rank = isinstance(change, LowRank)
        parts = {f"{name}/left": change.left, f"{name}/right": change.right} if low_rank else {name: change}
        for key, value in parts.items():
            if not torch.isfinite(value).all():
                raise ValueError(f"{key}: the change is not finite; lower the edit's strength or learning rate")
            tensors[key] = value.detach().float().cpu().contiguous()
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    # The library writes several metadata keys in random order, hence a single one.
    save_file(tensors, path, metadata={"efface": json.dumps({"base_md5": base_md5, "format": FORMAT}, sort_keys=True)})
    path.chmod(0o644)


def load_delta(path: str | Path) -> tuple[Delta, str]:
    """The delta of a file, and the md5 of the base weights it belongs to.

    Raises: FileNotFoundError, or ValueError where the file is damaged, no delta, or of another format.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such delta; run the edit stage (`dvc repro`) to make it")
    try:
        with safe_open(path, framework="pt") as file:
            stamp = json.loads((file.metadata() or {}).get("efface", "{}"))
            tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, ValueError) as error:
        raise ValueError(f"{path}: not a readable safetensors file ({error}); {REMEDY}") from error
    if stamp.get("format") != FORMAT or "base_md5" not in stamp:
        raise ValueError(f"{path}: metadata {stamp}, expected a delta of format {FORMAT}; {REMEDY}")
    return {name: _change(tensors, name, path) for name in sorted({key.split("/")[0] for key in tensors})}, stamp[
        "base_md5"
    ]


def load_edited(
    base: str | Path, delta_path: str | Path, *, dtype: torch.dtype = torch.float32, device: str = "cpu"
) -> PreTrainedModel:
    """Base model plus delta.

    Raises: ValueError where the base's weights are not those the delta was made from.
    """
    delta, expected = load_delta(delta_path)
    found = file_md5(Path(base) / WEIGHTS)
    if found != expected:
        raise ValueError(
            f"{delta_path}: made from a base with md5 {expected}, but {base} has {found}; edit this base anew"
        )
    model = load_model(base, dtype=dtype, device=device)
    apply_delta(model, delta)
    return model


def _change(tensors: Mapping[str, Tensor], name: str, path: Path) -> Tensor | LowRank:
    if name in tensors:
        return tensors[name]
    if f"{name}/left" not in tensors or f"{name}/right" not in tensors:
        raise ValueError(f"{path}: {name} has one factor only, expected left and right; {REMEDY}")
    return LowRank(tensors[f"{name}/left"], tensors[f"{name}/right"])
