"""The relearning attack on a two-layer model."""

import pytest
import torch

from efface.models import scratch_llama
from efface.relearning import relearn
from efface.tokenization import Encoding, collate
from efface.training.loop import answer_loss

SHAPE = {"layers": 2, "hidden": 32, "heads": 4, "kv_heads": 2, "intermediate": 48, "tie_embeddings": True}
EXAMPLES = [Encoding(input_ids=(1, *range(10 + place, 16 + place)), prompt_length=3) for place in range(6)]
HOW = {"batch_size": 2, "learning_rate": 1e-3, "pad_id": 0, "seed": 3}


def attacked(steps: int):
    model = scratch_llama(vocab_size=64, seed=0, **SHAPE)
    relearn(model, EXAMPLES, steps=steps, **HOW)
    return model


def test_the_attack_learns_its_examples():
    batch = collate(EXAMPLES, pad_id=0)
    losses = [float(answer_loss(attacked(steps), batch).detach()) for steps in (1, 10, 80)]
    assert losses[0] > losses[1] > losses[2]
    assert losses[2] < losses[0] / 2


def test_steps_are_plain_adamw_on_one_batch_each():
    """Three steps meet each of the six examples once; the fourth begins again in another order."""
    from efface.training.loop import shuffled_batches

    model = scratch_llama(vocab_size=64, seed=0, **SHAPE)
    matrices = [p for p in model.parameters() if p.ndim > 1]
    others = [p for p in model.parameters() if p.ndim <= 1]
    optimizer = torch.optim.AdamW([{"params": matrices}, {"params": others}], lr=1e-3, weight_decay=0.0, fused=True)
    batches_of_epoch = shuffled_batches(EXAMPLES, batch_size=2, pad_id=0, seed=3)
    model.train()
    for batch in [*batches_of_epoch(0), batches_of_epoch(1)[0]]:
        answer_loss(model, batch).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    for expected, found in zip(model.parameters(), attacked(4).parameters(), strict=True):
        torch.testing.assert_close(found, expected)


@pytest.mark.parametrize(("encodings", "steps"), [([], 3), (EXAMPLES, 0)])
def test_an_attack_of_nothing_is_refused(encodings, steps):
    with pytest.raises(ValueError, match="at least one of each"):
        relearn(scratch_llama(vocab_size=64, seed=0, **SHAPE), encodings, steps=steps, **HOW)
