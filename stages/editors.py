"""Every editor there is: the union of their parameters, and what each of them needs to become a delta."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import polars as pl
from pydantic import Field

from efface.editing.grom import Grom, LayerEdit
from efface.editing.strength import StrengthSearch, outputs_changed
from efface.editing.subspace import QrErase, UnlearnSvd
from efface.unlearning.methods import Unlearning
from stages.tables.anchors import ALL_RUNS
from stages.tables.difficulty import DIFFICULTY
from stages.tables.direct_effects import DIRECT_EFFECTS
from stages.tables.energies import ENERGIES
from stages.tables.grams import AUTHORS, PARTS, read_gram
from stages.tables.influence import INFLUENCE
from stages.tables.keys import read_keys

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedModel

    from efface.activations.key_statistics import KeyGram, Keys
    from efface.editing.delta import Delta, LowRank
    from efface.tokenization import Encoding
    from efface.training.checkpoint import LossPoint
    from efface.unlearning.alternatives import Asked

Editor = Annotated[Grom | QrErase | UnlearnSvd | Unlearning, Field(discriminator="method")]


@dataclass(frozen=True)
class EditTask:
    """One forget set on one model; the other training rows are in `utility` where they measure it, else in `retain`.

    `asked` is the forget set as text, for editors that put other answers in place of its own.
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


@dataclass(frozen=True)
class EditOutcome:
    """The delta, the layers it touches (None: all of the model), and what the record says about how it came about."""

    delta: "Delta"
    layers: tuple[int, ...] | None
    details: dict[str, Any]
    influence: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=list(INFLUENCE.columns)))
    curve: tuple["LossPoint", ...] = ()


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
        return _grom_outcome(edit, task)
    if isinstance(edit, QrErase | UnlearnSvd):
        return _subspace_outcome(edit, task)
    return _unlearning_outcome(edit, task)


def _grom_outcome(edit: Grom, task: EditTask) -> EditOutcome:
    import torch

    from efface.activations.logit_lens import best_band
    from efface.editing.suppression import specificity_weights
    from efface.models import anatomy, module_name

    retain = {**task.retain, **task.utility} if edit.retain_anchors == "published" else dict(task.retain)
    forget_tokens, retain_tokens = _answer_tokens(task.forget), _answer_tokens(retain)
    parts = anatomy(task.model)
    head, unembedding = module_name(task.model, parts.unembedding), parts.unembedding.weight.detach()
    ends = {encoding.input_ids[-1] for encoding in retain.values()} if edit.published_alpha else ()
    alpha = torch.ones(len(unembedding), dtype=torch.float64)
    if edit.target == "suppression":
        alpha = specificity_weights(forget_tokens, retain_tokens, vocabulary=len(unembedding), uncounted=ends)
    scores = _band_scores(task, retain, alpha) if edit.layers is None and edit.beta else None
    layers = () if not edit.beta else edit.layers if scores is None else best_band(scores, width=edit.width)

    def solve(name: str, keys: "Keys", retained: "KeyGram | Tensor", emphasis: "Tensor | None") -> LayerEdit:
        shared = {"alpha": alpha.to(keys.values.device), "emphasis": emphasis}
        if name == head:
            return edit.head_edit(keys, retained, **shared)
        return edit.residual_edit(keys, retained, unembedding=unembedding.to(keys.values.device), **shared)

    procedure = _sequential if edit.sequential else _one_shot
    edits, ids, counts = procedure(edit, task, retain, layers or (), solve, _emphasis(edit, task))
    if edit.search:
        edits, counts["search"] = _as_strong_as_needed(edits, edit.search, task)
    weights = alpha[forget_tokens]
    return EditOutcome(
        delta={f"{name}.weight": layer.change for name, layer in edits.items()},
        layers=layers,
        details={
            **counts,
            "alpha": {"mean": float(weights.mean()), "zero_share": float((weights == 0).double().mean())},
            "band_scores": None if scores is None else scores.tolist(),
            "mu": {name: layer.mu for name, layer in edits.items()},
        },
        influence=_influence_frame(edits, ids),
    )


def _sequential(
    edit: Grom, task: EditTask, retain: Mapping[int, "Encoding"], layers: tuple[int, ...], solve, emphasis
) -> tuple:
    """Edits by module, the ids that influence is counted by, and how much went in."""
    from efface.activations.capture import column_count, sampled_to_columns
    from efface.editing.band import sequential_edits

    places, forget = sampled_to_columns(tuple(task.forget.values()), cap=edit.forget_columns, seed=task.seed)
    _, retained = sampled_to_columns(tuple(retain.values()), cap=edit.retain_columns, seed=task.seed)
    edits = sequential_edits(
        task.model,
        forget,
        retained,
        layers=layers,
        head=edit.head_beta > 0,
        solve=partial(solve, emphasis=None if emphasis is None else emphasis[list(places)]),
        batch_size=edit.batch_size,
        pad_id=task.pad_id,
    )
    ids = [tuple(task.forget)[place] for place in places]
    counts = {"forget_columns": column_count(forget), "retain_columns": column_count(retained)}
    return edits, ids, counts | {"forget_rows_used": len(forget), "retain_rows_used": len(retained)}


