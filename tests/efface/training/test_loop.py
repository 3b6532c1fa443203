"""Resuming changes nothing, accumulating equals a large batch, and only what was chosen moves."""

import re
from pathlib import Path

import pytest
import torch
from torch import Tensor
from transformers import LlamaForCausalLM

from efface.models import scratch_llama
from efface.tokenization import Encoding, collate
from efface.training.checkpoint import LossPoint
from efface.training.loop import (
    answer_logits,
    answer_loss,
    finetune,
    in_layers,
    schedule_factor,
    scored_logits,
    scored_tokens,
    shuffled_batches,
)
from efface.training.losses import nll_loss, sequence_log_probs

ENCODINGS = [Encoding(tuple((7 * i + 3 * j) % 50 + 1 for j in range(5 + i % 3)), 2 + i % 2) for i in range(10)]
BATCHES = shuffled_batches(ENCODINGS, batch_size=4, pad_id=0, seed=0)


def tiny(*, tied: bool = True) -> LlamaForCausalLM:
    """Two layers, hidden 32, four query and two key heads."""
    return scratch_llama(
        vocab_size=60, layers=2, hidden=32, heads=4, kv_heads=2, intermediate=48, tie_embeddings=tied, seed=1
    )


def weights(model: LlamaForCausalLM) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in model.state_dict().items()}


def train(model: LlamaForCausalLM, **changes) -> list[LossPoint]:
    settings = {"epochs": 3, "learning_rate": 1e-2, "weight_decay": 0.1, "seed": 0, **changes}
    return finetune(model, settings.pop("batches", BATCHES), settings.pop("loss", answer_loss), **settings)


@pytest.mark.parametrize("autocast_dtype", [None, torch.bfloat16])
def test_a_run_killed_in_its_second_epoch_and_resumed_equals_an_uninterrupted_one(tmp_path: Path, autocast_dtype):
    """Bit for bit, with dropout inside the model drawn from the run's own random state."""
    options = {"gradient_accumulation": 2, "autocast_dtype": autocast_dtype}
    through, killed, resumed = tiny(), tiny(), tiny()
    for model in (through, killed, resumed):
        model.model.layers[0].mlp.act_fn = torch.nn.Sequential(torch.nn.SiLU(), torch.nn.Dropout(0.2))
    expected = train(through, **options)

    with pytest.raises(KeyboardInterrupt):
        train(killed, loss=interrupted_after(5), checkpoint_folder=tmp_path, **options)
    torch.manual_seed(12345)
    curve = train(resumed, checkpoint_folder=tmp_path, **options)
    assert curve == expected
    for name, value in weights(through).items():
        assert torch.equal(value, resumed.state_dict()[name]), name


def test_what_the_loss_remembers_is_resumed_with_the_run(tmp_path: Path):
    """Three batches an epoch, killed in the second one's second batch: the count goes on from 3, not from 4 or 0."""
    before, after, counts = torch.tensor(0.0), torch.tensor(0.0), []

    def counting(memory: Tensor, loss):
        def counted(model, batch):
            memory.add_(1)
            counts.append(float(memory))
            return loss(model, batch) * memory

        return counted

    settings = {"checkpoint_folder": tmp_path, "epochs": 2}
    with pytest.raises(KeyboardInterrupt):
        train(tiny(), loss=counting(before, interrupted_after(4)), memory={"count": before}, **settings)
    train(tiny(), loss=counting(after, answer_loss), memory={"count": after}, **settings)
    assert counts == [1, 2, 3, 4, 5, 4, 5, 6]


def test_a_finished_run_is_read_back_without_training(tmp_path: Path):
    first, again = tiny(), tiny()
    expected = train(first, checkpoint_folder=tmp_path)
    assert train(again, loss=interrupted_after(0), checkpoint_folder=tmp_path) == expected
    assert all(torch.equal(value, again.state_dict()[name]) for name, value in weights(first).items())
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint.safetensors"]


def test_a_checkpoint_of_another_run_is_refused(tmp_path: Path):
    train(tiny(), checkpoint_folder=tmp_path)
    with pytest.raises(ValueError, match="differs in learning_rate; delete it"):
        train(tiny(), checkpoint_folder=tmp_path, learning_rate=1e-3)


def test_a_damaged_checkpoint_is_refused(tmp_path: Path):
    (tmp_path / "checkpoint.safetensors").write_bytes(b"not a checkpoint")
    with pytest.raises(ValueError, match="not a readable checkpoint"):
        train(tiny(), checkpoint_folder=tmp_path)


def test_accumulation_weighted_by_tokens_equals_one_large_batch():
    large, small = tiny(), tiny()
    train(large, batches=lambda _: shuffled_batches(ENCODINGS, batch_size=10, pad_id=0, seed=0)(0))
    pieces = shuffled_batches(ENCODINGS, batch_size=3, pad_id=0, seed=0)
    train(small, batches=lambda _: pieces(0), gradient_accumulation=4, weight_of=scored_tokens)
    for name, value in weights(large).items():
        torch.testing.assert_close(small.state_dict()[name], value, rtol=1e-4, atol=1e-5)


def test_training_leaves_mode_gradients_and_the_callers_random_state_alone():
    model = tiny()
    torch.manual_seed(3)
    state = torch.get_rng_state()
    model.model.norm.weight.requires_grad_(False)
    before = weights(model)
    train(model)
    assert torch.equal(torch.get_rng_state(), state)
    assert not model.training
    assert all(parameter.grad is None for parameter in model.parameters())
    assert not model.model.norm.weight.requires_grad
    assert model.lm_head.weight.requires_grad
    assert torch.equal(before["model.norm.weight"], model.model.norm.weight)


