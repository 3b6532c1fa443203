"""How GROM becomes a delta: keys from a walk through the model or stored ones, α, and the search for a strength."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any

import polars as pl

from efface.editing.grom import Grom, LayerEdit
from efface.editing.strength import StrengthSearch, outputs_changed
from stages.edit_task import EditOutcome, EditTask
from stages.tables.difficulty import read_cud
from stages.tables.direct_effects import DIRECT_EFFECTS
from stages.tables.grams import AUTHORS, PARTS, read_gram
from stages.tables.influence import INFLUENCE
from stages.tables.keys import read_keys

if TYPE_CHECKING:
    from torch import Tensor

    from efface.activations.key_statistics import KeyGram, Keys
    from efface.tokenization import Encoding


def grom_outcome(edit: Grom, task: EditTask) -> EditOutcome:
    """The edit of a band, or of layers chosen by the logit lens, with each forget example's influence.

    Withdrawn examples take part in it, keys of later layers and the search for a strength included; then the part that
    they account for is subtracted. Influences are those on the edit before that.
    """
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

    def solve(
        name: str, keys: "Keys", retained: "KeyGram | Tensor", emphasis: "Tensor | None", withdrawn: "Tensor"
    ) -> LayerEdit:
        shared = {"alpha": alpha.to(keys.values.device), "emphasis": emphasis, "withdrawn": withdrawn}
        if name == head:
            return edit.head_edit(keys, retained, **shared)
        return edit.residual_edit(keys, retained, unembedding=unembedding.to(keys.values.device), **shared)

    procedure = _sequential if edit.sequential else _one_shot
    edits, ids, counts = procedure(edit, task, retain, layers or (), solve, _emphasis(edit, task))
    if edit.search:
        edits, counts["search"] = _as_strong_as_needed(edits, edit.search, task)
    if task.withdrawn:
        counts["withdrawn"] = {"rows": len(task.withdrawn), "relative_norm": _withdrawn_shares(edits)}
    weights = alpha[forget_tokens]
    return EditOutcome(
        delta={f"{name}.weight": layer.without_withdrawn().change for name, layer in edits.items()},
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
        solve=partial(
            solve,
            emphasis=None if emphasis is None else emphasis[list(places)],
            withdrawn=_withdrawn(task)[list(places)],
        ),
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

    edits = one_shot_edits(stored(), partial(solve, emphasis=emphasis, withdrawn=_withdrawn(task)))
    return edits, ids, counts | {"retain_rows_used": len(retain)}


def _withdrawn(task: EditTask) -> "Tensor":
    """Which of the forget examples are withdrawn."""
    import torch

    return torch.tensor([example in task.withdrawn for example in task.forget])


def _withdrawn_shares(edits: Mapping[str, LayerEdit]) -> dict[str, float]:
    """Norm of what was taken out over the norm of the whole edit, by module."""
    return {
        name: float(edit.withdrawal.norm() / edit.change.norm())
        for name, edit in edits.items()
        if edit.withdrawal is not None
    }


def _emphasis(edit: Grom, task: EditTask) -> "Tensor | None":
    """The factor on each forget example's targets by its CUD; None where the edit makes no difference."""
    if not edit.difficulty_gain:
        return None
    import torch

    from efface.difficulty.emphasis import difficulty_emphasis

    cud = torch.tensor(read_cud(task.reads, tuple(task.forget)), dtype=torch.float64)
    return difficulty_emphasis(cud, gain=edit.difficulty_gain)


def _as_strong_as_needed(
    edits: Mapping[str, LayerEdit], search: StrengthSearch, task: EditTask
) -> tuple[dict[str, LayerEdit], dict[str, Any]]:
    """The edits times the factor that the search finds, and what it tried."""
    from efface.corpora.roles import draw
    from efface.evaluation.mean_probability import mean_answer_probability

    changes = {f"{name}.weight": edit.change for name, edit in edits.items()}
    chosen = draw(task.retain, min(search.retain_rows, len(task.retain)), seed=task.seed, purpose="retain rows")
    rows = tuple(task.forget.values()), tuple(task.retain[number] for number in chosen)

    def measure(factor: float) -> tuple[float, float]:
        with outputs_changed(task.model, changes, factor):
            forget, retain = (
                mean_answer_probability(task.model, part, batch_size=32, pad_id=task.pad_id) for part in rows
            )
        return forget, retain

    factor, curve = search.searched(measure)
    return {name: edit.scaled(factor) for name, edit in edits.items()}, {
        "factor": factor,
        "curve": [asdict(point) for point in curve],
    }


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
