"""The relearning attack: a few steps of ordinary fine-tuning, and what was forgotten may come back."""

from collections.abc import Sequence

from transformers import PreTrainedModel

from efface.tokenization import Batch, Encoding
from efface.training.loop import answer_loss, finetune, shuffled_batches


def relearn(
    model: PreTrainedModel,
    encodings: Sequence[Encoding],
    *,
    steps: int,
    batch_size: int,
    learning_rate: float,
    pad_id: int,
    seed: int,
) -> None:
    """Fine-tunes every parameter of `model` in place on the attacker's examples, arXiv:2406.13356.

    The learning rate is constant and the order depends on `seed` alone: an attack of few steps is the beginning of one
    of many. Going on after the last example, the attack meets all of them again in another order.

    Raises: ValueError where there is no example or no step, or the loss is not finite.
    """
    if not encodings or steps < 1:
        raise ValueError(f"{len(encodings)} examples, {steps} steps: a relearning attack needs at least one of each")
    batches_of_epoch = shuffled_batches(encodings, batch_size=batch_size, pad_id=pad_id, seed=seed)
    per_epoch = len(batches_of_epoch(0))

    def one_batch(step: int) -> list[Batch]:
        epoch, place = divmod(step, per_epoch)
        return batches_of_epoch(epoch)[place : place + 1]

    finetune(
        model,
        one_batch,
        answer_loss,
        epochs=steps,
        learning_rate=learning_rate,
        warmup_fraction=0.0,
        schedule="constant",
        seed=seed,
    )
