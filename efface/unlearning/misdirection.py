"""Misdirection of the hidden states on the forget set."""

from dataclasses import dataclass
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from efface.models import anatomy, check_layers
from efface.tokenization import Batch
from efface.training.loop import answer_logits
from efface.training.losses import Scalar, rmu_loss
from efface.unlearning.objective import Descent, check_ranges
from efface.unlearning.pairing import Pair, Start


@dataclass(frozen=True)
class Rmu(Descent):
    """Representation misdirection, arXiv:2403.03218: activations after block `layer` pushed to steering · u / ‖u‖.

    u is uniform on [0, 1)^d, drawn once from the seed; retain activations are held to the start model's by the same
    distance. See `rmu_loss`.
    """

    method: Literal["rmu"] = "rmu"
    layer: int = 7
    steering: float = 2.0
    published_broadcast: bool = False
    gamma: float = 1.0
    alpha: float = 1.0

    def __post_init__(self) -> None:
        check_ranges(self)

    def loss(self, model: nn.Module, pair: Pair, start: Start) -> Scalar:
        assert pair.retain is not None
        hidden = block_outputs(model, pair.forget, self.layer)
        u = torch.rand(hidden.shape[-1], generator=torch.Generator().manual_seed(start.seed)).to(hidden.device)
        forget = self._distance(hidden, self.steering * u / u.norm(), pair.forget)
        with torch.no_grad(), start.frozen() as frozen:
            target = block_outputs(frozen, pair.retain, self.layer)
        retain = self._distance(block_outputs(model, pair.retain, self.layer), target, pair.retain)
        return self.gamma * forget + self.alpha * retain

    def _distance(self, hidden: Tensor, target: Tensor, batch: Batch) -> Tensor:
        return rmu_loss(hidden, target, batch.labels, published_broadcast=self.published_broadcast)


def block_outputs(model: nn.Module, batch: Batch, layer: int) -> Float[Tensor, "example position feature"]:
    """The residual stream after block `layer`; the blocks above it get no gradient.

    Raises: ValueError where the layer does not exist.
    """
    plain: Any = model.get_base_model() if hasattr(model, "get_base_model") else model  # pyright: ignore[reportCallIssue]
    blocks = anatomy(plain).layers
    check_layers([layer], len(blocks))
    caught: list[Any] = []
    handle = blocks[layer].block.register_forward_hook(lambda _module, _inputs, output: caught.append(output))
    try:
        answer_logits(model, batch)
    finally:
        handle.remove()
    return caught[0]
