"""A model by its name in `params.models`: whole weights, or a base with an edit's delta on it."""

from pathlib import Path
from typing import TYPE_CHECKING

from stages.params import ModelItem

if TYPE_CHECKING:
    from transformers import PreTrainedModel


def load_named_model(name: str, item: ModelItem, *, dtype: str = "float32") -> "PreTrainedModel":
    """The model on the GPU where there is one; an edit is added in float32, whatever the type it ends in.

    Raises: FileNotFoundError naming the model where its base or its weights are missing.
    """
    import torch

    from efface.editing.delta import DELTA, load_edited
    from efface.models import load_model

    base, weights = Path(item.base), Path(item.weights)
    for folder in (base, weights):
        if not folder.is_dir():
            raise FileNotFoundError(f"model {name!r}: no folder {folder}; run `dvc repro` to make it")
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if weights == base:
        return load_model(base, dtype=getattr(torch, dtype), device=device)
    if not (weights / DELTA).is_file():
        raise FileNotFoundError(f"model {name!r}: {weights} holds no {DELTA}; run `dvc repro` to make it")
    return load_edited(base, weights / DELTA, device=device).to(getattr(torch, dtype))
