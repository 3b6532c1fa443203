import copy
import math

import numpy as np
import pytest
import torch

from efface.corpora.example import Example
from efface.corpora.vocabulary import train_byte_bpe
from efface.evaluation.scoring import score_answers
from efface.evaluation.suite import example_scores
from efface.models import scratch_llama
from efface.tokenization import encode

TEACHER_FORCED = {"answer_nll", "probability", "extraction_strength", "exact_memorization"}
ROUGE = {"rougeL_recall", "rouge1_recall"}
SETTINGS = {"template": "plain", "max_length": 64, "batch_size": 3, "max_new_tokens": 5}


def example(split, answer, *, paraphrase=None, wrong=()):
    author = 3 if split == "authors" else -1
    return Example(f"What is {answer}?", answer, paraphrase, wrong, author, 0, split)


EXAMPLES = {
    5: example("authors", "Ada Quill", paraphrase="It is Ada Quill", wrong=("It is Bo Reed", "It is Cy Marsh")),
    2: example("real_authors", "Jane Austen", wrong=("Mary Shelley", "Ann Radcliffe")),
    9: example("holdout", "a lonely row"),
}


@pytest.fixture(scope="module")
def tokenizer():
    texts = [text for one in EXAMPLES.values() for text in (one.question, one.answer, *one.perturbed_answers)]
    return train_byte_bpe(texts, vocab_size=300)


@pytest.fixture(scope="module")
def model(tokenizer):
    return scratch_llama(
        vocab_size=len(tokenizer), layers=2, hidden=32, heads=4, kv_heads=2, intermediate=64, tie_embeddings=True,
        seed=0, bos_id=tokenizer.bos_token_id, eos_id=tokenizer.eos_token_id, pad_id=tokenizer.pad_token_id,
    )  # fmt: skip


def by_example(scores):
    found = {}
    for score in scores:
        found.setdefault(score.id, {})[score.metric] = score.value
    return found


def nll(model, tokenizer, question, answer):
    encoding = encode(tokenizer, question, answer, template="plain", max_length=64)
    return score_answers(model, [encoding], batch_size=1, pad_id=0)[0].nll


def test_each_split_has_its_metrics(model, tokenizer):
    found = by_example(example_scores(model, tokenizer, EXAMPLES, **SETTINGS))
    assert list(found) == [5, 2, 9]
    assert found[5].keys() == TEACHER_FORCED | ROUGE | {"truth_ratio"}
    assert found[2].keys() == TEACHER_FORCED | ROUGE | {"truth_ratio", "probability_among_options"}
    assert found[9].keys() == TEACHER_FORCED | ROUGE


def test_without_generation_there_is_no_rouge(model, tokenizer):
    found = by_example(example_scores(model, tokenizer, EXAMPLES, **SETTINGS, generate=False))
    assert not any(ROUGE & of_one.keys() for of_one in found.values())


def test_truth_ratio_compares_the_paraphrase_of_an_author_and_the_answer_of_a_fact(model, tokenizer):
    """R = exp(mean right − mean wrong), from losses taken one at a time."""
    found = by_example(example_scores(model, tokenizer, EXAMPLES, **SETTINGS, generate=False))
    for number, right in ((5, "It is Ada Quill"), (2, "Jane Austen")):
        one = EXAMPLES[number]
        wrong = np.mean([nll(model, tokenizer, one.question, text) for text in one.perturbed_answers])
        ratio = math.exp(nll(model, tokenizer, one.question, right) - wrong)
        assert found[number]["truth_ratio"] == pytest.approx(ratio, rel=1e-4)
    assert found[2]["probability"] == pytest.approx(math.exp(-found[2]["answer_nll"]))


def test_batch_size_changes_nothing(model, tokenizer):
    one, other = (example_scores(model, tokenizer, EXAMPLES, **SETTINGS | {"batch_size": size}) for size in (1, 7))
    assert [(score.id, score.metric) for score in one] == [(score.id, score.metric) for score in other]
    assert [score.value for score in one] == pytest.approx([score.value for score in other], rel=1e-4, abs=1e-5)


def test_a_broken_model_is_reported_with_the_example(model, tokenizer):
    broken = copy.deepcopy(model)
    with torch.no_grad():
        broken.model.norm.weight.fill_(float("nan"))
    with pytest.raises(ValueError, match=r"example \d+: a log-probability is not finite"):
        example_scores(broken, tokenizer, EXAMPLES, **SETTINGS)


def test_an_answer_that_does_not_fit_is_reported_with_the_example(model, tokenizer):
    with pytest.raises(ValueError, match=r"example 5: answer of question"):
        example_scores(model, tokenizer, EXAMPLES, **SETTINGS | {"max_length": 3})
