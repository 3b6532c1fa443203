"""Subspace removal: what it takes away, what it spares, and when it refuses."""

import pytest
import torch

from efface.editing.delta import LowRank
from efface.editing.subspace import QrErase, UnlearnSvd, frobenius_norm, removal

OUT, IN, K = 30, 24, 4
MODULE = "model.layers.0.mlp.down_proj"
EDITORS = [QrErase, UnlearnSvd]


def random(*shape: int, seed: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def matrix(seed: int, *, rank: int = K) -> LowRank:
    return LowRank(random(OUT, rank, seed=seed), random(rank, IN, seed=seed + 1))


def change(edit, forget: LowRank, retain: LowRank) -> torch.Tensor:
    return edit.delta({MODULE: forget}, {MODULE: retain})[f"{MODULE}.weight"].dense()


@pytest.mark.parametrize("editor", EDITORS)
@pytest.mark.parametrize("side", ["left", "right"])
def test_retain_subspace_does_not_change(editor, side):
    """Q_rᵀ (W′ − W) = 0 on the left, (W′ − W) V_r = 0 on the right."""
    forget, retain = matrix(0), matrix(10)
    moved = change(editor(side=side, energy=1.0), forget, retain)
    q, v = torch.linalg.qr(retain.left).Q, torch.linalg.qr(retain.right.mT).Q
    spared = q.mT @ moved if side == "left" else moved @ v
    assert float(spared.abs().max()) < 1e-5 * float(moved.norm()) and float(moved.norm()) > 1


@pytest.mark.parametrize("editor", EDITORS)
@pytest.mark.parametrize("side", ["left", "right"])
def test_orthogonal_tasks_are_removed_exactly(editor, side):
    forget, retain = matrix(0), matrix(10)
    q, v = torch.linalg.qr(retain.left).Q, torch.linalg.qr(retain.right.mT).Q
    forget = LowRank(forget.left - q @ (q.mT @ forget.left), forget.right - forget.right @ v @ v.mT)
    moved = change(editor(side=side, energy=1.0), forget, retain)
    torch.testing.assert_close(moved, -forget.dense(), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("side", ["left", "right"])
def test_qr_and_svd_remove_the_same_at_exact_rank(side):
    forget, retain = matrix(0), matrix(10)
    qr, svd = (change(editor(side=side, energy=1.0), forget, retain) for editor in EDITORS)
    torch.testing.assert_close(qr, svd, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("side", ["left", "right"])
def test_qr_and_svd_nearly_agree_under_a_spectral_gap(side):
    noise = 1e-4
    forget = LowRank(torch.cat([random(OUT, K, seed=0), noise * random(OUT, K, seed=5)], 1), random(2 * K, IN, seed=6))
    qr, svd = (change(editor(side=side, rank=K), forget, matrix(10)) for editor in EDITORS)
    assert float((qr - svd).norm()) < 100 * noise * float(svd.norm())


@pytest.mark.parametrize("editor", EDITORS)
def test_strength_scales_and_rank_caps_the_change(editor):
    forget, retain = matrix(0), matrix(10)
    whole, half = (change(editor(strength=s, energy=1.0), forget, retain) for s in (1.0, 0.5))
    torch.testing.assert_close(half, whole / 2)
    capped = editor(rank=2).delta({MODULE: forget}, {MODULE: retain})[f"{MODULE}.weight"]
    assert capped.left.shape == (OUT, 2)


@pytest.mark.parametrize("editor", EDITORS)
def test_energy_and_decay_drop_small_directions(editor):
    small = LowRank(torch.cat([random(OUT, K, seed=0), 1e-5 * random(OUT, K, seed=5)], 1), random(2 * K, IN, seed=6))
    for limits in ({"energy": 0.9999}, {"energy": 1.0, "decay": 1e-3}):
        found = editor(**limits).delta({MODULE: small}, {MODULE: matrix(10)})[f"{MODULE}.weight"]
        assert found.right.shape[0] == K


def test_paper_formula_by_hand():
    """T_f = e₁(1, 1)ᵀ + e₂(0, 2)ᵀ, T_r along e₁: on the left only e₂(0, 2)ᵀ is left to subtract."""
    forget = (torch.eye(3)[:, :2], torch.tensor([[1.0, 1.0], [0.0, 2.0]]))
    left, right = removal(forget, torch.eye(3)[:, :1], side="left")
    assert torch.equal(left @ right, torch.tensor([[0.0, 0.0], [0.0, 2.0], [0.0, 0.0]]))
    assert frobenius_norm(LowRank(*forget)) == pytest.approx(6**0.5)


@pytest.mark.parametrize("editor", EDITORS)
@pytest.mark.parametrize("side", ["left", "right"])
def test_full_rank_retain_matrix_is_refused_with_an_explanation(editor, side):
    full = LowRank(torch.eye(IN), random(IN, IN, seed=3))
    with pytest.raises(ValueError, match=rf"{MODULE}: the retain task matrix has full rank 24.*truncate it"):
        editor(side=side, energy=1.0).delta({MODULE: full}, {MODULE: full})


@pytest.mark.parametrize("editor", EDITORS)
def test_one_sided_and_empty_task_matrices_are_refused(editor):
    with pytest.raises(ValueError, match=r"modules \['other'\] have a task matrix on one side only"):
        editor().delta({MODULE: matrix(0)}, {MODULE: matrix(0), "other": matrix(0)})
    zero = LowRank(torch.zeros(OUT, 1), torch.zeros(1, IN))
    with pytest.raises(ValueError, match="all zero"):
        editor().delta({MODULE: zero}, {MODULE: matrix(0)})
    with pytest.raises(ValueError, match="energy 0"):
        editor(energy=0.0)
