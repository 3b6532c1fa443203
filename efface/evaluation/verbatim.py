"""Whether a model goes on with a text word for word, from its beginning alone."""

from collections.abc import Sequence

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from efface.corpora.muse import Passage
from efface.evaluation.rouge import Words, rouge_score
from efface.generation import generate_answers


def verbatim_scores(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    passages: Sequence[Passage],
    *,
    batch_size: int,
    max_new_tokens: int = 128,
    words: Words = "ascii",
    stem: bool = False,
) -> list[float]:
    """VerbMem of every passage, in [0, 1]: ROUGE-L F1 of the greedy continuation against the true one.

    arXiv:2407.06460 (C1); the true continuation is cut at `max_new_tokens` as well. `stem`: open-unlearning's stemmer.

    Raises: ValueError where there are no passages, naming the passage whose true continuation has no words.
    """
    if not passages:
        raise ValueError("VerbMem without passages; expected at least one prompt with its continuation")
    prompts = [tuple(tokenizer(passage.prompt)["input_ids"]) for passage in passages]
    texts = generate_answers(model, tokenizer, prompts, max_new_tokens=max_new_tokens, batch_size=batch_size)
    truths = [_beginning(tokenizer, passage.continuation, max_new_tokens) for passage in passages]
    return [
        rouge_score(truth, text, words=words, stem=stem).rougeL_f1 for truth, text in zip(truths, texts, strict=True)
    ]


def _beginning(tokenizer: PreTrainedTokenizerBase, text: str, count: int) -> str:
    """The first `count` tokens of a text, as text."""
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    return text if len(ids) <= count else str(tokenizer.decode(ids[:count]))
