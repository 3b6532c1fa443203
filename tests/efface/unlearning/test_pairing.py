"""Who meets whom: every forget example once an epoch, retain examples uniformly, all by seed and epoch."""

import copy

import torch

from efface.models import scratch_llama
from efface.tokenization import Encoding, collate
from efface.training.loop import answer_logits
from efface.training.losses import sequence_log_probs
from efface.unlearning.pairing import answer_log_probs, frozen_copy, paired_batches

FORGET = [Encoding((1, 2, 10 + i, 3), 2) for i in range(7)]
RETAIN = [Encoding((1, 2, 20 + i, 4, 3), 2) for i in range(5)]


def test_every_forget_example_comes_once_an_epoch_with_as_many_retain_examples():
    pairs = paired_batches(FORGET, RETAIN, batch_size=3, pad_id=0, seed=1)(2)
    assert sorted(place for pair in pairs for place in pair.places) == list(range(7))
    for pair in pairs:
        assert pair.retain is not None
        assert len(pair.retain.input_ids) == len(pair.places) == len(pair.forget.input_ids)
        assert pair.forget.input_ids[:, 2].tolist() == [10 + place for place in pair.places]


def test_given_order_is_kept_in_every_epoch():
    batches = paired_batches(FORGET, RETAIN, batch_size=3, pad_id=0, seed=1, order=[6, 0, 5, 1, 4, 2, 3])
    for epoch in (0, 3):
        assert [place for pair in batches(epoch) for place in pair.places] == [6, 0, 5, 1, 4, 2, 3]


def test_pairs_depend_on_seed_and_epoch_alone():
    def drawn(seed: int, epoch: int) -> list:
        pairs = paired_batches(FORGET, RETAIN, batch_size=3, pad_id=0, seed=seed)(epoch)
        return [(pair.places, pair.retain.input_ids.tolist()) for pair in pairs if pair.retain]

    assert drawn(1, 0) == drawn(1, 0)
    assert drawn(1, 0) != drawn(1, 1)
    assert drawn(1, 0) != drawn(2, 0)


def test_retain_examples_are_drawn_uniformly():
    """1 400 draws over 5 examples: each share within 4 standard deviations (σ = √(0.2 · 0.8 / 1400) ≈ 0.011) of 1/5."""
    batches = paired_batches(FORGET, RETAIN, batch_size=7, pad_id=0, seed=0)
    tokens = torch.cat([batches(epoch)[0].retain.input_ids[:, 2] for epoch in range(200)])
    shares = torch.bincount(tokens - 20, minlength=5) / len(tokens)
    assert (shares - 0.2).abs().max() < 0.043


def test_alternatives_take_turns_and_leave_all_other_draws_as_they_are():
    """Example i has 1 + i % 3 answers: every window of as many epochs, from the first on, shows each of them once."""
    others = [[Encoding((1, 2, 10 + i, 50 + 10 * i + k, 3), 3) for k in range(1 + i % 3)] for i in range(7)]
    settings = {"batch_size": 3, "pad_id": 0, "seed": 1}
    batches, plain = (
        paired_batches(FORGET, RETAIN, **settings, alternatives=others),
        paired_batches(FORGET, RETAIN, **settings),
    )
    shown = {place: [] for place in range(7)}
    for epoch in range(6):
        for pair, same in zip(batches(epoch), plain(epoch), strict=True):
            assert pair.epoch == epoch and same.alternative is None and pair.alternative is not None
            assert pair.places == same.places and torch.equal(pair.retain.input_ids, same.retain.input_ids)
            assert pair.alternative.input_ids[:, 2].tolist() == [10 + place for place in pair.places]
            for place, row in zip(pair.places, pair.alternative.input_ids.tolist(), strict=True):
                shown[place].append(row[3] - 50 - 10 * place)
    for place, turns in shown.items():
        count = 1 + place % 3
        assert all(sorted(turns[start : start + count]) == list(range(count)) for start in range(0, 6, count))
    orders = {
        tuple(
            paired_batches(FORGET[:1], [], **settings | {"seed": s}, alternatives=others[2:3])(e)[0]
            .alternative.input_ids[0, 3]
            .item()
            for e in range(3)
        )
        for s in range(20)
    }
    assert len(orders) > 2


def test_log_probs_are_sums_in_the_order_given_and_the_frozen_copy_stays():
    model = scratch_llama(
        vocab_size=30, layers=1, hidden=16, heads=2, kv_heads=1, intermediate=16, tie_embeddings=True, seed=0
    )
    rows = [FORGET[0], RETAIN[0], Encoding((1, 2, 3), 1)]
    each = [collate([row], pad_id=0) for row in rows]
    expected = torch.cat([sequence_log_probs(answer_logits(model, batch), batch.labels) for batch in each])
    found = answer_log_probs(model, rows, batch_size=2, pad_id=0)
    torch.testing.assert_close(found, expected.detach())

    frozen, before = frozen_copy(model), copy.deepcopy(model)
    model.model.norm.weight.data.mul_(3)
    with frozen() as start:
        assert torch.equal(answer_logits(start, each[0]), answer_logits(before, each[0]))
        assert not any(parameter.requires_grad for parameter in start.parameters())
