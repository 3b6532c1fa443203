"""The closed form against a generic least-squares solve, its own gradient, and its limits."""

import pytest
import torch

from efface.activations.key_statistics import KeyGram
from efface.editing.audit import addition_factors, influence_factors, influence_norms
from efface.editing.ridge_edit import RidgeEdit, Targets, ridge_edit

OUT, N, S, R = 7, 20, 12, 30
WEIGHTS = {"retain_weight": 5.0, "forget_weight": 0.8, "ridge": 0.03}


def random(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def targets(columns: int = S, strength: float = 1.0) -> Targets:
    index = torch.arange(columns) % 4
    return Targets(random(4, OUT, seed=2), index, strength * (1 + random(columns, seed=3).abs()))


def dense(targets: Targets) -> torch.Tensor:
    return targets.of(torch.arange(len(targets.index)))


def gram(keys: torch.Tensor) -> KeyGram:
    return KeyGram.empty(keys.shape[1]).add(keys)


def least_squares(keys, goal, retain, mu, *, retain_weight, forget_weight) -> torch.Tensor:
    """The same minimum by stacking √weight · equations and solving each output row with LAPACK."""
    s, r, n = len(keys), len(retain), keys.shape[1]
    blocks = [(retain_weight / r) ** 0.5 * retain, (forget_weight / s) ** 0.5 * keys, mu**0.5 * torch.eye(n).double()]
    wanted = torch.zeros(s + r + n, OUT, dtype=torch.float64)
    wanted[r : r + s] = (forget_weight / s) ** 0.5 * goal.mT
    return torch.linalg.lstsq(torch.cat(blocks), wanted, driver="gelsd").solution.mT


@pytest.mark.parametrize(("n", "form"), [(N, "primal"), (60, "dual")])
def test_closed_form_equals_a_generic_least_squares_solve(n, form):
    keys, retain = random(S, n), random(R, n, seed=1)
    edit = ridge_edit(keys, targets(), retain, **WEIGHTS)
    assert (n > S + R) == (form == "dual")
    only = {name: WEIGHTS[name] for name in ("retain_weight", "forget_weight")}
    torch.testing.assert_close(
        edit.change, least_squares(keys, dense(targets()), retain, edit.mu, **only), atol=1e-11, rtol=0
    )


def test_gradient_of_the_objective_vanishes_at_the_edit():
    keys, retain = random(S, N), random(R, N, seed=1)
    edit = ridge_edit(keys, targets(), retain, **WEIGHTS)
    change = edit.change.clone().requires_grad_()
    objective = (
        WEIGHTS["retain_weight"] / R * (change @ retain.mT).square().sum()
        + WEIGHTS["forget_weight"] / S * (change @ keys.mT - dense(targets())).square().sum()
        + edit.mu * change.square().sum()
    )
    objective.backward()
    assert float(change.grad.abs().max()) < 1e-12


def test_primal_and_dual_agree_to_rounding():
    keys, retain = random(S, 60), random(R, 60, seed=1)
    dual, primal = (ridge_edit(keys, targets(), side, **WEIGHTS) for side in (retain, gram(retain)))
    assert dual.mu == pytest.approx(primal.mu, rel=1e-14)
    torch.testing.assert_close(dual.change, primal.change, atol=1e-13, rtol=0)
    columns = torch.tensor([3, 0])
    torch.testing.assert_close(dual.inverse_keys(columns), primal.inverse_keys(columns), atol=1e-13, rtol=0)


def test_gram_of_the_retained_keys_serves_as_well_as_the_keys():
    keys, retain = random(S, N), random(R, N, seed=1)
    stored = gram(torch.cat([retain, keys])).minus(keys)
    raw, from_gram = (ridge_edit(keys, targets(), side, **WEIGHTS) for side in (retain, stored))
    torch.testing.assert_close(from_gram.change, raw.change, atol=1e-13, rtol=0)


def test_ridge_is_relative_to_the_mean_diagonal():
    """A₀ = 2/1 · (0, 3)ᵀ(0, 3) + 1/1 · (1, 0)ᵀ(1, 0) = diag(1, 18); μ = 0.1 · 19 / 2 = 0.95; P = d · 1 / (1 + 0.95)."""
    one = Targets(torch.ones(1, 1).double(), torch.tensor([0]), torch.tensor([-3.0]).double())
    retain = gram(torch.tensor([[0.0, 3.0]]))
    edit = ridge_edit(torch.tensor([[1.0, 0.0]]), one, retain, retain_weight=2.0, ridge=0.1)
    assert edit.mu == pytest.approx(0.95)
    torch.testing.assert_close(edit.change, torch.tensor([[-3 / 1.95, 0.0]]).double())


def test_zero_target_is_zero_edit_and_the_edit_is_linear_in_the_target():
    keys, retain = random(S, N), random(R, N, seed=1)
    zero, one, two = (ridge_edit(keys, targets(strength=beta), retain, **WEIGHTS).change for beta in (0.0, 1.0, 2.0))
    assert not zero.any()
    torch.testing.assert_close(two, 2 * one, atol=1e-13, rtol=0)


def test_heavy_retain_weight_keeps_retained_outputs():
    keys, retain = random(S, N), random(5, N, seed=1)
    edit = ridge_edit(keys, targets(), retain, retain_weight=1e9, ridge=1e-13)
    moved, kept = (edit.change @ keys.mT).norm(), (edit.change @ retain.mT).norm()
    assert kept < 1e-4 * moved


def without(edit: RidgeEdit, keys, goal: Targets, retain, example: torch.Tensor) -> torch.Tensor:
    """The edit solved anew without some columns, while s, μ and D stay what they were."""
    kept = ~example
    a = WEIGHTS["retain_weight"] / len(retain) * retain.mT @ retain + edit.mu * torch.eye(keys.shape[1]).double()
    a += edit.weight * keys[kept].mT @ keys[kept]
    return torch.linalg.solve(a, edit.weight * (dense(goal)[:, kept] @ keys[kept]).mT).mT


@pytest.mark.parametrize("n", [N, 60])
def test_influence_equals_solving_again_without_the_example(n):
    keys, retain, examples = random(S, n), random(R, n, seed=1), torch.tensor([4, 4, 9, 9, 9, 9, 9, 2, 2, 2, 2, 2])
    edit = ridge_edit(keys, targets(), retain, **WEIGHTS)
    norms = influence_norms(edit, keys, targets(), examples)
    assert set(norms) == {2, 4, 9}
    for example, norm in norms.items():
        exact = edit.change - without(edit, keys, targets(), retain, examples == example)
        left, right = influence_factors(edit, keys, targets(), (examples == example).nonzero().flatten())
        torch.testing.assert_close(left @ right, exact, atol=1e-9 * float(exact.norm()), rtol=0)
        assert norm == pytest.approx(float(exact.norm()), rel=1e-9)


@pytest.mark.parametrize("n", [N, 60])
def test_addition_undoes_a_withdrawal(n):
    """From the edit solved without an example, with s, μ and D as they were, adding it gives the edit with it."""
    keys, retain, own = random(S, n), random(R, n, seed=1), torch.arange(S) >= 9
    whole, goal = ridge_edit(keys, targets(), retain, **WEIGHTS), targets()
    less = without(whole, keys, goal, retain, own)
    a = WEIGHTS["retain_weight"] / R * retain.mT @ retain + whole.mu * torch.eye(n).double()
    a += whole.weight * keys[~own].mT @ keys[~own]
    reduced = RidgeEdit(
        less,
        whole.weight,
        whole.mu,
        lambda _: pytest.fail("own keys are not asked"),
        lambda b: torch.linalg.solve(a, b),
    )
    added = Targets(goal.directions, goal.index[own], goal.scale[own])
    left, right = addition_factors(reduced, keys[own], added)
    torch.testing.assert_close(less + left @ right, whole.change, atol=1e-9 * float(whole.change.norm()), rtol=0)


@pytest.mark.parametrize("n", [N, 60])
def test_inverse_is_that_of_the_system_in_either_form(n):
    keys, retain, right = random(S, n), random(R, n, seed=1), random(n, 3, seed=5)
    edit = ridge_edit(keys, targets(), retain, **WEIGHTS)
    a = WEIGHTS["retain_weight"] / R * retain.mT @ retain + edit.weight * keys.mT @ keys
    torch.testing.assert_close((a + edit.mu * torch.eye(n).double()) @ edit.inverse(right), right)


def test_broken_and_empty_keys_are_refused():
    keys, retain = random(S, N), random(R, N, seed=1)
    with pytest.raises(ValueError, match="12 forget keys and 0 retain keys"):
        ridge_edit(keys, targets(), KeyGram.empty(N), **WEIGHTS)
    with pytest.raises(ValueError, match="0 forget keys and 30 retain keys"):
        ridge_edit(keys[:0], targets(0), retain, **WEIGHTS)
    with pytest.raises(ValueError, match="NaN or infinite"):
        ridge_edit(keys.index_fill(0, torch.tensor([1]), float("nan")), targets(), retain, **WEIGHTS)
    with pytest.raises(ValueError, match=r"singular.*raise the ridge"):
        ridge_edit(keys[:2], targets(2), gram(retain[:3]), retain_weight=1.0, ridge=0.0)
