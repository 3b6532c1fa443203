"""The chapters of the page: which pictures and tables each has, and how to read them."""

import polars as pl

from stages.report_page.circuits import circuit_depth, signature_contrasts
from stages.report_page.forgetting import forgetting_against_utility
from stages.report_page.inputs import Inputs
from stages.report_page.page import Picture, Section, TableBlock
from stages.report_page.quantization import code_changes, recovery
from stages.report_page.signatures import circuit_shapes
from stages.report_page.style import edit_looks, set_looks
from stages.report_page.tables import (
    claims_grid,
    differences_grid,
    faithfulness_grid,
    quantized_grid,
    results_grid,
)
from stages.report_page.training import layer_energies, loss_curves

WORDS = {
    "target": "the model that was trained on everything",
    "retained": "the gold standard: the same training without the forget set",
    "forget set": "the examples to erase: default and random_k drawn at random, easy and hard chosen by CUD",
    "p(forget), p(retain)": "geometric-mean probability of an answer’s tokens: mean over the forget set, or over those "
    "retained examples that measure utility",
    "ROUGE-L": "recall of the true answer in the generated one, by longest common subsequence",
    "extraction strength": "share of the answer that greedy decoding finishes by itself",
    "truth ratio": "probability of wrong answers over that of a paraphrase of the right one: mean of min(R, 1/R)",
    "forget quality p": "p-value of a Kolmogorov–Smirnov test of this model’s truth ratios against the retained one’s",
    "KS distance": "statistic of that test: 0 where both have the same distribution, 1 where they do not overlap",
    "model utility": "harmonic mean of nine: {retain, real authors, world facts} × {probability, ROUGE-L, truth ratio}",
    "Final": "½ [mean(1 − ROUGE-L, 1 − p(forget), 1 − extraction strength) + model utility]",
    "recovery": "(p(forget) after quantization − before) / (equally quantized target − before): 0 nothing came back, "
    "1 all; undefined (–) where the model forgot too little",
    "rtn_8, rtn_4, rtn_3": "weights rounded to the nearest of 2⁸, 2⁴ or 2³ values, one step per 64 neighbours in a row",
    "nf4, fp4, int8": "the data types of bitsandbytes",
    "quantization": "of the linear maps inside the blocks; LM head and embeddings stay as they are, unless a scheme’s "
    "name ends in lm_head",
    "CUD": "circuit-guided unlearning difficulty: 0 at the easy anchors’ circuit, 1 at the hard ones’",
    "circuit": "the edges between components of the target that carry an answer",
}


def results_section(inputs: Inputs) -> Section:
    reading = (
        "↓ lower is better, but only down to the retained model’s value: below it, a model has forgotten more than was "
        f"asked. ↑ higher is better. Small figures: {inputs.intervals}."
    )
    intro = (
        "Every edited model beside the target it started from and the retained model it should resemble, with its "
        f"weights as they are. The same models after quantization are further down.{best_final(inputs)}"
    )
    grid = results_grid(inputs.outcomes, list(inputs.sets))
    blocks: list[TableBlock] = [TableBlock("Methods by forget set", reading, grid)]
    pairs = inputs.pairwise.filter(forget_set=inputs.first_set, quantization="none", metric="final_score")
    if not pairs.is_empty():
        best_first = inputs.outcomes.filter(pl.col("edit").is_in(list(inputs.edits)), forget_set=inputs.first_set)
        best_first = best_first.filter(quantization="none").sort("final_score", descending=True, nulls_last=True)
        blocks.append(_differences(pairs, best_first["edit"].to_list()))
    return Section("results", "Results", intro, blocks)


