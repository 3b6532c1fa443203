"""MRD against a literal twin, its scaling with σ, and weights that come back bit for bit."""

import pytest
import torch

from efface.difficulty.mrd import Mrd, answer_log_probs, memory_removal_difficulty
from efface.models import scratch_llama
from efface.tokenization import Encoding, collate

ENCODINGS = [
    Encoding((1, 5, 6, 7, 8, 9), 3),
    Encoding((1, 5, 6, 9, 10, 11, 12, 13, 2), 4),
    Encoding((1, 9, 2), 2),
    Encoding((1, 4, 4, 4, 8, 2), 2),
]


@pytest.fixture(params=[False, True], ids=["untied", "tied"])
def model(request):
    return scratch_llama(
        vocab_size=20, layers=2, hidden=32, heads=4, kv_heads=2, intermediate=48, tie_embeddings=request.param, seed=0
    )


def literal_mrd(model, encoding: Encoding, *, draws: int, sigma: float, seed: int, antithetic: bool) -> float:
    """One example, one token and one draw at a time, with a full copy of the state before each draw."""

    def log_probs() -> list[float]:
        logits = model(torch.tensor([encoding.input_ids])).logits[0].double().log_softmax(dim=-1)
        tokens = range(encoding.prompt_length, len(encoding.input_ids))
        return [logits[token - 1, encoding.input_ids[token]].item() for token in tokens]

    original = {name: value.clone() for name, value in model.state_dict().items()}
    before, total = log_probs(), 0.0
    signed_draws = [(draw, sign) for draw in range(draws) for sign in ((1, -1) if antithetic else (1,))]
    for draw, sign in signed_draws:
        generator = torch.Generator().manual_seed(seed + draw)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter += sign * sigma * torch.randn(parameter.shape, generator=generator)
        total += sum((old - new) / old for old, new in zip(before, log_probs(), strict=True))
        model.load_state_dict(original)
    return abs(total / len(signed_draws))


@pytest.mark.parametrize("antithetic", [False, True])
def test_agrees_with_the_formula_taken_literally(model, antithetic):
    settings = {"draws": 3, "sigma": 1e-2, "seed": 7, "antithetic": antithetic}
    ours = memory_removal_difficulty(model, ENCODINGS, batch_size=3, pad_id=0, **settings)
    with torch.no_grad():
        twin = [literal_mrd(model, encoding, **settings) for encoding in ENCODINGS]
    assert ours.tolist() == pytest.approx(twin, rel=1e-3, abs=1e-6)
    assert (ours > 0).all()


def test_the_weights_come_back_bit_for_bit(model):
    before = {name: value.clone() for name, value in model.state_dict().items()}
    Mrd(draws=2, sigma=0.1, batch_size=2).scores(model, ENCODINGS, pad_id=0, seed=0)
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())


def test_batching_and_padding_change_nothing(model):
    together = memory_removal_difficulty(model, ENCODINGS, draws=2, sigma=1e-2, batch_size=4, pad_id=0, seed=0)
    apart = memory_removal_difficulty(model, ENCODINGS, draws=2, sigma=1e-2, batch_size=1, pad_id=19, seed=0)
    torch.testing.assert_close(together, apart, rtol=1e-3, atol=1e-6)


def test_antithetic_draws_leave_nothing_of_the_part_linear_in_the_noise(model):
    settings = {"draws": 1, "sigma": 1e-4, "seed": 3, "batch_size": 4, "pad_id": 0}
    single, paired = (
        memory_removal_difficulty(model, ENCODINGS, antithetic=antithetic, **settings) for antithetic in (False, True)
    )
    assert paired.sum() < single.sum() / 10


def test_one_draw_grows_linearly_with_a_small_sigma(model):
    model.double()
    small, twice = (
        memory_removal_difficulty(model, ENCODINGS, draws=1, sigma=sigma, batch_size=4, pad_id=0, seed=3)
        for sigma in (1e-5, 2e-5)
    )
    torch.testing.assert_close(twice, 2 * small, rtol=5e-2, atol=0)


def test_answer_log_probs_skip_prompt_and_padding(model):
    log_probs, rows = answer_log_probs(model, collate(ENCODINGS, pad_id=0))
    assert rows.bincount().tolist() == [len(encoding.answer_ids) for encoding in ENCODINGS]
    assert (log_probs < 0).all() and log_probs.dtype == torch.float64


def test_weights_too_coarse_for_the_noise_are_refused(model):
    with pytest.raises(ValueError, match="sigma 1e-05 is lost in rounding; load the model in float32"):
        Mrd(sigma=1e-5).scores(model.to(torch.bfloat16), ENCODINGS, pad_id=0, seed=0)


@pytest.mark.parametrize(("draws", "sigma"), [(0, 1e-5), (1, 0.0)])
def test_no_draws_or_no_noise_is_refused(model, draws, sigma):
    with pytest.raises(ValueError, match=f"draws {draws}, sigma {sigma}: expected both above 0"):
        Mrd(draws=draws, sigma=sigma).scores(model, ENCODINGS, pad_id=0, seed=0)
