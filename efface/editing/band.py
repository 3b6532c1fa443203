"""Editing a band of layers in one pass: collect keys at a layer, solve, change it, and go on from there."""

from collections.abc import Callable, Iterator, Mapping, Sequence

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from efface.activations.capture import Columns, column_count
from efface.activations.key_statistics import KeyGram, Keys, joined_keys
from efface.activations.walk import walk_to
from efface.editing.delta import changed_weight
from efface.editing.grom import LayerEdit
from efface.models import anatomy, check_layers, module_name
from efface.tokenization import Encoding
from efface.training.change import restored

Solve = Callable[[str, Keys, KeyGram | Tensor], LayerEdit]


def sequential_edits(
    model: PreTrainedModel,
    forget: Sequence[Encoding],
    retain: Sequence[Encoding],
    *,
    layers: Sequence[int],
    head: bool,
    solve: Solve,
    batch_size: int,
    pad_id: int,
) -> dict[str, LayerEdit]:
    """The edit of each layer's down-projection, lowest first, by module name; each sees the layers below it changed.

    `solve` gets a module's name, its forget keys, and its retain keys: themselves where both sides together have fewer
    columns than key dimensions, else their Gram matrix. With `head` the unembedding comes last. The model is left as it
    was found.

    Raises: ValueError where a layer does not exist, its down-projection is not linear, nothing is to be edited, or a
    side has no rows.
    Cost: one forward pass, and the changed blocks once more; hidden states of all rows, the keys of one layer.
    """
    parts = anatomy(model)
    check_layers(layers, len(parts.layers))
    names = {layer: module_name(model, parts.layers[layer].down_projection) for layer in sorted(layers)}
    if not names and not head:
        raise ValueError("no layers and no head: nothing to edit; name a layer")
    if not forget or not retain:
        raise ValueError(f"{len(forget)} forget and {len(retain)} retain rows: expected at least one of each")
    maps = {layer: linear_map(parts.layers[layer].down_projection, name) for layer, name in names.items()}
    first = min(names, default=len(parts.layers) - 1)
    walks = [
        walk_to(model, rows, first, batch_size=batch_size, pad_id=pad_id, label=label)
        for label, rows in (("forget rows", forget), ("retain rows", retain))
    ]
    counts = (column_count(forget), column_count(retain))
    edits: dict[str, LayerEdit] = {}
    with restored(model, [f"{name}.weight" for name in names.values()]):
        for layer in range(first, max(names, default=first) + 1):
            if layer in names:
                streams = [walk.inputs_of(maps[layer], label=names[layer]) for walk in walks]
                edits[names[layer]] = _solved(names[layer], streams, counts, solve)
                maps[layer].weight.data.copy_(changed_weight(maps[layer].weight, edits[names[layer]].change))
            if head or layer < max(names):
                for walk in walks:
                    walk.advance()
        if head:
            name = module_name(model, parts.unembedding)
            edits[name] = _solved(name, [walk.finals(parts.final_norm) for walk in walks], counts, solve)
    return edits


def one_shot_edits(
    keys: Mapping[str, tuple[Keys, KeyGram | Tensor]] | Iterator[tuple[str, tuple[Keys, KeyGram | Tensor]]],
    solve: Solve,
) -> dict[str, LayerEdit]:
    """The edit of each module from the unedited model's keys; given an iterator, one module's keys are in memory."""
    items = keys.items() if isinstance(keys, Mapping) else keys
    return {name: solve(name, forget, retain) for name, (forget, retain) in items}


def linear_map(module: nn.Module, name: str) -> nn.Linear:
    """The module itself.

    Raises: ValueError where it is not an `nn.Linear`, whose weight is out × in.
    """
    if not isinstance(module, nn.Linear):
        raise ValueError(
            f"{name} is a {type(module).__name__}, expected nn.Linear with a weight of out × in; "
            "maps with transposed or quantized weights are not edited: load the model unquantized, or another one"
        )
    return module


def _solved(name: str, streams: Sequence[Iterator], counts: tuple[int, int], solve: Solve) -> LayerEdit:
    forget = joined_keys([Keys(values, columns.tokens, columns.examples) for columns, values in streams[0]])
    return solve(name, forget, _retain_keys(streams[1], forget.values.shape[1], columns=sum(counts)))


def _retain_keys(stream: Iterator[tuple[Columns, Tensor]], width: int, *, columns: int) -> KeyGram | Tensor:
    """The keys where all `columns` of both sides are fewer than the key's `width`, else their Gram matrix."""
    if columns < width:
        return torch.cat([values for _, values in stream])
    _, first = next(stream)
    gram = KeyGram.empty(width, device=first.device).add(first)
    for _, values in stream:
        gram.add(values)
    return gram
