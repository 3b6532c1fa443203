"""Whether a model answers questions about texts, shown by examples how short an answer is to be."""

from collections.abc import Sequence

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from efface.corpora.muse import Knowledge, Question
from efface.evaluation.rouge import Words, rouge_score
from efface.generation import generate_answers

STOP_STRINGS = ("\n\n", "\nQuestion", "Question:")


def knowledge_scores(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    knowledge: Knowledge,
    *,
    batch_size: int,
    max_new_tokens: int = 32,
    words: Words = "ascii",
    stem: bool = False,
) -> list[float]:
    """KnowMem of every question, in [0, 1]: ROUGE-L F1 of the greedy answer, cut at the stop strings.

    arXiv:2407.06460 (C2 on forget questions, C4 on retain questions). `stem`: open-unlearning's stemmer.

    Raises: ValueError where there are no questions, naming the question whose answer has no words.
    """
    if not knowledge.questions:
        raise ValueError("KnowMem without questions; expected at least one question with its answer")
    prompts = [
        tuple(tokenizer(few_shot_prompt(knowledge.shots, asked.question))["input_ids"]) for asked in knowledge.questions
    ]
    texts = generate_answers(
        model, tokenizer, prompts, max_new_tokens=max_new_tokens, batch_size=batch_size, stop_strings=STOP_STRINGS
    )
    return [
        rouge_score(asked.answer, text, words=words, stem=stem).rougeL_f1
        for asked, text in zip(knowledge.questions, texts, strict=True)
    ]


def few_shot_prompt(shots: Sequence[Question], question: str) -> str:
    """MUSE's prompt: "Question: …\\nAnswer: …\\n\\n" for every shot, then the question; it ends with a space."""
    shown = "".join(f"Question: {shot.question}\nAnswer: {shot.answer}\n\n" for shot in shots)
    return f"{shown}Question: {question}\nAnswer: "