@pytest.mark.parametrize("tied", [True, False])
def test_training_learns_the_answers_with_grouped_queries_and_tied_embeddings(tied: bool):
    model = tiny(tied=tied)
    curve = train(model, epochs=15, learning_rate=3e-2)
    assert curve[-1].loss < 0.3 * curve[0].loss
    assert [curve[0], curve[-1]] == [LossPoint(1, 1, curve[0].loss), LossPoint(45, 15, curve[-1].loss)]
    assert (model.lm_head.weight is model.model.embed_tokens.weight) == tied


def test_only_the_chosen_layers_change():
    model = tiny()
    before = weights(model)
    train(model, parameters=in_layers({1}))
    changed = {name for name, value in weights(model).items() if not torch.equal(value, before[name])}
    assert changed == {name for name in before if name.startswith("model.layers.1.")}


def test_one_step_of_descent_follows_the_gradient():
    """A first AdamW step moves every weight by at most the learning rate, against its gradient, and lowers the loss."""
    model = tiny()
    batch = BATCHES(0)[0]
    loss = answer_loss(model, batch)
    loss.backward()
    gradients = {name: parameter.grad.clone() for name, parameter in model.named_parameters()}
    before = weights(model)
    train(model, batches=lambda _: [batch], epochs=1, learning_rate=1e-4, weight_decay=0.0, warmup_fraction=0.0)
    for name, gradient in gradients.items():
        change = model.get_parameter(name) - before[name]
        assert change.abs().max() <= 1.01e-4
        assert (change * gradient).sum() < 0, name
    assert answer_loss(model, batch) < loss


def test_schedule_rises_over_the_warm_up_and_falls_to_almost_nothing():
    """Four steps, two of warm-up: ½, 1, then (4 − 2)/2 = 1, (4 − 3)/2 = ½."""
    factors = [schedule_factor(step, 4, warmup=2, schedule="linear") for step in range(4)]
    assert factors == [0.5, 1.0, 1.0, 0.5]
    assert [schedule_factor(step, 3, warmup=0, schedule="constant") for step in range(3)] == [1.0] * 3
    assert schedule_factor(0, 1, warmup=1, schedule="linear") == 1.0


def test_every_epoch_sees_every_example_once_in_another_order():
    epochs = [[tuple(row) for batch in BATCHES(epoch) for row in batch.input_ids.tolist()] for epoch in (0, 1, 0)]
    assert epochs[0] == epochs[2] != epochs[1]
    assert sum(len(batch.input_ids) for batch in BATCHES(0)) == len(ENCODINGS)
    answers = sorted(tuple(row[row != -100].tolist()) for batch in BATCHES(1) for row in batch.labels)
    assert answers == sorted(encoding.answer_ids for encoding in ENCODINGS)


def test_logits_of_the_scored_tail_are_those_of_the_whole_batch():
    """Prompts of two and three tokens: position 1 is the first that predicts an answer token."""
    model, batch = tiny(), BATCHES(0)[0]
    logits, labels = scored_logits(model, batch)
    assert torch.equal(labels, batch.labels[:, 1:])
    torch.testing.assert_close(logits, answer_logits(model, batch)[:, 1:])
    torch.testing.assert_close(answer_loss(model, batch), nll_loss(answer_logits(model, batch), batch.labels))


def test_batches_hold_examples_of_similar_length():
    """32 lengths in 8 batches of 4, all sorted together: 3 + 2 + 1 places of padding in each, batches in any order."""
    encodings = [Encoding(tuple(range(1, length + 2)), 1) for length in range(1, 33)]
    batches = shuffled_batches(encodings, batch_size=4, pad_id=0, seed=0)(0)
    assert sum(int((batch.attention_mask == 0).sum()) for batch in batches) == 8 * (3 + 2 + 1)
    assert [batch.input_ids.shape[1] for batch in batches] != sorted(batch.input_ids.shape[1] for batch in batches)


def test_padding_does_not_change_the_loss():
    model = tiny()
    wide = collate(ENCODINGS, pad_id=0)
    sums = sequence_log_probs(answer_logits(model, wide), wide.labels)
    alone = [collate([encoding], pad_id=0) for encoding in ENCODINGS]
    each = torch.cat([sequence_log_probs(answer_logits(model, batch), batch.labels) for batch in alone])
    torch.testing.assert_close(sums, each, rtol=1e-5, atol=1e-5)


def test_a_loss_that_is_not_a_number_names_its_step():
    with pytest.raises(ValueError, match=re.escape("loss is nan at step 5 of 9 (epoch 2, learning rate 0.01)")):
        train(tiny(), loss=broken_after(4))


def test_nothing_to_train_is_refused():
    with pytest.raises(ValueError, match="no parameter to train"):
        train(tiny(), parameters=in_layers({7}))
    with pytest.raises(ValueError, match="number of batches is 0"):
        train(tiny(), batches=lambda _: [])
    with pytest.raises(ValueError, match="epochs is 0"):
        train(tiny(), epochs=0)


def interrupted_after(steps: int):
    """The ordinary loss, until the process is interrupted."""
    calls = []

    def loss(model, batch):
        calls.append(batch)
        if len(calls) > steps:
            raise KeyboardInterrupt
        return answer_loss(model, batch)

    return loss


def broken_after(steps: int):
    """The ordinary loss, then one that is not a number."""
    calls = []

    def loss(model, batch):
        calls.append(batch)
        return answer_loss(model, batch) * (float("nan") if len(calls) > steps else 1.0)

    return loss
