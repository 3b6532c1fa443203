"""Gram matrices summed batch by batch, and taken apart again."""

import pytest
import torch

from efface.activations.key_statistics import KeyGram, Keys, joined_keys, sampled_keys


def random(columns: int, seed: int) -> torch.Tensor:
    return torch.randn(columns, 6, generator=torch.Generator().manual_seed(seed))


def test_gram_of_the_rest_is_the_whole_less_the_set():
    kept, taken = random(30, 0), random(8, 1)
    whole = KeyGram.empty(6)
    for batch in torch.cat([kept, taken]).split(7):
        whole.add(batch)
    rest = whole.minus(taken)
    assert (whole.count, rest.count) == (38, 30)
    torch.testing.assert_close(rest.gram, kept.double().mT @ kept.double(), atol=1e-12, rtol=0)
    torch.testing.assert_close(rest.plus(KeyGram.empty(6).add(taken)).gram, whole.gram, atol=1e-12, rtol=0)


def test_sums_are_exact_to_float64_for_large_float32_keys():
    keys = random(1000, 0) * 1e4
    gram = KeyGram.empty(6)
    for batch in keys.split(10):
        gram.add(batch)
    torch.testing.assert_close(gram.gram, keys.double().mT @ keys.double(), atol=0, rtol=1e-12)


def test_broken_keys_and_impossible_differences_are_refused():
    broken = random(4, 0).index_fill(0, torch.tensor([2]), float("nan"))
    with pytest.raises(ValueError, match="1 of 4 keys hold NaN"):
        KeyGram.empty(6).add(broken)
    with pytest.raises(ValueError, match="4 keys taken away from 0"):
        KeyGram.empty(6).minus(random(4, 0))


def test_keys_are_joined_in_order_and_sampled_by_seed():
    parts = [Keys(random(n, n), torch.arange(n), torch.full((n,), n)) for n in (3, 5)]
    keys = joined_keys(parts)
    assert keys.tokens.tolist() == [0, 1, 2, 0, 1, 2, 3, 4] and keys.examples.tolist() == [3] * 3 + [5] * 5
    few = sampled_keys(keys, 4, seed=0)
    assert len(few) == 4 and torch.equal(few.values, sampled_keys(keys, 4, seed=0).values)
    assert sampled_keys(keys, 8, seed=0) is keys
