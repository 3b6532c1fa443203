"""How steep an example's loss is: the norm of its own gradient over all weights."""

from collections.abc import Callable, Iterable, Sequence

import torch
from jaxtyping import Float
from torch import Tensor
from transformers import PreTrainedModel

from efface.difficulty.mrd import answer_log_probs
from efface.tokenization import Encoding, collate


def gradient_norms(
    model: PreTrainedModel,
    encodings: Sequence[Encoding],
    *,
    pad_id: int,
    progress: Callable[[Iterable[Encoding]], Iterable[Encoding]] = lambda encodings: encodings,
) -> Float[Tensor, " example"]:
    """‖∂ℓ/∂θ‖₂ of every example, ℓ the mean negative log-likelihood of its answer tokens (nats), θ all parameters.

    Gradients are returned by autograd, never stored in `.grad`.

    Cost: one forward and one backward pass per example, with parameter gradients.
    """
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    norms = []
    for encoding in progress(encodings):
        loss = -answer_log_probs(model, collate([encoding], pad_id=pad_id).to(model.device))[0].mean()
        gradients = torch.autograd.grad(loss, parameters, allow_unused=True)
        squares = [gradient.double().square().sum() for gradient in gradients if gradient is not None]
        norms.append(torch.stack(squares).sum().sqrt())
    return torch.stack(norms).cpu()
