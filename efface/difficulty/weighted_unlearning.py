"""The lower level of the bi-level selection: unlearning that forgets and retains each example in part."""

from collections.abc import Iterator, Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn
from transformers import PreTrainedModel

from efface.difficulty.bilevel import sign_sgd_step
from efface.difficulty.kept_weights import kept_weights
from efface.evaluation.scoring import score_answers
from efface.tokenization import Batch, Encoding, collate
from efface.training.loop import answer_logits, epoch_seed
from efface.training.losses import scored_counts, sequence_log_probs, undial_loss
from efface.unlearning.methods import GradDiff, Undial, Unlearning
from efface.unlearning.pairing import Start, frozen_copy


def weighted_unlearning_losses(
    model: PreTrainedModel,
    encodings: Sequence[Encoding],
    weights: Float[Tensor, " example"],
    *,
    method: Unlearning,
    epochs: int,
    learning_rate: float,
    batch_size: int,
    pad_id: int,
    seed: int,
) -> Float[Tensor, " example"]:
    """Mean answer NLL of every example after unlearning under weights of membership; the model is as it was afterwards.

    Minimises mean_i [γ wᵢ Lᵢ + α (1 − wᵢ) ℓᵢ] by sign-SGD, ℓᵢ an example's mean answer NLL, Lᵢ the method's forget
    loss on it alone: −ℓᵢ for GradDiff, the distillation loss for UNDIAL; α and γ are the method's. There are no other
    retain examples: those of low weight are what is retained.

    Raises: ValueError where the method is neither, or weights and examples differ in number.
    """
    if not isinstance(method, GradDiff | Undial):
        raise ValueError(f"method {method.method!r}: the bi-level selection knows grad_diff and undial")
    if len(weights) != len(encodings):
        raise ValueError(f"{len(weights)} weights for {len(encodings)} examples: expected as many")
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    shares = weights.to(model.device, torch.float32)
    with kept_weights(model):
        start = Start(seed, None, frozen_copy(model)) if isinstance(method, Undial) else None
        for places, batch in _batches(encodings, epochs, batch_size, pad_id, seed):
            loss = _weighted_loss(method, model, batch.to(model.device), shares[places], start)
            sign_sgd_step(parameters, torch.autograd.grad(loss, parameters), learning_rate=learning_rate)
        scores = score_answers(model, encodings, batch_size=batch_size, pad_id=pad_id, label="bi-level losses")
    return torch.tensor([score.nll for score in scores], dtype=torch.float64)


def _weighted_loss(
    method: GradDiff | Undial, model: nn.Module, batch: Batch, shares: Float[Tensor, " example"], start: Start | None
) -> Float[Tensor, ""]:
    logits = answer_logits(model, batch)
    nll = -sequence_log_probs(logits, batch.labels) / scored_counts(batch.labels)
    forget = -nll if start is None else _distillation_losses(method, logits, start.logits(batch), batch)
    return (method.gamma * shares * forget + method.alpha * (1 - shares) * nll).mean()


def _distillation_losses(
    method: GradDiff | Undial,
    logits: Float[Tensor, "example position vocabulary"],
    reference: Float[Tensor, "example position vocabulary"],
    batch: Batch,
) -> Float[Tensor, " example"]:
    """UNDIAL's loss of each example alone."""
    assert isinstance(method, Undial)
    rows = zip(logits.split(1), reference.split(1), batch.labels.split(1), strict=True)
    return torch.stack([undial_loss(*row, beta=method.beta, published_mask=method.published_mask) for row in rows])


def _batches(
    encodings: Sequence[Encoding], epochs: int, batch_size: int, pad_id: int, seed: int
) -> Iterator[tuple[list[int], Batch]]:
    """Every example once per epoch, in an order that depends on seed and epoch alone."""
    for epoch in range(epochs):
        generator = torch.Generator().manual_seed(epoch_seed(seed, epoch))
        for places in torch.randperm(len(encodings), generator=generator).split(batch_size):
            yield places.tolist(), collate([encodings[place] for place in places.tolist()], pad_id=pad_id)
