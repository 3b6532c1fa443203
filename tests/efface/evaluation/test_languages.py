"""The suite in several languages, and what is left in each after forgetting in one."""

import copy

import pytest
import torch

from efface.corpora.example import Example
from efface.corpora.vocabulary import train_byte_bpe
from efface.evaluation.languages import remaining_shares, scores_by_language
from efface.evaluation.suite import ExampleScore, example_scores
from efface.models import scratch_llama

TEXTS = {
    "ar": ("من وجد الجرس؟", "غواص من فيلمورا"),
    "fr": ("Qui a trouvé la cloche ?", "Un plongeur de Velmora"),
    "ko": ("누가 종을 찾았습니까?", "벨모라의 잠수부"),
}
EXAMPLES = {
    language: {7: Example(question, answer, None, (), 0, 7, "authors")}
    for language, (question, answer) in TEXTS.items()
}
SETTINGS = {"template": "plain", "max_length": 128, "batch_size": 2, "max_new_tokens": 4}


@pytest.fixture(scope="module")
def tokenizer():
    return train_byte_bpe([text for texts in TEXTS.values() for text in texts], vocab_size=300)


@pytest.fixture(scope="module")
def model(tokenizer):
    return scratch_llama(
        vocab_size=len(tokenizer), layers=2, hidden=32, heads=4, kv_heads=2, intermediate=64, tie_embeddings=True,
        seed=0, bos_id=tokenizer.bos_token_id, eos_id=tokenizer.eos_token_id, pad_id=tokenizer.pad_token_id,
    )  # fmt: skip


def test_every_language_is_the_suite_with_words_of_its_own(model, tokenizer):
    """The usual words of ROUGE would refuse the Arabic and the Korean answer."""
    found = scores_by_language(model, tokenizer, EXAMPLES, **SETTINGS)
    assert list(found) == ["ar", "fr", "ko"]
    for language, scores in found.items():
        assert scores == example_scores(model, tokenizer, EXAMPLES[language], **SETTINGS, rouge_words="unicode")


def test_an_untouched_model_keeps_everything_and_another_does_not(model, tokenizer):
    before = scores_by_language(model, tokenizer, EXAMPLES, **SETTINGS)
    assert remaining_shares(before, before, "probability") == {"ar": 1, "fr": 1, "ko": 1}
    other = copy.deepcopy(model)
    with torch.no_grad():
        other.model.norm.weight.mul_(5)
    after = scores_by_language(other, tokenizer, EXAMPLES, **SETTINGS)
    shares = remaining_shares(before, after, "probability")
    assert len(set(shares.values())) == 3


def scores(*values):
    return [ExampleScore(number, "probability", value) for number, value in enumerate(values)]


def test_shares_by_hand():
    """(0.1 + 0.3) / (0.8 + 0.8) = ¼ in the language of the request, ½ in the other."""
    before = {"fr": scores(0.8, 0.8), "ko": scores(0.4, 0.2)}
    after = {"fr": scores(0.1, 0.3), "ko": scores(0.1, 0.2)}
    assert remaining_shares(before, after, "probability") == {"fr": pytest.approx(0.25), "ko": pytest.approx(0.5)}


def test_what_cannot_be_compared_is_named(model, tokenizer):
    before = {"fr": scores(0.8)}
    with pytest.raises(ValueError, match=r"languages \['fr'\] before and \['ko'\] after"):
        remaining_shares(before, {"ko": scores(0.8)}, "probability")
    with pytest.raises(ValueError, match="metric 'rouge' of language 'fr': no example has it"):
        remaining_shares(before, before, "rouge")
    with pytest.raises(ValueError, match="probability of language 'fr' is 0 before"):
        remaining_shares({"fr": scores(0.0)}, before, "probability")
    with pytest.raises(ValueError, match="language 'ko' has 1 examples, not the 1 of 'ar' in their order"):
        scores_by_language(model, tokenizer, {"ar": EXAMPLES["ar"], "ko": {8: EXAMPLES["ko"][7]}}, **SETTINGS)
