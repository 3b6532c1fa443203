"""Runs a gradient method from a model and returns the weight change; the model itself stays as it was."""

from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

import torch
from torch import nn
from transformers import PreTrainedModel

from efface.editing.delta import Delta, LowRank
from efface.models import linear_module_names
from efface.tokenization import Encoding
from efface.training.change import dense_change, low_rank_change
from efface.training.checkpoint import LossPoint
from efface.training.loop import finetune, in_layers
from efface.unlearning.methods import AltPo, CeU, Flat, GradAscent, IdkDpo, Npo, Pdu, Rmu, Undial, Unlearning
from efface.unlearning.pairing import Pair, Start, answer_log_probs, frozen_copy, paired_batches, without_adapters

Alternatives = Sequence[Sequence[Encoding]]


def unlearned_delta(
    method: Unlearning,
    model: PreTrainedModel,
    forget: Sequence[Encoding],
    retain: Sequence[Encoding],
    *,
    pad_id: int,
    seed: int,
    alternatives: Alternatives | None = None,
    difficulty: Sequence[float] | None = None,
    layers: Collection[int] | None = None,
    checkpoint_folder: str | Path | None = None,
    progress: str | None = None,
) -> Delta:
    """The change of every trained parameter: float32 tensors, or low-rank factors with LoRA. See `unlearning_run`."""
    return unlearning_run(
        method, model, forget, retain, pad_id=pad_id, seed=seed, alternatives=alternatives, difficulty=difficulty,
        layers=layers, checkpoint_folder=checkpoint_folder, progress=progress,
    )[0]  # fmt: skip


def unlearning_run(
    method: Unlearning,
    model: PreTrainedModel,
    forget: Sequence[Encoding],
    retain: Sequence[Encoding],
    *,
    pad_id: int,
    seed: int,
    alternatives: Alternatives | None = None,
    difficulty: Sequence[float] | None = None,
    layers: Collection[int] | None = None,
    checkpoint_folder: str | Path | None = None,
    progress: str | None = None,
) -> tuple[Delta, list[LossPoint]]:
    """The weight change and the loss curve of unlearning `forget` from `model`, which is left unchanged.

    `alternatives` are other answers to each forget example's question, for the methods that prefer them; `difficulty`
    is a number per forget example, high for hard, for those with an `order`. With `layers` only these blocks are
    trained. `checkpoint_folder` makes the run resume after a kill.

    Raises: ValueError where the forget set is empty, the method needs a retain set, alternatives, difficulties or
    layers that are not given, or the loss stops being a number.
    """
    _check_request(method, forget, retain, alternatives, layers)
    batches = paired_batches(
        forget,
        retain,
        batch_size=method.batch_size,
        pad_id=pad_id,
        seed=seed,
        alternatives=alternatives,
        order=_order(method, forget, difficulty),
    )
    train = _training_of(method, forget, batches, pad_id, seed, checkpoint_folder, progress)
    if method.lora:
        modules = linear_module_names(model, layers)
        factors, curve = low_rank_change(
            model,
            lambda wrapped: train(wrapped, without_adapters(wrapped), None),
            lora=method.lora,
            modules=modules,
            seed=seed,
        )
        return {name: LowRank(*pair) for name, pair in factors.items()}, curve
    chosen = None if layers is None else in_layers(layers)
    frozen = frozen_copy(model) if _compares_models(method) else _no_start
    change, curve = dense_change(model, lambda trained: train(trained, frozen, chosen), parameters=chosen)
    return dict(change), curve


def _training_of(
    method: Unlearning,
    forget: Sequence[Encoding],
    batches: Callable[[int], list[Pair]],
    pad_id: int,
    seed: int,
    checkpoint_folder: str | Path | None,
    progress: str | None,
) -> Callable[..., list[LossPoint]]:
    """A function of the model, its frozen start and the choice of parameters that trains and returns the curve."""

    def train(
        model: nn.Module,
        frozen: Callable[[], AbstractContextManager[nn.Module]],
        parameters: Callable[[str], bool] | None,
    ) -> list[LossPoint]:
        device = next(model.parameters()).device
        log_probs = None
        if isinstance(method, Npo | IdkDpo | AltPo):
            with torch.autocast(device.type, torch.bfloat16, enabled=method.dtype == "bfloat16"):
                log_probs = answer_log_probs(model, forget, batch_size=method.batch_size, pad_id=pad_id)
        multiplier = torch.tensor(method.alpha, dtype=torch.float64) if isinstance(method, Pdu) else None
        start = Start(seed, log_probs, frozen, multiplier)
        return finetune(
            model,
            batches,
            lambda trained, pair: method.loss(trained, pair.to(device), start),
            epochs=method.epochs,
            learning_rate=method.learning_rate,
            weight_decay=method.weight_decay,
            warmup_fraction=min(1.0, method.warmup_epochs / method.epochs),
            schedule=method.schedule,
            gradient_accumulation=method.gradient_accumulation,
            autocast_dtype=torch.bfloat16 if method.dtype == "bfloat16" else None,
            parameters=parameters,
            weight_of=lambda pair: len(pair.places),
            memory=None if multiplier is None else {"multiplier": multiplier},
            checkpoint_folder=checkpoint_folder,
            seed=seed,
            progress=progress,
        )

    return train


def _order(method: Unlearning, forget: Sequence[Encoding], difficulty: Sequence[float] | None) -> list[int] | None:
    """Places of the forget examples by difficulty, ties as they come; None where they are shuffled."""
    if method.order == "shuffled":
        return None
    if difficulty is None or len(difficulty) != len(forget):
        found = "none" if difficulty is None else len(difficulty)
        raise ValueError(
            f"{method.method}: order {method.order!r} with difficulties of {found} examples; expected one for each of "
            f"{len(forget)}, for instance CUD"
        )
    return sorted(range(len(forget)), key=lambda place: difficulty[place], reverse=method.order == "hard_first")


def _check_request(
    method: Unlearning,
    forget: Sequence[Encoding],
    retain: Sequence[Encoding],
    alternatives: Alternatives | None,
    layers: Collection[int] | None,
) -> None:
    if not forget:
        raise ValueError(f"{method.method}: the forget set is empty; there is nothing to unlearn")
    if (
        not retain
        and not isinstance(method, GradAscent | CeU | Flat)
        and not (isinstance(method, Undial) and method.alpha == 0)
    ):
        raise ValueError(f"{method.method}: the retain set is empty; it needs one, or use grad_ascent")
    if isinstance(method, IdkDpo | AltPo | Flat):
        counts = [len(others) for others in alternatives or ()]
        if len(counts) != len(forget) or 0 in counts:
            raise ValueError(
                f"{method.method}: {sum(count > 0 for count in counts)} of {len(forget)} forget examples have other "
                "answers; it needs at least one for each, in the order of the forget set (`alternatives`)"
            )
    if method.localised and layers is None:
        raise ValueError(f"{method.method}: localised without layers; give the layers that localisation selected")


def _compares_models(method: Unlearning) -> bool:
    """Whether the loss runs the start model beside the trained one."""
    return isinstance(method, Undial | Rmu | IdkDpo | AltPo) or getattr(method, "retain_loss", "nll") != "nll"


def _no_start() -> AbstractContextManager[nn.Module]:
    raise RuntimeError("this method was not meant to run its start model")