def _differences(pairs: pl.DataFrame, edits: list[str]) -> TableBlock:
    both_ways = pl.concat(
        [
            pairs,
            pairs.with_columns(first="second", second="first", difference=-pl.col("difference")),
        ]
    )
    apart = (pairs["p_holm"] < 0.05).sum()
    return TableBlock(
        "Which methods differ",
        f"Best Final score first. Paired over the same authors, p by Holm over all {len(pairs)} pairs: {apart} of them "
        "are below 0.05. The other pairs cannot be told apart on this forget set.",
        differences_grid(both_ways, edits),
    )


def best_final(inputs: Inputs) -> str:
    """Which edit has the best Final score on the first forget set, and what sets it apart from GROM."""
    rows = inputs.outcomes.filter(forget_set=inputs.first_set, quantization="none").drop_nulls("final_score")
    rows = rows.filter(pl.col("edit").is_in(list(inputs.edits))).sort("final_score", descending=True)
    rows = rows.with_columns(forgetting=2 * pl.col("final_score") - pl.col("model_utility"))
    grom = rows.filter(pl.col("edit").str.starts_with("grom"))
    if grom.is_empty():
        return ""
    best, own = (frame.row(0, named=True) for frame in (rows, grom))
    if best["edit"] == own["edit"]:
        return f" {best['edit']} has the best Final score on {inputs.first_set}, {best['final_score']:.3f}."
    compared = ", ".join(
        f"{name} {best[column]:.3f} against {own[column]:.3f}"
        for name, column in (("forgetting", "forgetting"), ("model utility", "model_utility"))
    )
    return (
        f" {best['edit']} has the best Final score on {inputs.first_set}, {best['final_score']:.3f}; the best GROM "
        f"edit, {own['edit']}, has {own['final_score']:.3f}. What makes the difference: {compared}."
    )


def scatter_rows(inputs: Inputs) -> pl.DataFrame:
    """What the forgetting–utility picture shows: the models of the first forget set that have both."""
    rows = inputs.outcomes.filter(forget_set=inputs.first_set, quantization="none")
    return rows.filter(pl.col("model_utility").is_not_null(), pl.col("p_forget").is_not_null())


def forgetting_section(inputs: Inputs) -> Section:
    rows = scatter_rows(inputs)
    scatter = Picture(
        "forgetting-utility",
        f"Forgetting against utility, forget set {inputs.first_set}",
        "The best place is where the dashed lines of the retained model cross: forgotten as if never learnt, "
        f"everything else kept. Bars: {inputs.intervals}.",
        None if rows.is_empty() else forgetting_against_utility(rows, edit_looks(inputs.edits)),
        "model utility needs generated answers (evaluate.generate).",
    )
    intro = "How much each edit erased, and what else it took along."
    return Section("forgetting", "Forgetting and utility", intro, [scatter])


def quantization_section(inputs: Inputs) -> Section:
    intro = (
        "Rounding weights to few bits can undo a small edit. Target and retained model are quantized alike, as "
        "controls: a method resists if its row stays near the retained model’s, not if the target’s falls as well."
    )
    if inputs.source.endswith(".gguf"):
        intro += (
            f" Beware: training started from {inputs.source}. Weights of a GGUF file may lie on a grid of few bits "
            "already, so that rounding to as few bits costs every model less than usual."
        )
    blocks = [_before_and_after(inputs), _recovery(inputs)] if inputs.schemes else []
    return Section("quantization", "Quantization", intro, [*blocks, _code_changes(inputs)])


def inside_section(inputs: Inputs) -> Section:
    intro = "Where the answers of easy and hard examples run, and where learning the forget set left its trace."
    return Section(
        "inside",
        "Inside the model",
        intro,
        [_faithfulness(inputs), _circuits(inputs), _signatures(inputs), _energies(inputs)],
    )


def claims_section(inputs: Inputs) -> Section:
    intro = "What the papers behind the methods claim, and what was found here. No claim is left out because it fails."
    reading = (
        "Undecided: the interval covers both. Numbers are of this profile’s model and forget sets; the published ones "
        "are of larger models."
    )
    return Section("claims", "Claims", intro, [TableBlock("Claim by claim", reading, claims_grid(inputs.claims))])


