"""The chapter on difficulty: how hard the pool is foretold to be, and whether it then was."""

import math

import polars as pl

from stages.report_page.difficulty import agreement, difficulty_against_forgetting, difficulty_distribution
from stages.report_page.forgetting import sets_compared
from stages.report_page.inputs import Inputs
from stages.report_page.page import Picture, Section, TableBlock
from stages.report_page.style import edit_looks, set_looks
from stages.report_page.tables import contrasts_grid, predictions_grid


def difficulty_section(inputs: Inputs) -> Section:
    intro = (
        "CUD is known before anything is unlearned: it places each example’s circuit between those of easily and of "
        "hardly unlearned anchors. The question is whether it foretells what unlearning then finds."
    )
    blocks = [_distribution(inputs), _sets_compared(inputs), *_foreknown(inputs)]
    return Section("difficulty", "Difficulty", intro, blocks)


def _distribution(inputs: Inputs) -> Picture:
    rows = inputs.difficulty.filter(~pl.col("undefined"))
    undefined = len(inputs.difficulty) - len(rows)
    return Picture(
        "difficulty-distribution",
        "How hard the pool is",
        "Each bar counts examples by CUD: the easy and the hard set are the two ends, anchors (ticks below) belong to "
        f"neither. Left out because their circuit says nothing: {undefined}.",
        None if rows.is_empty() else difficulty_distribution(rows, set_looks(["easy", "hard"])),
        "no example has a defined CUD.",
    )


def _sets_compared(inputs: Inputs) -> Picture:
    rows = inputs.outcomes.filter(quantization="none")
    counts = rows.group_by("edit", maintain_order=True).len().filter(pl.col("len") > 1, pl.col("edit") != "target")
    rows = rows.filter(pl.col("edit").is_in(counts["edit"].implode()))
    sets = sorted(inputs.sets, key=lambda name: {"easy": 0, "default": 1, "hard": 3}.get(name, 2))
    drawable = set(rows["edit"]) & set(inputs.edits)
    return Picture(
        "sets",
        "Easy, random and hard forget sets",
        "If CUD is right, p(forget) stays higher or utility falls lower from left to right. The sets hold different "
        f"examples: compare trends, not single differences. Bars: {inputs.intervals}.",
        sets_compared(rows, sets, edit_looks(inputs.edits)) if drawable else None,
        "no edit ran on more than one forget set.",
    )


def _foreknown(inputs: Inputs) -> list[Picture | TableBlock]:
    """CUD and the other predictors beside what unlearning then did, for edits on several forget sets, if any."""
    sets_of = inputs.forgetting.group_by("edit", maintain_order=True).agg(pl.col("forget_set").n_unique())
    edits = sets_of.filter(pl.col("forget_set") >= pl.col("forget_set").max().clip(upper_bound=2))["edit"].to_list()
    scored = inputs.difficulty.filter(~pl.col("undefined")).select("id", "cud")
    rows = inputs.forgetting.join(scored, on="id", how="inner", maintain_order="left")
    of_cud = inputs.predictions.filter(predictor="cud", outcome="rise", half="all")
    rhos = {edit: (math.nan, 0) for edit in edits} | {
        edit: (math.nan if rho is None else rho, n) for edit, rho, n in of_cud.select("edit", "rho", "n").rows()
    }
    known = "Spearman’s ρ of what is known before unlearning, with CUD over the pool and with the rise of answer loss "
    known += f"over forgotten examples. Small figures: {inputs.intervals}. "
    return [
        Picture(
            "difficulty-forgetting",
            "Foretold and actual forgetting",
            "Each point is a forgotten example. If CUD foretells difficulty, points fall from left to right: ρ, "
            "Spearman’s rank correlation over n examples, is negative.",
            None if rows.is_empty() else difficulty_against_forgetting(rows, edits, set_looks(list(inputs.sets)), rhos),
            "no forgotten example has a defined CUD.",
        ),
        TableBlock(
            "What foretells difficulty",
            known + "Far from 0 foretells well; high CUD means hard, low MRD means hard. “cud.method”: CUD between the "
            "anchors of that method’s runs alone.",
            predictions_grid(inputs.predictions, edits, half="all"),
        ),
        TableBlock(
            "… on the authors that chose nothing",
            known + "Only the half of the authors on which no setting of CUD was chosen.",
            predictions_grid(inputs.predictions, edits, half="held_out"),
        ),
        TableBlock(
            "… with confounds held fixed",
            known + "Partial correlation given lengths of prompt and answer, likeness to retained and to other pool "
            "rows, and position among an author’s questions.",
            predictions_grid(inputs.predictions, edits, half="all", partial=True),
        ),
        TableBlock(
            "What else differs between easy and hard",
            f"Means of both forget sets, and Cliff’s δ: 0 no difference, 1 every hard example larger. Small figures: "
            f"{inputs.intervals}.",
            contrasts_grid(inputs.contrasts.filter(kind="predictor")),
        ),
        Picture(
            "agreement",
            "Do the ways of computing CUD agree?",
            "Each cell: Spearman’s ρ over the rows that may become forget sets. Names: whose anchors / similarity of "
            "circuits / whether edges are counted or weighted by signed score.",
            None if inputs.agreement.is_empty() else agreement(inputs.agreement),
            "only one way was computed.",
        ),
    ]
