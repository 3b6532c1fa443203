"""Which circuits are extracted, as parameters, and the circuits of a batch of examples."""

from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from transformers import PreTrainedModel

from efface.circuits.attribution import Intervention, Method, edge_scores
from efface.circuits.graph import Graph
from efface.circuits.metrics import MetricName
from efface.circuits.recorded_run import Sources
from efface.circuits.residual_stream import residual_stream
from efface.circuits.selection import Selection, selected_edges, top_edges
from efface.tokenization import Batch


@dataclass(frozen=True)
class ExampleCircuit:
    """Edges kept of one example, by number and ascending, with signed scores and which of them are its circuit."""

    edges: Int[Tensor, " kept"]
    scores: Float[Tensor, " kept"]
    in_circuit: Bool[Tensor, " kept"]
    metric_clean: float


@dataclass(frozen=True)
class CircuitExtraction:
    """How edges are scored and chosen.

    `fallback` is the intervention for an example without a corrupted partner. `kept_edges` bounds how many edges an
    example keeps besides its circuit, the strongest first; null keeps all, without which a mean over examples is not
    exact. `threshold` is the least |score| of the selection of that name, which ignores `edges`.

    Raises: ValueError where a number is out of range or `fallback` does not go with the method.
    """

    method: Method = "eap_ig_inputs"
    steps: int = 5
    intervention: Intervention = "patching"
    fallback: Literal["zero", "mean"] = "mean"
    metric: MetricName = "neg_prob"
    selection: Selection = "greedy"
    edges: int = 75
    threshold: float = 0.0
    kept_edges: int | None = None
    batch_size: int = 8

    def __post_init__(self) -> None:
        for name in ("steps", "edges", "batch_size"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} {getattr(self, name)}: expected at least 1")
        if self.kept_edges is not None and self.kept_edges < 0:
            raise ValueError(f"kept_edges {self.kept_edges}: expected 0 or more, or null for all")
        without_partner = self.fallback if self.intervention == "patching" else self.intervention
        if without_partner == "zero" and self.method in ("eap_ig_inputs", "clean_corrupted"):
            raise ValueError(f"method {self.method!r} cannot ablate by zero; choose 'mean' or another method")

    def extract(
        self,
        model: PreTrainedModel,
        batch: Batch,
        *,
        corrupted_ids: Int[Tensor, "example position"] | None = None,
        means: Sources | None = None,
    ) -> list[ExampleCircuit]:
        """The circuit of every example of a batch; without `corrupted_ids` patching gives way to the fallback."""
        found = edge_scores(
            model,
            batch,
            method=self.method,
            intervention=self.baseline(paired=corrupted_ids is not None),
            metric=self.metric,
            steps=self.steps,
            corrupted_ids=corrupted_ids,
            means=means,
        )
        graph = residual_stream(model).graph
        scores = found.scores.float().cpu()
        return [self._kept(graph, row, float(value)) for row, value in zip(scores, found.metric_clean, strict=True)]

    def baseline(self, *, paired: bool) -> Intervention:
        """The intervention of an example that has a corrupted partner or not."""
        return self.fallback if self.intervention == "patching" and not paired else self.intervention

    def select(self, graph: Graph, scores: Float[Tensor, " edge"]) -> Bool[Tensor, " edge"]:
        """The circuit of one vector of edge scores: an example's, or the mean of an anchor set's."""
        return selected_edges(graph, scores, selection=self.selection, edges=self.edges, threshold=self.threshold)

    def _kept(self, graph: Graph, scores: Float[Tensor, " edge"], metric_clean: float) -> ExampleCircuit:
        circuit = self.select(graph, scores)
        kept = torch.ones_like(circuit)
        if self.kept_edges is not None:
            kept = circuit | top_edges(scores, self.kept_edges)
        edges = kept.nonzero()[:, 0]
        return ExampleCircuit(edges, scores[edges], circuit[edges], metric_clean)


AS_PUBLISHED = CircuitExtraction(
    method="eap_ig_activations", steps=5, intervention="zero", metric="neg_prob", selection="greedy", edges=75
)
"""CUD as its authors' code extracts circuits. On RMSNorm models it is degenerate: the norm ignores scale, so the scores
of all edges into one destination sum to zero, heads of layer 0 get no incoming edge, and pruning removes them."""
