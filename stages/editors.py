"""Every editor there is: the union of their parameters, and what each of them needs to become a delta."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import polars as pl
from pydantic import Field

from efface.editing.grom import Grom
from efface.editing.subspace import QrErase, UnlearnSvd
from efface.unlearning.methods import Unlearning
from stages.edit_task import EditOutcome, EditTask
from stages.grom_edit import grom_outcome
from stages.tables.difficulty import read_cud
from stages.tables.energies import ENERGIES

if TYPE_CHECKING:
    from efface.editing.delta import LowRank

Editor = Annotated[Grom | QrErase | UnlearnSvd | Unlearning, Field(discriminator="method")]


def edit_outcome(edit: Editor, task: EditTask) -> EditOutcome:
    """Runs the editor that `edit` names; the task's model is left as it was.

    Raises: ValueError where the forget or the retain side is empty, or a file that the editor reads is not there.
    """
    if not task.forget or not task.retain:
        raise ValueError(
            f"{len(task.forget)} forget and {len(task.retain)} retain rows: expected at least one of each; "
            "retained are the training rows outside the forget set that measure no utility"
        )
    if isinstance(edit, Grom):
        return grom_outcome(edit, task)
    if task.withdrawn:
        raise ValueError(
            f"method {edit.method}: {len(task.withdrawn)} withdrawn rows, but only GROM knows each example's part; "
            "edit with GROM, or leave the rows out of the forget set"
        )
    if isinstance(edit, QrErase | UnlearnSvd):
        return _subspace_outcome(edit, task)
    return _unlearning_outcome(edit, task)


def _subspace_outcome(edit: QrErase | UnlearnSvd, task: EditTask) -> EditOutcome:
    from efface.models import layer_of

    forget, retain = (_task_matrices(task.reads, part) for part in ("forget", "retain"))
    layers = _localised(task.reads) if edit.localised else None
    if layers is not None:
        forget, retain = ({n: m for n, m in part.items() if layer_of(n) in layers} for part in (forget, retain))
    return EditOutcome(edit.delta(forget, retain), layers, {"energies": _energies(task.reads)})


def _unlearning_outcome(edit: Unlearning, task: EditTask) -> EditOutcome:
    from efface.unlearning.alternatives import alternative_texts, alternatives_record
    from efface.unlearning.descent import unlearning_run

    texts = task.asked and alternative_texts(
        edit, task.model, task.asked, seed=task.seed, checkpoint_folder=task.checkpoints
    )
    layers = _localised(task.reads) if edit.localised else None
    cud = None if edit.order == "shuffled" else read_cud(task.reads, tuple(task.forget))
    delta, curve = unlearning_run(
        edit,
        task.model,
        tuple(task.forget.values()),
        tuple(task.retain.values()),
        pad_id=task.pad_id,
        seed=task.seed,
        alternatives=task.asked.encoded(texts) if task.asked and texts else None,
        difficulty=cud,
        layers=layers,
        checkpoint_folder=task.checkpoints,
        progress=f"unlearn by {edit.method}",
    )
    details = {"steps": len(curve)} | ({"alternatives": alternatives_record(edit, texts)} if texts else {})
    return EditOutcome(delta, layers, details, curve=tuple(curve))


def _task_matrices(folder: Path, part: str) -> "dict[str, LowRank]":
    """Task matrices of one part of the data as factors, by module."""
    from safetensors.torch import load_file

    from efface.editing.delta import LowRank

    path = folder / "factors.safetensors"
    if not path.is_file():
        raise FileNotFoundError(
            f"{path}: no task matrices; set this grid item's `reads` to data/build_task_matrices/<set>"
        )
    tensors = load_file(path)
    modules = [key.removesuffix(f"/{part}/left") for key in tensors if key.endswith(f"/{part}/left")]
    return {name: LowRank(tensors[f"{name}/{part}/left"], tensors[f"{name}/{part}/right"]) for name in sorted(modules)}


def _energies(folder: Path) -> dict[str, float]:
    """‖T_f‖_F of every module."""
    path = folder / "energies.parquet"
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no energies; set this grid item's `reads` to data/build_task_matrices/<set>")
    frame = ENERGIES.read(path).filter(pl.col("partition") == "forget").sort("layer", "module")
    return dict(frame.select("module", "frobenius_norm").iter_rows())


def _localised(folder: Path) -> tuple[int, ...]:
    from efface.editing.localisation import localised_layers

    return localised_layers(_energies(folder))