def training_section(inputs: Inputs) -> Section:
    picture = Picture(
        "loss",
        "Training loss",
        "Mean of each epoch. Target and retained models should end at the same low loss, or they cannot be compared.",
        loss_curves(inputs.curves, set_looks(list(inputs.sets))) if inputs.curves else None,
        "no model was trained here.",
    )
    return Section("training", "Training", "The models that everything above is compared with.", [picture])


def _before_and_after(inputs: Inputs) -> TableBlock:
    return TableBlock(
        "Before and after quantization",
        f"Recovery is the share of what was erased that comes back: near 0 is good. Small figures: {inputs.intervals}.",
        quantized_grid(inputs.outcomes, list(inputs.sets), inputs.schemes),
    )


def _recovery(inputs: Inputs) -> Picture:
    rows = inputs.outcomes.filter(pl.col("p_forget").is_not_null())
    return Picture(
        "recovery",
        "Does the answer come back?",
        "A row is good when its coloured markers stay where its black dot is; markers that move right, towards the "
        f"target’s, have brought the answers back. Bars: {inputs.intervals}.",
        recovery(rows, list(inputs.sets), inputs.schemes),
    )


def _code_changes(inputs: Inputs) -> Picture:
    rows = inputs.weights.filter(forget_set=inputs.first_set)
    return Picture(
        "code-changes",
        f"Why an edit survives, forget set {inputs.first_set}",
        "Each point is an edited matrix. Left: an edit that changes few codes is rounded away. Right: at 1 the whole "
        "change survives; above 1 rounding adds noise of its own.",
        None if rows.is_empty() else code_changes(rows, rows["scheme"].unique(maintain_order=True).to_list()),
        "no scheme was run on an edit that changes a matrix which is quantized (quantize_attack.schemes).",
    )


def _circuits(inputs: Inputs) -> Picture:
    shapes = circuit_shapes({name: inputs.sets[name] for name in ("easy", "hard") if name in inputs.sets})
    empty = ", ".join(f"{of_set.empty} of {name}" for name, of_set in shapes.items())
    return Picture(
        "circuit-depth",
        "Depth of circuits, easy against hard",
        "Longer paths, and edges further right, mean that the answer is put together deeper in the network. Left out "
        f"because their circuit is not connected: {empty}.",
        circuit_depth(shapes, set_looks(list(shapes))) if shapes else None,
        "no example of the forget sets easy and hard has a connected circuit.",
    )


def _faithfulness(inputs: Inputs) -> TableBlock:
    return TableBlock(
        "Do circuits carry the behaviour?",
        "Share of the metric’s way from everything ablated (0) to nothing ablated (1), beside circuits of as many "
        "edges grown at random. In brackets: what ablated edges carry instead.",
        faithfulness_grid(inputs.faithfulness),
    )


def _signatures(inputs: Inputs) -> Picture:
    rows = inputs.contrasts.filter(pl.col("kind") == "signature", pl.col("cliffs_delta").is_not_null())
    rows = rows.filter((pl.col("easy_mean") != 0) | (pl.col("hard_mean") != 0))
    return Picture(
        "signatures",
        "What sets easy circuits apart",
        f"Statistics of each example’s circuit, hard against easy; coloured where the interval leaves out 0. Lines: "
        f"{inputs.intervals}, not corrected for their number.",
        None if rows.is_empty() else signature_contrasts(rows),
        "the sets easy and hard have no connected circuits.",
    )


def _energies(inputs: Inputs) -> Picture:
    rows = inputs.energies
    return Picture(
        "layer-energies",
        "Which layers learning changes",
        "Share of each layer in the size of the weight change. Layer localisation edits only the layers whose orange "
        "bar reaches the dashed line.",
        None if rows.is_empty() else layer_energies(rows, rows["forget_set"].unique(maintain_order=True).to_list()),
        "no task matrices were built.",
    )
