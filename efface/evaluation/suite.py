"""From a model and examples to every per-example metric: the one place that knows which metrics an example has."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from efface.corpora.example import Example
from efface.evaluation.memorization import exact_memorization, extraction_strength
from efface.evaluation.probability import answer_probability, probability_among_options
from efface.evaluation.rouge import Words, rouge_score
from efface.evaluation.scoring import AnswerScore, score_answers
from efface.evaluation.truth_ratio import Mean, truth_ratio
from efface.generation import generate_answers
from efface.tokenization import Template, encode, encode_prompt, padding_id

FACT_SPLITS = ("real_authors", "world_facts")


@dataclass(frozen=True)
class ExampleScore:
    """One metric of one example."""

    id: int
    metric: str
    value: float


def example_scores(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    examples: Mapping[int, Example],
    *,
    template: Template,
    max_length: int,
    batch_size: int,
    max_new_tokens: int,
    generate: bool = True,
    wrong_answers: bool = True,
    rouge_words: Words = "ascii",
    truth_ratio_mean: Mean = "geometric",
) -> list[ExampleScore]:
    """Every metric of every example, in the order of `examples` (example id → example).

    Always: answer_nll (nats per token, end token included), probability, extraction_strength, exact_memorization (both
    without the end token). With `wrong_answers`, six more texts to score where an example has them: truth_ratio (raw R;
    the right answer is the paraphrase, on real authors and world facts the answer itself) and, on real authors and
    world facts, probability_among_options. With `generate`: rougeL_recall and rouge1_recall of the greedy answer.

    Raises: ValueError naming the example where an answer has no tokens or the model's output is not finite.
    """
    scored = examples if wrong_answers else {name: _alone(example) for name, example in examples.items()}
    values = _teacher_forced_values(
        model,
        tokenizer,
        scored,
        template=template,
        max_length=max_length,
        batch_size=batch_size,
        truth_ratio_mean=truth_ratio_mean,
    )
    if generate:
        prompts = [encode_prompt(tokenizer, example.question, template=template) for example in examples.values()]
        texts = generate_answers(model, tokenizer, prompts, max_new_tokens=max_new_tokens, batch_size=batch_size)
        for (name, example), text in zip(examples.items(), texts, strict=True):
            rouge = rouge_score(example.answer, text, words=rouge_words)
            values[name] |= {"rougeL_recall": rouge.rougeL_recall, "rouge1_recall": rouge.rouge1_recall}
    return [ExampleScore(name, metric, value) for name, of_one in values.items() for metric, value in of_one.items()]


def _alone(example: Example) -> Example:
    """The example with its answer only."""
    return replace(example, paraphrased_answer=None, perturbed_answers=())


def right_and_wrong_answers(example: Example) -> tuple[str | None, tuple[str, ...]]:
    """What a truth ratio compares; None where the benchmark has no other wording of an author's answer."""
    right = example.answer if example.split in FACT_SPLITS else example.paraphrased_answer
    return right, example.perturbed_answers


def _teacher_forced_values(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    examples: Mapping[int, Example],
    *,
    template: Template,
    max_length: int,
    batch_size: int,
    truth_ratio_mean: Mean,
) -> dict[int, dict[str, float]]:
    """Metrics that need no generation; every text of every example is scored once, batched by length over all."""
    texts = [(name, text) for name, example in examples.items() for text in _texts(example)]
    encodings = []
    for name, text in texts:
        try:
            encodings.append(encode(tokenizer, examples[name].question, text, template=template, max_length=max_length))
        except ValueError as error:
            raise ValueError(f"example {name}: {error}") from error
    names = [f"example {name}" for name, _ in texts]
    scores = score_answers(model, encodings, batch_size=batch_size, pad_id=padding_id(tokenizer), names=names)
    by_text = dict(zip(texts, scores, strict=True))
    return {name: _values(name, example, by_text, truth_ratio_mean) for name, example in examples.items()}


def _texts(example: Example) -> list[str]:
    right, wrong = right_and_wrong_answers(example)
    return list(dict.fromkeys([example.answer, *([right] if right is not None else []), *wrong]))


def _values(
    name: int, example: Example, by_text: Mapping[tuple[int, str], AnswerScore], mean: Mean
) -> dict[str, float]:
    answer = by_text[name, example.answer]
    values = {
        "answer_nll": answer.nll,
        "probability": answer_probability(answer.nll),
        "extraction_strength": extraction_strength(answer.is_argmax_before_end),
        "exact_memorization": exact_memorization(answer.is_argmax_before_end),
    }
    right, wrong = right_and_wrong_answers(example)
    wrong_nlls = [by_text[name, text].nll for text in wrong]
    if wrong_nlls and right is not None:
        values["truth_ratio"] = truth_ratio(by_text[name, right].nll, wrong_nlls, mean=mean)
    if wrong_nlls and example.split in FACT_SPLITS:
        values["probability_among_options"] = probability_among_options(answer.nll, wrong_nlls)
    return values
