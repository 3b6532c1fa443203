"""Time and residual of the leading k = 32 columns: full SVD, LAPACK's geqp3, and the randomised pivoted QR.

`python -m benchmarks.pivoted_qr [--sizes 768 …]` factors square float64 matrices with decaying spectra and prints
seconds, the share of the SVD's time that is saved, and ‖A − Q Qᵀ A‖_F over the least that any rank-k matrix leaves.
"""

import argparse
import time
from collections.abc import Callable

import torch
from torch import Tensor

from efface.linalg import pivoted_qr, randomised_pivoted_qr

RANK = 32
SPECTRA = {"1 / k": lambda k: 1 / k, "0.9^k": lambda k: 0.9**k}


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--sizes", type=int, nargs="+", default=[768, 1024, 1536, 2048, 3072, 4096])
    arguments.add_argument("--repeats", type=int, default=1)
    chosen = arguments.parse_args()
    print("| size | spectrum | way | seconds | less than the SVD | residual / optimum |\n|---|---|---|---|---|---|")
    for size in chosen.sizes:
        for spectrum, values in SPECTRA.items():
            matrix = decaying(size, values(torch.arange(1, size + 1, dtype=torch.float64)), seed=size)
            best = float(torch.linalg.norm(values(torch.arange(RANK + 1, size + 1, dtype=torch.float64))))
            timed = {name: measured(way, matrix, repeats=chosen.repeats) for name, way in WAYS.items()}
            for name, (seconds, basis) in timed.items():
                left = float(torch.linalg.norm(matrix - basis @ (basis.mT @ matrix)))
                saved = 1 - seconds / timed["SVD"][0]
                print(f"| {size} | {spectrum} | {name} | {seconds:.3f} | {saved:.1%} | {left / best:.3f} |", flush=True)


def decaying(size: int, values: Tensor, *, seed: int) -> Tensor:
    """A random square matrix with these singular values."""
    draws = torch.Generator().manual_seed(seed)
    u, v = (torch.linalg.qr(torch.randn(size, size, generator=draws, dtype=torch.float64)).Q for _ in range(2))
    return (u * values) @ v.mT


def measured(way: Callable[[Tensor], Tensor], matrix: Tensor, *, repeats: int) -> tuple[float, Tensor]:
    """Least seconds of some repeats, and the orthonormal basis found."""
    times, basis = [], matrix
    for _ in range(repeats):
        started = time.perf_counter()
        basis = way(matrix)
        times.append(time.perf_counter() - started)
    return min(times), basis


WAYS: dict[str, Callable[[Tensor], Tensor]] = {
    "SVD": lambda matrix: torch.linalg.svd(matrix, full_matrices=False).U[:, :RANK],
    "geqp3": lambda matrix: pivoted_qr(matrix, rank=RANK).q,
    "ours": lambda matrix: randomised_pivoted_qr(matrix, RANK, seed=0).q,
}


if __name__ == "__main__":
    main()
