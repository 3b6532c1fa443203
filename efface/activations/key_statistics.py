"""Keys of a linear map and their Gram matrix, summed batch by batch in float64."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor


@dataclass(frozen=True)
class Keys:
    """Inputs of one linear map, a row per column of X, with the gold token each predicts and the example it is from."""

    values: Float[Tensor, "column key"]
    tokens: Int[Tensor, " column"]
    examples: Int[Tensor, " column"]

    def __len__(self) -> int:
        return len(self.tokens)


def sampled_keys(keys: Keys, cap: int, *, seed: int) -> Keys:
    """`cap` random columns in their order; all of them where there are no more."""
    if len(keys) <= cap:
        return keys
    chosen = torch.randperm(len(keys), generator=torch.Generator().manual_seed(seed))[:cap].sort().values
    return Keys(keys.values[chosen], keys.tokens[chosen], keys.examples[chosen])


def joined_keys(parts: Sequence[Keys]) -> Keys:
    """The keys of all parts in their order."""
    return Keys(
        torch.cat([part.values for part in parts]),
        torch.cat([part.tokens for part in parts]),
        torch.cat([part.examples for part in parts]),
    )


@dataclass
class KeyGram:
    """X Xᵀ in float64 and the number of columns in it; what was added can be taken away again."""

    gram: Float[Tensor, "key key"]
    count: int = 0

    @classmethod
    def empty(cls, width: int, *, device: torch.device | str = "cpu") -> "KeyGram":
        """The Gram matrix of no keys."""
        return cls(torch.zeros(width, width, dtype=torch.float64, device=device))

    def add(self, keys: Float[Tensor, "column key"], *, sign: int = 1) -> "KeyGram":
        """Adds the keys (`sign` −1: takes them away) and returns itself.

        Raises: ValueError where a key is not finite, or more are taken away than were added.
        """
        if not torch.isfinite(keys).all():
            raise ValueError(
                f"{int((~torch.isfinite(keys)).any(1).sum())} of {len(keys)} keys hold NaN or infinity; "
                "load the model in float32 or check its weights"
            )
        if self.count + sign * len(keys) < 0:
            raise ValueError(f"{len(keys)} keys taken away from {self.count}: expected keys that were added before")
        values = keys.double()
        self.gram.addmm_(values.mT, values, alpha=sign)
        self.count += sign * len(keys)
        return self

    def plus(self, other: "KeyGram") -> "KeyGram":
        """The Gram matrix of both sets of keys."""
        return KeyGram(self.gram + other.gram, self.count + other.count)

    def minus(self, keys: Float[Tensor, "column key"]) -> "KeyGram":
        """The Gram matrix without these keys: Gram(train) − Σ keys(set) = Gram(retain), to rounding."""
        return KeyGram(self.gram.clone(), self.count).add(keys, sign=-1)