def _one_shot(
    edit: Grom, task: EditTask, retain: Mapping[int, "Encoding"], layers: tuple[int, ...], solve, emphasis
) -> tuple:
    """The same from stored keys: Gram(retain) = Gram(trained rows) − Σ keys(set)."""
    from efface.activations.key_statistics import sampled_keys
    from efface.editing.band import one_shot_edits
    from efface.models import anatomy, check_layers, module_name

    parts, ids, counts = anatomy(task.model), tuple(task.forget), {}
    check_layers(layers, len(parts.layers))
    names = [module_name(task.model, parts.layers[layer].down_projection) for layer in sorted(layers)]
    names += [module_name(task.model, parts.unembedding)] if edit.head_beta else []
    splits = PARTS if edit.retain_anchors == "published" else (AUTHORS,)

    def stored() -> Iterator[tuple[str, tuple["Keys", "KeyGram"]]]:
        for name in names:
            keys = read_keys(task.reads, name, ids)
            retained = read_gram(task.reads, name, splits).minus(keys.values)
            keys = sampled_keys(keys, edit.forget_columns, seed=task.seed)
            counts.update(forget_columns=len(keys), retain_columns=retained.count)
            yield name, (keys, retained)

    edits = one_shot_edits(stored(), partial(solve, emphasis=emphasis))
    return edits, ids, counts | {"retain_rows_used": len(retain)}


def _emphasis(edit: Grom, task: EditTask) -> "Tensor | None":
    """The factor on each forget example's targets by its CUD; None where the edit makes no difference."""
    if not edit.difficulty_gain:
        return None
    from efface.difficulty.emphasis import difficulty_emphasis

    return difficulty_emphasis(cud_of(tuple(task.forget), task.reads), gain=edit.difficulty_gain)


def cud_of(ids: Sequence[int], folder: Path) -> "Tensor":
    """CUD of each example, as it made the forget sets.

    Raises: FileNotFoundError or ValueError where the folder has no scores, or none of an example.
    """
    import torch

    path = folder / "difficulty.parquet"
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no difficulty scores; set this grid item's `reads` to data/score_cud")
    scores = dict(DIFFICULTY.read(path).filter("chosen", source=ALL_RUNS).select("id", "cud").iter_rows())
    missing = [number for number in ids if number not in scores]
    if missing:
        raise ValueError(f"{path}: no CUD of examples {missing[:5]}; expected one for every row of the pool")
    return torch.tensor([scores[number] for number in ids], dtype=torch.float64)


def _as_strong_as_needed(
    edits: Mapping[str, LayerEdit], search: StrengthSearch, task: EditTask
) -> tuple[dict[str, LayerEdit], dict[str, Any]]:
    """The edits times the factor that the search finds, and what it tried."""
    from efface.corpora.roles import draw

    changes = {f"{name}.weight": edit.change for name, edit in edits.items()}
    chosen = draw(task.retain, min(search.retain_rows, len(task.retain)), seed=task.seed, purpose="retain rows")
    rows = tuple(task.forget.values()), tuple(task.retain[number] for number in chosen)

    def measure(factor: float) -> tuple[float, float]:
        with outputs_changed(task.model, changes, factor):
            forget, retain = (_mean_probability(task, part) for part in rows)
        return forget, retain

    factor, curve = search.curve(measure)
    scaled = {
        name: LayerEdit(factor * edit.change, edit.mu, {place: factor * n for place, n in edit.influence.items()})
        for name, edit in edits.items()
    }
    return scaled, {"factor": factor, "curve": [asdict(point) for point in curve]}


def _mean_probability(task: EditTask, rows: Sequence["Encoding"]) -> float:
    from efface.evaluation.probability import answer_probability
    from efface.evaluation.scoring import score_answers

    scores = score_answers(task.model, rows, batch_size=32, pad_id=task.pad_id, label="strength")
    return sum(answer_probability(score.nll) for score in scores) / len(scores)


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
    cud = None if edit.order == "shuffled" else cud_of(tuple(task.forget), task.reads).tolist()
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


def _answer_tokens(rows: Mapping[int, "Encoding"]) -> "Tensor":
    import torch

    return torch.tensor([token for encoding in rows.values() for token in encoding.answer_ids])


def _band_scores(task: EditTask, retain: Mapping[int, "Encoding"], alpha: "Tensor") -> "Tensor":
    """The logit-lens score of every layer for this forget set."""
    import torch

    from efface.activations.logit_lens import band_scores

    table = DIRECT_EFFECTS.scan(task.reads / "direct_effects.parquet").sort("layer", "id", "position")
    forget, kept = (table.filter(pl.col("id").is_in(list(rows))).collect() for rows in (task.forget, retain))
    layers = forget["layer"].n_unique()
    effects = [torch.from_numpy(frame["effect"].to_numpy().reshape(layers, -1)) for frame in (forget, kept)]
    tokens = torch.from_numpy(forget["gold_token"].to_numpy().astype("int64")).reshape(layers, -1)[0]
    return band_scores(effects[0], alpha[tokens], effects[1])


def _influence_frame(edits: Mapping[str, LayerEdit], ids: Sequence[int]) -> pl.DataFrame:
    from efface.models import layer_of

    records = [
        {
            "id": ids[place],
            "layer": layer_of(name),
            "module": name,
            "influence_norm": norm,
            "relative": norm / float(edit.change.double().norm()),
        }
        for name, edit in edits.items()
        for place, norm in edit.influence.items()
    ]
    return pl.DataFrame(records, schema=list(INFLUENCE.columns))


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
