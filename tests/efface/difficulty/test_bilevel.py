"""The capped-simplex projection against its optimality conditions and scipy; the bi-level loop on solved problems."""

import numpy as np
import pytest
import torch
from scipy.optimize import minimize

from efface.difficulty.bilevel import bilevel_choice, capped_simplex_projection, sign_sgd_step


def points(count: int, size: int) -> torch.Tensor:
    return 2 * torch.randn(count, size, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


@pytest.mark.parametrize("total", [0, 1, 3.5, 8])
def test_projection_meets_its_optimality_conditions(total):
    """w = clamp(p − μ, 0, 1): inside entries share μ; entries at 0 have p ≤ μ; entries at 1 have p ≥ 1 + μ."""
    for point in points(20, 8):
        projected = capped_simplex_projection(point, total)
        assert projected.sum().item() == pytest.approx(total, abs=1e-9)
        assert projected.min() >= 0 and projected.max() <= 1
        inside = (projected > 1e-9) & (projected < 1 - 1e-9)
        shift = point - projected
        if inside.any():
            multiplier = shift[inside].mean()
            assert (shift[inside] - multiplier).abs().max() < 1e-9
            assert (point[projected <= 1e-9] <= multiplier + 1e-9).all()
            assert (point[projected >= 1 - 1e-9] >= 1 + multiplier - 1e-9).all()


def test_projection_is_what_scipy_finds():
    for point in points(5, 6).numpy():
        found = minimize(
            lambda w, p=point: ((w - p) ** 2).sum(),
            np.full(6, 0.4),
            jac=lambda w, p=point: 2 * (w - p),
            bounds=[(0, 1)] * 6,
            constraints={"type": "eq", "fun": lambda w: w.sum() - 2.4},
            method="SLSQP",
            options={"ftol": 1e-14},
        )
        ours = capped_simplex_projection(torch.tensor(point), 2.4)
        np.testing.assert_allclose(ours.numpy(), found.x, atol=1e-6)


def test_projecting_twice_changes_nothing():
    once = capped_simplex_projection(points(1, 10)[0], 4)
    torch.testing.assert_close(capped_simplex_projection(once, 4), once, rtol=0, atol=1e-12)


def test_a_total_out_of_range_is_refused():
    with pytest.raises(ValueError, match="total 5: expected 0 to 3"):
        capped_simplex_projection(torch.zeros(3), 5)


def quadratic_unlearning(resistance: torch.Tensor):
    """Each example's loss after unlearning is its weight's push against its own resistance: ℓᵢ(w) = wᵢ / rᵢ."""
    return lambda weights: weights / resistance


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("role", ["hard", "easy"])
def test_finds_the_known_set(role, seed):
    """Hard: the optimum of Σ wᵢ²/rᵢ at Σw = 3 has w ∝ r inside the box, so the largest weights are the most resistant.

    Easy: with losses that do not depend on w, the vertex of the highest losses is reached from any start.
    """
    resistance = torch.tensor([1.0, 9.0, 2.0, 8.0, 1.5, 7.0, 1.2, 0.5], dtype=torch.float64)
    unlearn = quadratic_unlearning(resistance) if role == "hard" else lambda weights: 1 / resistance
    choice = bilevel_choice(
        unlearn, role=role, count=8, size=3, epochs=150, learning_rate=0.05, binarise_every=1000, seed=seed
    )
    assert set(choice.places.tolist()) == ({1, 3, 5} if role == "hard" else {7, 0, 6})
    assert choice.losses.shape == (150, 8) and choice.weights.sum().item() == pytest.approx(3, abs=1e-6)


def test_the_penalty_spreads_the_weights():
    losses = torch.tensor([0.0, 0.1, 0.2, 0.3], dtype=torch.float64)
    schedule = {"role": "hard", "count": 4, "size": 2, "epochs": 100, "learning_rate": 0.1, "binarise_every": 1000}
    sharp = bilevel_choice(lambda weights: losses, **schedule)
    spread = bilevel_choice(lambda weights: losses, **schedule, penalty=1.0)
    assert sharp.weights.tolist() == pytest.approx([1, 1, 0, 0], abs=1e-6)
    assert spread.weights.tolist() == pytest.approx([0.575, 0.525, 0.475, 0.425], abs=1e-6)
    assert spread.places.tolist() == [0, 1]


def test_weights_become_a_set_again_at_intervals():
    seen = []

    def unlearn(weights):
        seen.append(weights.clone())
        return torch.rand(6, generator=torch.Generator().manual_seed(len(seen)))

    bilevel_choice(unlearn, role="easy", count=6, size=2, epochs=5, learning_rate=0.3, binarise_every=2)
    assert sorted(seen[0].tolist()) == sorted(seen[2].tolist()) == sorted(seen[4].tolist()) == [0, 0, 0, 0, 1, 1]
    assert not set(seen[1].tolist()) <= {0.0, 1.0}


def test_bad_requests_are_refused():
    with pytest.raises(ValueError, match="role 'hard', size 9 of 3"):
        bilevel_choice(lambda weights: weights, role="hard", count=3, size=9, epochs=1, learning_rate=0.1)
    with pytest.raises(ValueError, match="bi-level epoch 1: a loss is not finite"):
        bilevel_choice(lambda w: w * torch.nan, role="hard", count=3, size=1, epochs=1, learning_rate=0.1)


def test_a_sign_step_moves_every_weight_by_the_rate_or_not_at_all():
    parameter = torch.tensor([1.0, 2.0, 3.0])
    sign_sgd_step([parameter], [torch.tensor([5.0, -0.001, 0.0])], learning_rate=0.1)
    assert parameter.tolist() == pytest.approx([0.9, 2.1, 3.0])
