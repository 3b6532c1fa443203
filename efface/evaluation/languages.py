"""What happens to the same examples in every language when a model forgets them in one."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from efface.corpora.example import Example
from efface.evaluation.rouge import Words
from efface.evaluation.suite import ExampleScore, example_scores


def scores_by_language(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    examples: Mapping[str, Mapping[int, Example]],
    *,
    rouge_words: Words = "unicode",
    **settings: Any,
) -> dict[str, list[ExampleScore]]:
    """The suite in every language, on the same examples; `settings` are the other ones of `example_scores`.

    Raises: ValueError where the languages do not have the same examples, by number.
    """
    first = next(iter(examples), "")
    for language, own in examples.items():
        if list(own) != list(examples[first]):
            raise ValueError(
                f"language {language!r} has {len(own)} examples, not the {len(examples[first])} of {first!r} in their "
                "order; take the same numbers of every language"
            )
    return {
        language: example_scores(model, tokenizer, of_one, rouge_words=rouge_words, **settings)
        for language, of_one in examples.items()
    }


def remaining_shares(
    before: Mapping[str, Sequence[ExampleScore]], after: Mapping[str, Sequence[ExampleScore]], metric: str
) -> dict[str, float]:
    """Mean of `metric` after forgetting over that before, by language: 1 nothing was forgotten there, 0 everything.

    arXiv:2601.05641 (transfer matrices), one row of them: forgetting in one language, measured in each.

    Raises: ValueError where the languages differ or the metric is missing or 0 before.
    """
    if before.keys() != after.keys():
        raise ValueError(f"languages {sorted(before)} before and {sorted(after)} after; expected the same")
    started = {language: _mean(before, language, metric) for language in before}
    for language, value in started.items():
        if value == 0:
            raise ValueError(f"{metric} of language {language!r} is 0 before, so that nothing can be forgotten of it")
    return {language: _mean(after, language, metric) / value for language, value in started.items()}


def _mean(scores: Mapping[str, Sequence[ExampleScore]], language: str, metric: str) -> float:
    values = [score.value for score in scores[language] if score.metric == metric]
    if not values:
        raise ValueError(f"metric {metric!r} of language {language!r}: no example has it; name one of the suite")
    return float(np.mean(values))
