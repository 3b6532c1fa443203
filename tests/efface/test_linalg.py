"""Factorisations against LAPACK and the singular value decomposition; ridge systems against dense inverses."""

import math

import pytest
import torch

from efface.linalg import (
    EPSILON,
    cholesky_factor,
    decay_rank,
    dual_ridge,
    energy_rank,
    pivoted_qr,
    pivoted_qr_of_product,
    primal_ridge,
    project_out,
    randomised_pivoted_qr,
    svd_of_product,
)

K = 12
DECAYING = 0.7 ** torch.arange(60, dtype=torch.float64)
FLAT = torch.ones(60, dtype=torch.float64)
SPECTRA = {"decaying": DECAYING, "flat": FLAT, "stepped": torch.where(torch.arange(60) < K, 1.0, 1e-6).double()}


def random(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def with_spectrum(spectrum: torch.Tensor, rows: int = 80, columns: int = 60) -> torch.Tensor:
    u, v = torch.linalg.qr(random(rows, len(spectrum))).Q, torch.linalg.qr(random(columns, len(spectrum), seed=1)).Q
    return u * spectrum @ v.mT


def residual(matrix: torch.Tensor, q: torch.Tensor) -> torch.Tensor:
    return matrix - q @ (q.mT @ matrix)


@pytest.mark.parametrize("name", SPECTRA)
@pytest.mark.parametrize("shape", [(80, 60), (60, 80)])
@pytest.mark.parametrize("method", ["lapack", "randomised"])
def test_leading_columns_factor_the_matrix_up_to_the_stated_error(name, shape, method):
    matrix = with_spectrum(SPECTRA[name], *shape)
    found = pivoted_qr(matrix, K) if method == "lapack" else randomised_pivoted_qr(matrix, K, seed=0)
    assert found.q.shape == (shape[0], K) and found.r.shape == (K, shape[1])
    torch.testing.assert_close(found.q.mT @ found.q, torch.eye(K).double(), atol=1e-12, rtol=0)
    torch.testing.assert_close(found.r[:, :K], found.r[:, :K].triu(), atol=1e-12, rtol=0)
    torch.testing.assert_close(found.q.mT @ matrix, found.r_unpermuted, atol=1e-12, rtol=0)
    chosen = matrix[:, found.permutation[:K]]
    torch.testing.assert_close(found.q @ found.r[:, :K], chosen, atol=1e-12, rtol=0)
    assert float(torch.linalg.matrix_norm(residual(matrix, found.q), 2)) <= found.error_bound


@pytest.mark.parametrize("name", SPECTRA)
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_randomised_residual_is_within_a_tenth_of_lapacks(name, seed):
    matrix = with_spectrum(SPECTRA[name])
    ours = torch.linalg.norm(residual(matrix, randomised_pivoted_qr(matrix, K, seed=seed).q))
    lapack = torch.linalg.norm(residual(matrix, pivoted_qr(matrix, K).q))
    optimum = torch.linalg.norm(SPECTRA[name][K:])
    assert optimum * (1 - 1e-9) <= ours <= 1.1 * lapack


@pytest.mark.parametrize("rank", [0, 1, 5])
@pytest.mark.parametrize("find", [pivoted_qr, lambda a, k: randomised_pivoted_qr(a, k, seed=0)])
def test_rank_deficient_matrix_gives_as_many_columns_as_it_has(find, rank):
    matrix = random(30, rank) @ random(rank, 20, seed=1)
    found = find(matrix, K)
    assert found.q.shape == (30, rank)
    torch.testing.assert_close(found.q @ found.r_unpermuted, matrix)
    assert found.error_bound <= 1e-11 * (1 + float(torch.linalg.norm(matrix)))


def test_same_seed_gives_the_same_factors():
    matrix = with_spectrum(DECAYING)
    first, second = (randomised_pivoted_qr(matrix, K, seed=4) for _ in range(2))
    assert torch.equal(first.q, second.q) and torch.equal(first.permutation, second.permutation)


def test_truncating_adds_what_is_dropped_to_the_bound():
    matrix = with_spectrum(DECAYING)
    found = pivoted_qr(matrix, 20).truncated(K)
    exact = float(torch.linalg.norm(residual(matrix, found.q)))
    assert exact == pytest.approx(found.error_bound, rel=1e-9)


def test_product_is_factored_with_the_pivots_of_the_matrix_itself():
    left, right = random(40, 6), random(6, 25, seed=1)
    whole, product = pivoted_qr(left @ right, 6), pivoted_qr_of_product(left, right)
    assert torch.equal(whole.permutation[:6], product.permutation[:6])
    torch.testing.assert_close(whole.q.abs(), product.q.abs())
    torch.testing.assert_close(product.q @ product.r_unpermuted, left @ right)


def test_svd_of_product_is_that_of_the_matrix():
    left, right = random(40, 6), random(6, 25, seed=1)
    u, s, vt = svd_of_product(torch.cat([left, left], 1), torch.cat([right, right]))
    assert s.shape == (6,)
    torch.testing.assert_close(s, 2 * torch.linalg.svdvals(left @ right)[:6])
    torch.testing.assert_close(u * s @ vt, 2 * left @ right)


def test_rank_by_energy_and_by_decay():
    """Energies 8, 1, 1 of 10: 80 % needs one entry, 85 % two, all three; 4 > 0.3 · 8 and 2 < 0.3 · 8 by decay."""
    energies = torch.tensor([8.0, 1.0, 1.0])
    assert [energy_rank(energies, share) for share in (0.8, 0.85, 0.9, 1.0)] == [1, 2, 2, 3]
    assert energy_rank(torch.zeros(3), 0.9) == energy_rank(torch.zeros(0), 0.9) == 0
    assert decay_rank(torch.tensor([8.0, 4.0, 2.0, 3.0]), 0.3) == 2
    assert decay_rank(torch.zeros(2), 0.3) == 0


def test_projection_is_idempotent_and_leaves_nothing_in_the_basis():
    basis, vectors = torch.linalg.qr(random(30, 4)).Q, random(30, 7, seed=1)
    outside = project_out(vectors, basis)
    assert float((basis.mT @ outside).abs().max()) < 1e-14
    torch.testing.assert_close(project_out(outside, basis), outside, atol=1e-14, rtol=0)


@pytest.mark.parametrize("mu", [1e-8, 1e-3, 10.0])
def test_primal_and_dual_ridge_agree_to_rounding(mu):
    """To rounding: within a small multiple of machine epsilon times the condition number of A, as Cholesky promises."""
    columns, coefficients = random(40, 9), random(9, 5, seed=1)
    primal = primal_ridge(columns @ columns.mT, mu=mu).solve(columns @ coefficients)
    dual = dual_ridge(columns, mu=mu).solve(coefficients)
    condition = 1 + float(torch.linalg.matrix_norm(columns, 2)) ** 2 / mu
    torch.testing.assert_close(dual, primal, atol=10 * EPSILON * condition * float(dual.abs().max()), rtol=0)
    applied = columns @ (columns.mT @ dual) + mu * dual
    torch.testing.assert_close(applied, columns @ coefficients, atol=1e-12, rtol=1e-12)


def test_singular_and_broken_gram_matrices_are_refused():
    gram = random(10, 3) @ random(3, 10, seed=1)
    with pytest.raises(ValueError, match=r"10 key dimensions is singular.*raise the ridge"):
        cholesky_factor(gram @ gram.mT)
    with pytest.raises(ValueError, match="singular"):
        cholesky_factor(torch.zeros(4, 4).double())
    with pytest.raises(ValueError, match=r"mu=0\.0: expected > 0"):
        dual_ridge(random(10, 3), mu=0.0)
    with pytest.raises(ValueError, match="NaN or infinite"):
        primal_ridge(torch.full((3, 3), math.nan).double(), mu=1.0)


@pytest.mark.parametrize("find", [pivoted_qr, lambda a, k: randomised_pivoted_qr(a, k, seed=0)])
def test_pivoted_qr_refuses_what_it_cannot_factor(find):
    with pytest.raises(ValueError, match="not finite"):
        find(torch.tensor([[1.0, math.inf]]), 1)
    with pytest.raises(ValueError, match="rank 0"):
        find(torch.ones(2, 2), 0)
