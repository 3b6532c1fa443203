"""What an editor is given, and what it gives back."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from stages.tables.influence import INFLUENCE

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from efface.editing.delta import Delta
    from efface.tokenization import Encoding
    from efface.training.checkpoint import LossPoint
    from efface.unlearning.alternatives import Asked


@dataclass(frozen=True)
class EditTask:
    """One forget set on one model; the other training rows are in `utility` where they measure it, else in `retain`.

    `asked` is the forget set as text, for editors that put other answers in place of its own. `withdrawn` names those
    of the forget set whose requests no longer stand; what the edit owes to them is taken out of it again.
    """

    model: "PreTrainedModel"
    forget: Mapping[int, "Encoding"]
    retain: Mapping[int, "Encoding"]
    utility: Mapping[int, "Encoding"]
    reads: Path
    seed: int
    pad_id: int
    checkpoints: Path | None = None
    asked: "Asked | None" = None
    withdrawn: frozenset[int] = frozenset()


@dataclass(frozen=True)
class EditOutcome:
    """The delta, the layers it touches (None: all of the model), and what the record says about how it came about."""

    delta: "Delta"
    layers: tuple[int, ...] | None
    details: dict[str, Any]
    influence: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=list(INFLUENCE.columns)))
    curve: tuple["LossPoint", ...] = ()
