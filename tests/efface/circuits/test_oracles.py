"""Edge scores and circuits against the reference implementation, hannamw/EAP-IG: tests/oracles/eap_ig/README.md."""

import json
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from efface.circuits.attribution import edge_scores
from efface.circuits.residual_stream import residual_stream
from efface.circuits.selection import circuit_nodes, selected_edges
from efface.models import load_model
from efface.tokenization import Batch

FOLDER = Path(__file__).parents[2] / "oracles" / "eap_ig"
MODELS = ("gpt2-tiny", "llama-gqa-tiny")
METRICS = ("neg_nll", "neg_prob")
RUNS = {
    "eap_patch": ("eap", "patching"),
    "eap_zero": ("eap", "zero"),
    "clean_corrupted_patch": ("clean_corrupted", "patching"),
    "eap_ig_inputs_patch_s5": ("eap_ig_inputs", "patching"),
    "eap_ig_act_zero_s5_fullgrad": ("eap_ig_activations", "zero"),
    "eap_ig_act_patch_s5_fullgrad": ("eap_ig_activations", "patching"),
}
CIRCUIT_RUNS = ("eap_ig_inputs_patch_s5", "eap_ig_act_zero_s5")
TOLERANCE = 5e-5


@cache
def oracle(name: str) -> SimpleNamespace:
    items = json.loads((FOLDER / name / "items.json").read_text())["items"]
    ids, corrupted, labels = (
        torch.tensor([item[key] for item in items]) for key in ("tokens", "corrupted_tokens", "labels")
    )
    model = load_model(FOLDER / name / "model")
    return SimpleNamespace(
        model=model,
        graph=residual_stream(model).graph,
        batch=Batch(ids, torch.ones_like(ids), labels),
        corrupted=corrupted,
        index=json.loads((FOLDER / name / "index.json").read_text()),
        expected=np.load(FOLDER / name / "expected.npz"),
    )


@cache
def computed(name: str, metric: str, run: str):
    case = oracle(name)
    method, intervention = RUNS[run]
    return edge_scores(
        case.model,
        case.batch,
        method=method,
        intervention=intervention,
        metric=metric,
        steps=5,
        corrupted_ids=case.corrupted,
    )


@pytest.mark.parametrize("name", MODELS)
def test_graph_has_the_same_nodes_and_edges(name):
    case = oracle(name)
    assert list(case.graph.source_names) == case.index["src_names"]
    assert list(case.graph.destination_names) == case.index["dst_names"]
    assert case.graph.n_edges == case.index["n_real_edges"]
    assert np.array_equal(case.graph.real_edge_mask.numpy(), case.expected["real_edge_mask"])


@pytest.mark.parametrize("run", RUNS)
@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("name", MODELS)
def test_scores_per_example_and_their_mean(name, metric, run):
    case, found = oracle(name), computed(name, metric, run)
    scores = case.graph.matrix(found.scores).numpy()
    for got, kind in ((scores, "per_sample"), (scores.mean(0), "aggregated")):
        expected = case.expected[f"{metric}/{run}/{kind}"]
        np.testing.assert_allclose(got, expected, rtol=0, atol=TOLERANCE * np.abs(expected).max())
    np.testing.assert_allclose(found.metric_clean.numpy(), case.expected[f"{metric}/metric_clean"], rtol=1e-5)


@pytest.mark.parametrize("run", CIRCUIT_RUNS)
@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("name", MODELS)
def test_circuits_of_the_mean_scores_are_exactly_those_expected(name, metric, run):
    """From the stored scores, and from our own where the run is free of the reference's tape effects.

    The unpruned nodes of the reference are those fed and read for top-n, all that greedy growth entered for greedy.
    """
    case = oracle(name)
    graph, prefix = case.graph, f"{metric}/{run}"
    candidates = [graph.flat(torch.tensor(case.expected[f"{prefix}/aggregated"]))]
    if run in RUNS:
        candidates.append(computed(name, metric, run).scores.mean(0))
    for scores in candidates:
        for selection, label in (("top", "topn"), ("greedy", "greedy")):
            for count in (10, 25, 60):
                for prune, suffix in ((True, ""), (False, "_noprune")):
                    mask = selected_edges(graph, scores, selection=selection, edges=count, prune=prune)
                    key = f"{prefix}/circuit_{label}_{count}{suffix}"
                    assert np.array_equal(graph.matrix(mask).numpy(), case.expected[f"{key}/edges"]), key
                    nodes = circuit_nodes(graph, mask, fed=selection == "top")
                    assert np.array_equal(nodes.numpy(), case.expected[f"{key}/nodes"]), key


@pytest.mark.parametrize("run", CIRCUIT_RUNS)
@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("name", MODELS)
def test_circuits_of_single_examples_are_exactly_those_expected(name, metric, run):
    case = oracle(name)
    graph, prefix = case.graph, f"{metric}/{run}"
    all_scores = graph.flat(torch.tensor(case.expected[f"{prefix}/per_sample"]))
    found = [key for key in case.expected.files if key.startswith(f"{prefix}/per_sample_circuit_")]
    assert found
    for key in found:
        label, count = key.removeprefix(f"{prefix}/per_sample_circuit_").removesuffix("/edges").split("_")
        selection = {"topn": "top", "greedy": "greedy"}[label]
        masks = [selected_edges(graph, scores, selection=selection, edges=int(count)) for scores in all_scores]
        assert np.array_equal(graph.matrix(torch.stack(masks)).numpy(), case.expected[key]), key
