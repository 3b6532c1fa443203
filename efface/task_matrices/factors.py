"""Task matrices: the weight change per linear module that training on one part of the data causes, in low rank.

Where to start from is left open by arXiv:2408.04140 and arXiv:2608.01422. From the model before it saw the data, T is
the task vector W(D) − W_0: sensible where W_0 is pretrained, but from random weights a second run memorises in other
coordinates than the target did, and subtracting its T was seen to harm forget and retain rows alike. From the target
the gradient of memorised rows is small and AdamW scales it up, noise included; yet after a short run at a low rate T
points where the forget rows are lost first, and erases them at a strength well above 1. Hence the default, `target`.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn
from transformers import PreTrainedModel

from efface.linalg import energy_rank, svd_of_product
from efface.models import layer_of, linear_module_names
from efface.tokenization import Encoding
from efface.training.change import dense_change, low_rank_change
from efface.training.checkpoint import LossPoint
from efface.training.loop import answer_loss, finetune, scored_tokens, shuffled_batches
from efface.training.lora import Factors, Lora

LINEAR = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


@dataclass(frozen=True)
class TaskMatrix:
    """T ≈ left @ right, rows of `right` orthonormal, columns of `left` by falling length.

    `frobenius_norm` is ‖T‖_F of the whole change, before truncation.
    """

    left: Float[Tensor, "out rank"]
    right: Float[Tensor, "rank in"]
    frobenius_norm: float

    @property
    def rank(self) -> int:
        return self.left.shape[1]


@dataclass(frozen=True)
class TaskMatrices:
    """How task matrices are trained and truncated.

    `start`: `target`, or `base`, the model before it saw the data. `base`: that model's folder, GGUF file or Hub name
    where the target was not trained here. `modules`: ends of module names; nothing else is trained, so T is the whole
    change. `retain_rows`: how many retain rows, drawn by seed, T_r is trained on. `rank` and `energy`: T keeps its
    leading directions up to this share of ‖T‖²_F, at most `rank` of them. `lora`: train adapters instead of weights.
    `layerwise`: all epochs for the lowest layer with the others frozen, then for the next, as arXiv:2408.04140 trains;
    from the start model, where that paper starts from random weights and W − T would remove nothing learnt.
    """

    start: Literal["base", "target"] = "target"
    base: str | None = None
    modules: tuple[str, ...] = LINEAR
    retain_rows: int = 120
    epochs: int = 5
    batch_size: int = 8
    learning_rate: float = 1e-4
    weight_decay: float = 0.0
    warmup_fraction: float = 0.1
    dtype: Literal["float32", "bfloat16"] = "float32"
    rank: int = 32
    energy: float = 0.99
    lora: Lora | None = None
    layerwise: bool = False

    def __post_init__(self) -> None:
        if self.layerwise and self.lora:
            raise ValueError("build_task_matrices: layerwise trains weights; expected lora: null beside it")
        for name in ("retain_rows", "epochs", "batch_size", "learning_rate", "rank"):
            if getattr(self, name) <= 0:
                raise ValueError(f"build_task_matrices.{name} is {getattr(self, name)}; expected more than 0")
        if not 0 < self.energy <= 1:
            raise ValueError(
                f"build_task_matrices.energy is {self.energy}; expected a share, more than 0 and at most 1"
            )

    def trained(
        self,
        model: PreTrainedModel,
        rows: Sequence[Encoding],
        *,
        pad_id: int,
        seed: int,
        checkpoint_folder: str | Path | None = None,
        progress: str | None = None,
    ) -> dict[str, TaskMatrix]:
        """The task matrix of each module from training `model` on `rows`; the model is left unchanged.

        Raises: ValueError where there are no rows, or no module of the model has a chosen name.
        """
        modules = module_choice(model, self.modules)

        def train(trained: nn.Module) -> list[LossPoint]:
            if not self.layerwise:
                return train_some(trained, modules, checkpoint_folder)
            return [
                point
                for layer, members in groupby(modules, key=layer_of)
                for point in train_some(
                    trained, list(members), checkpoint_folder and Path(checkpoint_folder, f"{layer}")
                )
            ]

        def train_some(trained: nn.Module, members: Sequence[str], folder: str | Path | None) -> list[LossPoint]:
            return finetune(
                trained,
                shuffled_batches(rows, batch_size=self.batch_size, pad_id=pad_id, seed=seed),
                answer_loss,
                epochs=self.epochs,
                learning_rate=self.learning_rate,
                weight_decay=self.weight_decay,
                warmup_fraction=self.warmup_fraction,
                autocast_dtype=torch.bfloat16 if self.dtype == "bfloat16" else None,
                parameters=None if self.lora else {f"{name}.weight" for name in members}.__contains__,
                weight_of=scored_tokens,
                checkpoint_folder=folder,
                seed=seed,
                progress=progress,
            )

        weights = {f"{module}.weight": module for module in modules}
        if self.lora:
            changes, _ = low_rank_change(model, train, lora=self.lora, modules=modules, seed=seed)
        else:
            changes, _ = dense_change(model, train, parameters=weights.__contains__)
        return {
            weights[name]: task_matrix(change, rank=self.rank, energy=self.energy) for name, change in changes.items()
        }


def task_matrix(change: Float[Tensor, "out in"] | Factors, *, rank: int, energy: float) -> TaskMatrix:
    """The leading singular directions of a weight change, given dense or as factors.

    Keeps the fewest directions that hold `energy` of Σσ², at most `rank`. Cost: one SVD; of rank × rank for factors.
    """
    if isinstance(change, tuple):
        u, s, vt = svd_of_product(*change)
    else:
        u, s, vt = torch.linalg.svd(change.double(), full_matrices=False)
    kept = min(rank, energy_rank(s**2, energy))
    left, right = (u[:, :kept] * s[:kept]).float(), vt[:kept].float()
    return TaskMatrix(left.contiguous(), right.contiguous(), float(torch.linalg.norm(s)))


def module_choice(model: PreTrainedModel, endings: Sequence[str]) -> list[str]:
    """Dotted names of the linear modules inside blocks whose last part is in `endings`, in forward order.

    Raises: ValueError where an ending matches nothing.
    """
    names = linear_module_names(model)
    found = {name.rsplit(".", 1)[-1] for name in names}
    unknown = sorted(set(endings) - found)
    if unknown or not endings:
        raise ValueError(f"build_task_matrices.modules: no module named {unknown}; this model has {sorted(found)}")
    return [name for name in names if name.rsplit(".", 1)[-1] in endings]


def layer_shares(norms: dict[str, float]) -> dict[int, float]:
    """E_l = ‖T^l‖_F / Σ_j ‖T^j‖_F per layer, arXiv:2608.01422, where ‖T^l‖²_F sums over the layer's modules.

    Equal shares where every norm is zero.
    """
    squares: dict[int, float] = {}
    for module, norm in norms.items():
        layer = layer_of(module)
        if layer is None:
            raise ValueError(f"{module}: not inside a block; layer energies are of modules inside blocks")
        squares[layer] = squares.get(layer, 0.0) + norm**2
    lengths = {layer: math.sqrt(square) for layer, square in sorted(squares.items())}
    total = sum(lengths.values())
    return {layer: length / total if total else 1 / len(lengths) for layer, length in lengths.items()}
