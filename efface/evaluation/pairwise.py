"""Which of several methods differ: every pair on the same examples, p-values corrected for how many pairs there are."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from jaxtyping import Float
from scipy.stats import t

from efface.evaluation.aggregate import Estimate, interval, resampled_means
from efface.evaluation.comparison import Scores, Split, split_values, utility_draws

EXAMPLE_METRICS = (
    ("forget", "probability"),
    ("forget", "rougeL_recall"),
    ("forget", "extraction_strength"),
    ("retain", "probability"),
)


@dataclass(frozen=True)
class Difference:
    """The first model's metric minus the second's; `p_holm` is corrected over all pairs of one metric."""

    first: str
    second: str
    split: str
    metric: str
    estimate: Estimate
    p: float
    p_holm: float


def pairwise_differences(
    models: Mapping[str, Scores], splits: Mapping[str, Split], *, confidence: float
) -> list[Difference]:
    """Every pair of models on four means over examples, model utility and the final score, where both have them.

    p is two-sided, of Student's t with (authors − 1) degrees of freedom for difference / bootstrap standard error: a
    count of bootstrap draws could not be smaller than 2 / draws, which no correction for 55 pairs would leave below
    0.05. It is 1 where neither the difference nor any draw departs from 0, and 0 where only the draws do not vary.
    Holm (1979) keeps the chance of any false claim about one metric at the level that `p_holm` is compared with.
    """
    found = []
    for split, metric, n, groups, pairs in _families(models, splits):
        tests = [(*names, value, draws, p_value(value, draws, groups=groups)) for names, value, draws in pairs]
        corrected = holm([p for *_, p in tests])
        for (first, second, value, draws, p), p_holm in zip(tests, corrected, strict=True):
            estimate = Estimate(value, n, *interval(draws, groups=groups, confidence=confidence))
            found.append(Difference(first, second, split, metric, estimate, p, p_holm))
    return found


def p_value(value: float, draws: Float[np.ndarray, " draw"], *, groups: int) -> float:
    """Two-sided p of a difference, from its bootstrap standard error; 1 where there are fewer than two authors."""
    spread = float(np.nanstd(draws))
    if value == 0 or groups < 2:
        return 1.0
    return 2 * float(t.sf(abs(value) / spread, groups - 1)) if spread > 0 else 0.0


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's step-down correction: p of rank r (from 0, smallest first) times m − r, never below an earlier one's."""
    corrected, highest = [0.0] * len(p_values), 0.0
    for rank, place in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[place]))
        corrected[place] = highest
    return corrected


Pair = tuple[tuple[str, str], float, Float[np.ndarray, " draw"]]


def _families(
    models: Mapping[str, Scores], splits: Mapping[str, Split]
) -> Iterator[tuple[str, str, int, int, list[Pair]]]:
    """Split, metric, examples, authors, and the difference of every pair of models with its bootstrap draws."""
    for name, metric in EXAMPLE_METRICS:
        split = splits[name]
        values = {model: split_values(scores, split, metric) for model, scores in models.items() if metric in scores}
        pairs = [(names, values[names[0]] - values[names[1]]) for names in combinations(values, 2)]
        drawn = [
            (names, float(np.nanmean(difference)), resampled_means(difference, split.resamples))
            for names, difference in pairs
            if not np.isnan(difference).all()
        ]
        yield name, metric, len(split.ids), split.resamples.groups, drawn
    scored = {model: {score.metric: score for score in utility_draws(of, splits)} for model, of in models.items()}
    for metric in ("model_utility", "final_score"):
        of_metric = {model: scores[metric] for model, scores in scored.items() if metric in scores}
        pairs = [
            (
                names,
                of_metric[names[0]].value - of_metric[names[1]].value,
                of_metric[names[0]].draws - of_metric[names[1]].draws,
            )
            for names in combinations(of_metric, 2)
        ]
        if pairs:
            any_score = next(iter(of_metric.values()))
            yield any_score.split, metric, any_score.n, any_score.groups, pairs
