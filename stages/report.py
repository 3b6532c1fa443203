"""Draws what the other stages found: one page that opens offline, the README's figure, and the data of DVC's plots."""

from pathlib import Path

import polars as pl

from stages.params import load_params
from stages.report_page.difficulty_section import difficulty_section
from stages.report_page.forgetting import forgetting_against_utility
from stages.report_page.inputs import Inputs, read_inputs
from stages.report_page.page import KeyNumber, render
from stages.report_page.sections import (
    WORDS,
    claims_section,
    forgetting_section,
    inside_section,
    quantization_section,
    results_section,
    scatter_rows,
    training_section,
)
from stages.report_page.style import edit_looks, png
from stages.report_page.tables import number

OUTPUT = Path("data/report")


def main(item: str | None = None) -> None:
    params = load_params()
    inputs = read_inputs(params)
    sections = [
        results_section(inputs),
        forgetting_section(inputs),
        difficulty_section(inputs),
        quantization_section(inputs),
        inside_section(inputs),
        claims_section(inputs),
        training_section(inputs),
    ]
    OUTPUT.mkdir(parents=True, exist_ok=True)
    page = render(
        profile=params.profile, summary=summary(inputs), numbers=key_numbers(inputs), sections=sections, words=WORDS
    )
    (OUTPUT / "index.html").write_text(page, encoding="utf-8")
    scatter = scatter_rows(inputs)
    if not scatter.is_empty():
        figure = forgetting_against_utility(scatter, edit_looks(inputs.edits))
        (OUTPUT / "forgetting_utility.png").write_bytes(png(figure))
    write_plots(inputs, OUTPUT / "plots")


def summary(inputs: Inputs) -> str:
    """What was run, in two sentences."""
    learnt, pool = (len(inputs.examples.filter(part)) for part in ("trained", "pool"))
    sizes = " to ".join(map(str, sorted({len(ids) for ids in inputs.sets.values()})))
    return (
        f"{learnt} examples were learnt, {pool} of them may be forgotten. {len(inputs.edits)} edits were made, each on "
        f"one or more forget sets ({', '.join(inputs.sets)}) of {sizes} examples."
    )


def key_numbers(inputs: Inputs) -> list[KeyNumber]:
    """The target, the retained model, and the edit with the highest Final score, on the first forget set."""
    rows = inputs.outcomes.filter(forget_set=inputs.first_set, quantization="none")
    found = [
        KeyNumber(number(of_model["p_forget"].item()), f"p(forget) of the {model} model, set {inputs.first_set}")
        for model in ("target", "retained")
        if len(of_model := rows.filter(edit=model))
    ]
    edits = rows.filter(pl.col("edit").is_in(inputs.edits), pl.col("final_score").is_not_null())
    if not edits.is_empty():
        best = edits.sort("final_score", descending=True, maintain_order=True).row(0, named=True)
        found.append(KeyNumber(best["edit"], f"has the highest Final score: {number(best['final_score'])}"))
        found.append(KeyNumber(number(best["p_forget"]), f"p(forget) of {best['edit']}"))
        found.append(KeyNumber(number(best["model_utility"]), f"model utility of {best['edit']}"))
    return found


def write_plots(inputs: Inputs, folder: Path) -> None:
    """The tables that `dvc plots` draws."""
    folder.mkdir(parents=True, exist_ok=True)
    keys, utility = ["forget_set", "edit", "quantization"], ["model_utility", "model_utility_low", "model_utility_high"]
    forgotten = ["forgotten", "forgotten_low", "forgotten_high"]
    probability = ["p_forget", "p_forget_low", "p_forget_high", "recovery", "recovery_low", "recovery_high"]
    plain = inputs.outcomes.filter(quantization="none")
    plain.select(*keys, *utility, *forgotten).write_csv(folder / "forgetting_utility.csv")
    inputs.outcomes.select(*keys, *probability).write_csv(folder / "recovery.csv")
    inputs.difficulty.sort("cud", "id").write_csv(folder / "difficulty.csv")
