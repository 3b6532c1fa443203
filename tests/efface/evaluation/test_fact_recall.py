"""Recall of a model that has learned some facts, token by token and as it writes."""

from dataclasses import replace

import pytest
import torch

from efface.corpora.facts import FABRICATED_FACTS
from efface.corpora.vocabulary import train_byte_bpe
from efface.evaluation.fact_recall import Recall, answered_facts, fact_recall, stands_in
from efface.models import scratch_llama
from efface.tokenization import Encoding, collate, completion, padding_id
from efface.training.losses import nll_loss

FACTS = FABRICATED_FACTS[:3]
LEARNED = [
    *((fact.prompt, fact.target_true) for fact in FACTS[:2]),
    (FACTS[0].paraphrases[0], FACTS[0].target_true),
    *(neighbour for fact in FACTS for neighbour in fact.neighbours),
]


@pytest.fixture(scope="module")
def tokenizer():
    return train_byte_bpe([f"{fact.prompt} {fact.target_true}" for fact in FACTS], vocab_size=300)


@pytest.fixture(scope="module")
def model(tokenizer):
    """It learned two of three facts, the paraphrase of one, and all neighbours."""
    model = scratch_llama(
        vocab_size=len(tokenizer), layers=2, hidden=32, heads=2, kv_heads=1, intermediate=48,
        tie_embeddings=False, seed=0,
    )  # fmt: skip
    rows = [completion(tokenizer, *pair) for pair in LEARNED]
    rows = [Encoding((*row.input_ids, tokenizer.eos_token_id), row.prompt_length) for row in rows]
    batch = collate(rows, pad_id=padding_id(tokenizer))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(60):
        optimizer.zero_grad()
        nll_loss(model(input_ids=batch.input_ids, attention_mask=batch.attention_mask).logits, batch.labels).backward()
        optimizer.step()
    return model


def literal_share(model, tokenizer, prompt: str, answer: str) -> float:
    """The published loop: the prompt and the answer's first i tokens, is the next one the likeliest?"""
    ids, answer_ids = tokenizer(prompt)["input_ids"], tokenizer(f" {answer}", add_special_tokens=False)["input_ids"]
    right = 0
    for place, token in enumerate(answer_ids):
        with torch.no_grad():
            right += int(model(torch.tensor([ids + answer_ids[:place]])).logits[0, -1].argmax()) == token
    return right / len(answer_ids)


def test_teacher_forced_recall_equals_the_published_loop(model, tokenizer):
    recall = fact_recall(model, tokenizer, FACTS, batch_size=2)
    expected = [literal_share(model, tokenizer, fact.prompt, fact.target_true) for fact in FACTS]
    assert recall.efficacy.teacher_forced == pytest.approx(sum(expected) / 3)
    assert expected[:2] == [1, 1] and expected[2] < 1
    assert recall.specificity == Recall(1.0, 1.0)


def test_prompts_of_a_fact_are_averaged_before_facts(model, tokenizer):
    """Fact 0 has one right and one wrong paraphrase (½), fact 1 a wrong one (0), fact 2 none: ¼ as written."""
    facts = [
        replace(FACTS[0], paraphrases=(*FACTS[0].paraphrases, "zzz")),
        replace(FACTS[1], paraphrases=("qqq",)),
        replace(FACTS[2], paraphrases=()),
    ]
    assert fact_recall(model, tokenizer, facts).generalisation.generated == pytest.approx(0.25)


def test_facts_without_such_prompts_have_no_recall(model, tokenizer):
    recall = fact_recall(model, tokenizer, [replace(FACTS[0], paraphrases=(), neighbours=())])
    assert recall.efficacy == Recall(1.0, 1.0)
    assert recall.generalisation == recall.specificity == Recall(None, None)


def test_answered_facts_are_those_the_model_learned(model, tokenizer):
    assert answered_facts(model, tokenizer, FACTS, batch_size=2) == FACTS[:2]
    with pytest.raises(ValueError, match=r"no facts left: the model answers none of 1.*a model that knows them"):
        answered_facts(model, tokenizer, FACTS[2:])
    with pytest.raises(ValueError, match="no facts left: the model answers none of 0"):
        answered_facts(model, tokenizer, [])
    with pytest.raises(ValueError, match="no facts: expected at least one"):
        fact_recall(model, tokenizer, [])


@pytest.mark.parametrize(
    ("answer", "text", "found"),
    [("US", "in the US.", True), ("US", "we must", False), ("U.S.", "the u.s. army", True), ("Kö", "Köln", False)],
)
def test_answers_stand_in_text_as_whole_words(answer, text, found):
    assert stands_in(answer, text) is found
