"""The computation graph whose edges circuits are made of: nodes, edges, and index ↔ name both ways.

Sources, one row each: `input`, then per layer the heads `a{l}.h{h}` and the MLP `m{l}`. Destinations, one column each:
per layer `a{l}.h{h}<q>` for all heads, then `<k>`, then `<v>`, then `m{l}`; last `logits`. An edge is a visible pair.
"""

from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Bool, Int, Shaped
from torch import Tensor

READS = ("q", "k", "v")
INPUT_LAYER = -1


@dataclass(frozen=True)
class Graph:
    """Nodes and edges of a decoder with pre-norm blocks; with `parallel`, an MLP doesn't see its own layer's heads.

    Edges are numbered row by row (source first) over the visible pairs. With grouped keys and values every query head
    still has its own `<k>` and `<v>` destination.

    Raises: ValueError where there are no layers or no heads.
    """

    layers: int
    heads: int
    parallel: bool = False

    def __post_init__(self) -> None:
        if self.layers < 1 or self.heads < 1:
            raise ValueError(f"Graph of {self.layers} layers and {self.heads} heads: expected at least one of each")

    @property
    def n_sources(self) -> int:
        return 1 + self.layers * (self.heads + 1)

    @property
    def n_destinations(self) -> int:
        return self.layers * (3 * self.heads + 1) + 1

    @property
    def n_edges(self) -> int:
        return len(self.edge_sources)

    def head_rows(self, layer: int) -> slice:
        """Rows of the heads of a layer."""
        start = 1 + layer * (self.heads + 1)
        return slice(start, start + self.heads)

    def mlp_row(self, layer: int) -> int:
        return self.head_rows(layer).stop

    def attention_columns(self, layer: int) -> slice:
        """Columns of a layer's heads: all queries, then all keys, then all values."""
        start = layer * (3 * self.heads + 1)
        return slice(start, start + 3 * self.heads)

    def mlp_column(self, layer: int) -> int:
        return self.attention_columns(layer).stop

    def seen_by_attention(self, layer: int) -> int:
        """How many of the first rows are visible to a layer's heads."""
        return 1 + layer * (self.heads + 1)

    def seen_by_mlp(self, layer: int) -> int:
        """How many of the first rows are visible to a layer's MLP: its own heads too, unless they run in parallel."""
        return self.seen_by_attention(layer) + (0 if self.parallel else self.heads)

    @cached_property
    def real_edge_mask(self) -> Bool[Tensor, "source destination"]:
        """Which pairs of source and destination are edges."""
        seen = torch.full((self.n_destinations,), self.n_sources)
        for layer in range(self.layers):
            seen[self.attention_columns(layer)] = self.seen_by_attention(layer)
            seen[self.mlp_column(layer)] = self.seen_by_mlp(layer)
        return torch.arange(self.n_sources)[:, None] < seen

    @cached_property
    def edge_sources(self) -> Int[Tensor, " edge"]:
        """Row of each edge."""
        return self.real_edge_mask.nonzero()[:, 0]

    @cached_property
    def edge_destinations(self) -> Int[Tensor, " edge"]:
        """Column of each edge."""
        return self.real_edge_mask.nonzero()[:, 1]

    @cached_property
    def column_nodes(self) -> Int[Tensor, " destination"]:
        """Row of the node that each column belongs to; `n_sources` for `logits`, which is nobody's source."""
        nodes = torch.full((self.n_destinations,), self.n_sources)
        for layer in range(self.layers):
            rows = self.head_rows(layer)
            nodes[self.attention_columns(layer)] = torch.arange(rows.start, rows.stop).repeat(3)
            nodes[self.mlp_column(layer)] = self.mlp_row(layer)
        return nodes

    @cached_property
    def source_names(self) -> tuple[str, ...]:
        names = ["input"]
        for layer in range(self.layers):
            names += [*(f"a{layer}.h{head}" for head in range(self.heads)), f"m{layer}"]
        return tuple(names)

    @cached_property
    def destination_names(self) -> tuple[str, ...]:
        names = []
        for layer in range(self.layers):
            names += [f"a{layer}.h{head}<{read}>" for read in READS for head in range(self.heads)]
            names.append(f"m{layer}")
        return (*names, "logits")

    @cached_property
    def source_layers(self) -> Int[Tensor, " source"]:
        """Layer of each row; −1 for `input`."""
        within = torch.arange(self.layers).repeat_interleave(self.heads + 1)
        return torch.cat([torch.tensor([INPUT_LAYER]), within])

    @cached_property
    def destination_layers(self) -> Int[Tensor, " destination"]:
        """Layer of each column; the number of layers for `logits`."""
        within = torch.arange(self.layers).repeat_interleave(3 * self.heads + 1)
        return torch.cat([within, torch.tensor([self.layers])])

    @cached_property
    def edge_numbers(self) -> Int[Tensor, "source destination"]:
        """Number of the edge at each pair of source and destination, −1 where there is none."""
        mask = self.real_edge_mask.flatten()
        return torch.where(mask, mask.cumsum(0) - 1, -1).unflatten(0, (self.n_sources, self.n_destinations))

    def edge_name(self, edge: int) -> str:
        """`source->destination` of an edge number.

        Raises: IndexError where there is no such edge.
        """
        if not 0 <= edge < self.n_edges:
            raise IndexError(f"edge {edge}: this graph has edges 0 to {self.n_edges - 1}")
        row, column = int(self.edge_sources[edge]), int(self.edge_destinations[edge])
        return f"{self.source_names[row]}->{self.destination_names[column]}"

    def edge_index(self, name: str) -> int:
        """Number of the edge named `source->destination`.

        Raises: KeyError where a node is unknown or the destination does not see the source.
        """
        source, _, destination = name.partition("->")
        if source not in self._rows or destination not in self._columns:
            raise KeyError(f"edge {name!r}: expected names like 'input->a0.h0<q>', 'a0.h1->m0', 'm1->logits'")
        edge = int(self.edge_numbers[self._rows[source], self._columns[destination]])
        if edge < 0:
            raise KeyError(f"edge {name!r}: {destination} does not see {source} in this graph")
        return edge

    def flat(self, matrix: Shaped[Tensor, "*example source destination"]) -> Shaped[Tensor, "*example edge"]:
        """The values of the edges, in the order of their numbers."""
        return matrix.flatten(-2)[..., self._places.to(matrix.device)]

    def matrix(self, values: Shaped[Tensor, "*example edge"]) -> Shaped[Tensor, "*example source destination"]:
        """Values of the edges placed at (source, destination), zero elsewhere: the inverse of `flat`."""
        placed = values.new_zeros(*values.shape[:-1], self.n_sources * self.n_destinations)
        placed[..., self._places.to(values.device)] = values
        return placed.unflatten(-1, (self.n_sources, self.n_destinations))

    @cached_property
    def _places(self) -> Int[Tensor, " edge"]:
        """Place of each edge in the flattened matrix."""
        return self.real_edge_mask.flatten().nonzero()[:, 0]

    @cached_property
    def _rows(self) -> dict[str, int]:
        return {name: row for row, name in enumerate(self.source_names)}

    @cached_property
    def _columns(self) -> dict[str, int]:
        return {name: column for column, name in enumerate(self.destination_names)}
