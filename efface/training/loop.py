"""The one fine-tuning loop: AdamW with warm-up, and what is minimised is an argument.

Resuming is exact: every epoch begins from a random state that depends on seed and epoch alone, so the trained
parameters and the optimizer's moments after an epoch are all there is to remember.
"""

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Literal, TypeVar

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from tqdm import tqdm

from efface.models import layer_of
from efface.tokenization import Batch, Encoding, collate
from efface.training.checkpoint import LossPoint, load_checkpoint, save_checkpoint
from efface.training.losses import nll_loss, scored_positions

Item = TypeVar("Item")
Schedule = Literal["linear", "constant"]
SORTED_TOGETHER = 8


def finetune(
    model: nn.Module,
    batches_of_epoch: Callable[[int], Sequence[Item]],
    loss_fn: Callable[[nn.Module, Item], Float[Tensor, ""]],
    *,
    epochs: int,
    learning_rate: float,
    weight_decay: float = 0.0,
    warmup_fraction: float = 0.1,
    schedule: Schedule = "linear",
    gradient_accumulation: int = 1,
    autocast_dtype: torch.dtype | None = None,
    max_grad_norm: float | None = 1.0,
    parameters: Callable[[str], bool] | None = None,
    weight_of: Callable[[Item], float] | None = None,
    memory: Mapping[str, Tensor] | None = None,
    checkpoint_folder: str | Path | None = None,
    seed: int,
    progress: str | None = None,
) -> list[LossPoint]:
    """Trains `model` in place and returns the loss of every optimizer step.

    `batches_of_epoch` gives the same batches for the same epoch number, and as many in every epoch. `parameters`
    chooses by name among those that require a gradient; modes and flags are as before afterwards. A step minimises the
    mean of `gradient_accumulation` batches' losses, weighted by `weight_of` (default: equally); weighted by scored
    tokens it equals one large batch. `memory` holds tensors that `loss_fn` changes in place from batch to batch. With
    `checkpoint_folder` a killed run continues after its last finished epoch, bit for bit as if it had never stopped.
    `progress` labels a progress bar; none without it.

    Raises: ValueError where there is nothing to train or to train on, the loss is not finite, or the checkpoint is of
    a different run.
    """
    trained = _chosen_parameters(model, parameters)
    steps_per_epoch = math.ceil(len(batches_of_epoch(0)) / _positive("gradient_accumulation", gradient_accumulation))
    total = _positive("epochs", epochs) * _positive("number of batches", steps_per_epoch)
    optimizer = _adamw(trained, weight_decay)
    run = {
        "epochs": epochs, "steps_per_epoch": steps_per_epoch, "learning_rate": learning_rate, "seed": seed,
        "weight_decay": weight_decay, "warmup_fraction": warmup_fraction, "schedule": schedule,
        "gradient_accumulation": gradient_accumulation, "autocast_dtype": str(autocast_dtype),
        "max_grad_norm": max_grad_norm, "parameters": sorted(trained),
    }  # fmt: skip
    curve = load_checkpoint(checkpoint_folder, run, trained, optimizer, memory or {}) if checkpoint_folder else []
    bar = tqdm(total=total, initial=len(curve), desc=progress, disable=progress is None, unit="step", mininterval=1)
    with bar, _training(model, trained), _own_random_state(trained):
        for epoch in range(len(curve) // steps_per_epoch, epochs):
            torch.manual_seed(epoch_seed(seed, epoch))
            for group in _groups(batches_of_epoch(epoch), gradient_accumulation, steps_per_epoch):
                where = f"step {len(curve) + 1} of {total} (epoch {epoch + 1}, learning rate {learning_rate})"
                factor = schedule_factor(len(curve), total, warmup=round(warmup_fraction * total), schedule=schedule)
                for options in optimizer.param_groups:
                    options["lr"] = learning_rate * factor
                loss = _accumulate_gradients(model, group, loss_fn, weight_of, _autocast(trained, autocast_dtype))
                _check_finite("loss", loss, where)
                norm = nn.utils.clip_grad_norm_(trained.values(), max_grad_norm or math.inf)
                _check_finite("gradient norm", float(norm), where)
                optimizer.step()
                optimizer.zero_grad(set_to_none=True)
                curve.append(LossPoint(len(curve) + 1, epoch + 1, loss))
                bar.update()
            if checkpoint_folder:
                save_checkpoint(checkpoint_folder, run, trained, optimizer, curve, memory or {})
    return curve


def schedule_factor(step: int, total: int, *, warmup: int, schedule: Schedule) -> float:
    """Share of the learning rate at a step (from 0): rises linearly over `warmup` steps, then falls to 0 or stays.

    The first step has 1 / warmup, not 0, and the last one is not 0 either: no step is spent on nothing.
    """
    if step < warmup:
        return (step + 1) / warmup
    return 1.0 if schedule == "constant" else (total - step) / (total - warmup)


def epoch_seed(seed: int, epoch: int) -> int:
    """The seed of everything random within one epoch."""
    return seed * 100_003 + epoch


def shuffled_batches(
    encodings: Sequence[Encoding], *, batch_size: int, pad_id: int, seed: int
) -> Callable[[int], list[Batch]]:
    """Batches of every example once per epoch, in an order that depends on seed and epoch alone.

    Examples meet others of similar length among `SORTED_TOGETHER` batches' worth, so that little of a batch is padding.
    """

    def batches_of_epoch(epoch: int) -> list[Batch]:
        generator = torch.Generator().manual_seed(epoch_seed(seed, epoch))
        batches = []
        for part in torch.randperm(len(encodings), generator=generator).split(SORTED_TOGETHER * batch_size):
            chosen = sorted((encodings[place] for place in part.tolist()), key=lambda one: len(one.input_ids))
            batches += [chosen[start : start + batch_size] for start in range(0, len(chosen), batch_size)]
        order = torch.randperm(len(batches), generator=generator).tolist()
        return [collate(batches[place], pad_id=pad_id) for place in order]

    return batches_of_epoch


def answer_loss(model: nn.Module, batch: Batch) -> Float[Tensor, ""]:
    """Mean negative log-likelihood of the batch's answer tokens: what ordinary fine-tuning minimises."""
    batch = batch.to(next(model.parameters()).device)
    return nll_loss(*scored_logits(model, batch))


def answer_logits(model: nn.Module, batch: Batch) -> Float[Tensor, "example position vocabulary"]:
    """The model's logits at every position of the batch."""
    return model(input_ids=batch.input_ids, attention_mask=batch.attention_mask, use_cache=False).logits


def scored_logits(
    model: nn.Module, batch: Batch
) -> tuple[Float[Tensor, "example position vocabulary"], Int[Tensor, "example position"]]:
    """Logits and labels from the first position on that predicts an answer token of any example.

    Cost: the unembedding and the softmax over the vocabulary are spared on the prompt before it.
    """
    scored = scored_positions(batch.labels).any(0)
    start = int(scored.int().argmax())
    labels = batch.labels[:, start:]
    logits = model(
        input_ids=batch.input_ids,
        attention_mask=batch.attention_mask,
        use_cache=False,
        logits_to_keep=labels.shape[1],
    ).logits
    return logits, labels


def scored_tokens(batch: Batch) -> float:
    """Number of answer tokens that a batch scores: its weight when gradients are accumulated."""
    return float(scored_positions(batch.labels).sum())


def in_layers(layers: Collection[int]) -> Callable[[str], bool]:
    """Whether a parameter belongs to one of these blocks."""
    return lambda name: layer_of(name) in layers


def _chosen_parameters(model: nn.Module, parameters: Callable[[str], bool] | None) -> dict[str, nn.Parameter]:
    chosen = {
        name: parameter
        for name, parameter in model.named_parameters()
        if parameter.requires_grad and (parameters is None or parameters(name))
    }
    if not chosen:
        raise ValueError("no parameter to train: none requires a gradient and is chosen; check layers and modules")
    return chosen


def _positive(what: str, value: int) -> int:
    if value < 1:
        raise ValueError(f"{what} is {value}; training needs at least 1")
    return value


def _adamw(trained: dict[str, nn.Parameter], weight_decay: float) -> torch.optim.AdamW:
    """AdamW that decays matrices only, not norms and biases; rates are set at every step."""
    decayed = [parameter for parameter in trained.values() if parameter.ndim > 1]
    others = [parameter for parameter in trained.values() if parameter.ndim <= 1]
    groups = [{"params": decayed, "weight_decay": weight_decay}, {"params": others, "weight_decay": 0.0}]
    return torch.optim.AdamW([group for group in groups if group["params"]], lr=0.0, fused=True)


def _groups(batches: Sequence[Item], size: int, expected: int) -> Iterator[Sequence[Item]]:
    groups = [batches[start : start + size] for start in range(0, len(batches), size)]
    if len(groups) != expected:
        raise ValueError(f"an epoch has {len(groups)} steps, the first had {expected}; give as many in every epoch")
    yield from groups


def _accumulate_gradients(
    model: nn.Module,
    group: Sequence[Item],
    loss_fn: Callable[[nn.Module, Item], Tensor],
    weight_of: Callable[[Item], float] | None,
    autocast: Callable[[], AbstractContextManager],
) -> float:
    """Adds the gradients of the group's weighted mean loss, and returns that loss."""
    weights = [weight_of(item) if weight_of else 1.0 for item in group]
    mean = 0.0
    for item, weight in zip(group, weights, strict=True):
        with autocast():
            loss = loss_fn(model, item) * (weight / sum(weights))
        loss.backward()
        mean += float(loss.detach())
    return mean


def _autocast(trained: dict[str, nn.Parameter], dtype: torch.dtype | None) -> Callable[[], AbstractContextManager]:
    device = next(iter(trained.values())).device.type
    return nullcontext if dtype is None else lambda: torch.autocast(device, dtype=dtype)


def _check_finite(what: str, value: float, where: str) -> None:
    if not math.isfinite(value):
        raise ValueError(
            f"{what} is {value} at {where}; lower the learning rate, or look for a damaged model or example"
        )


@contextmanager
def _training(model: nn.Module, trained: dict[str, nn.Parameter]) -> Iterator[None]:
    """Training mode with gradients for the trained parameters only; modes and flags as before afterwards."""
    modes = {module: module.training for module in model.modules()}
    flags = {parameter: parameter.requires_grad for parameter in model.parameters()}
    kept = set(trained.values())
    try:
        model.train()
        for parameter in flags:
            parameter.requires_grad_(parameter in kept)
        yield
    finally:
        for module, mode in modes.items():
            module.training = mode
        for parameter, flag in flags.items():
            parameter.requires_grad_(flag)
            parameter.grad = None


def _own_random_state(trained: dict[str, nn.Parameter]) -> AbstractContextManager:
    """Seeding inside leaves the caller's random state alone."""
    device = next(iter(trained.values())).device
    return torch.random.fork_rng(devices=[device] if device.type == "cuda" else [])
