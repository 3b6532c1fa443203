"""VerbMem: greedy continuations of passages."""

import json

import pytest

from efface.corpora.muse import Passage
from efface.corpora.vocabulary import train_byte_bpe
from efface.evaluation.verbatim import verbatim_scores
from efface.models import scratch_llama

TEXTS = ["one two three four five", "six seven eight", "nine ten eleven twelve thirteen fourteen"]
PASSAGES = [Passage(text[:end], text[end:]) for text in TEXTS for end in (4, 8)]


@pytest.fixture(scope="module")
def tokenizer():
    return train_byte_bpe(TEXTS, vocab_size=280)


@pytest.fixture(scope="module")
def model(tokenizer):
    return scratch_llama(
        vocab_size=len(tokenizer), layers=2, hidden=32, heads=4, kv_heads=2, intermediate=64, tie_embeddings=False,
        seed=1, bos_id=tokenizer.bos_token_id, eos_id=tokenizer.eos_token_id, pad_id=tokenizer.pad_token_id,
    )  # fmt: skip


def test_scores_by_hand(model, tokenizer, monkeypatch):
    """Word for word: 1. Two of three written words are of the four true ones: 2·(2/3)·(2/4) / (2/3 + 2/4) = 4/7."""
    written = ["Three four.", "two three zero", ""]
    monkeypatch.setattr("efface.evaluation.verbatim.generate_answers", lambda *_, **__: written)
    passages = [Passage("one two", "three four"), Passage("one", "two three four five"), Passage("one", "two")]
    assert verbatim_scores(model, tokenizer, passages, batch_size=2) == pytest.approx([1, 4 / 7, 0])


def test_the_truth_is_cut_like_the_continuation(model, tokenizer, monkeypatch):
    """Of "three four five …" only the first two tokens count, so that writing them is enough for 1."""
    text = "three four five six seven eight nine ten"
    beginning = tokenizer.decode(tokenizer(text, add_special_tokens=False)["input_ids"][:2])
    monkeypatch.setattr("efface.evaluation.verbatim.generate_answers", lambda *_, **__: [beginning])
    assert verbatim_scores(model, tokenizer, [Passage("two", text)], batch_size=1, max_new_tokens=2) == [1]
    assert verbatim_scores(model, tokenizer, [Passage("two", text)], batch_size=1, max_new_tokens=99)[0] < 1


def test_batch_size_changes_nothing(model, tokenizer):
    one, other = (
        verbatim_scores(model, tokenizer, PASSAGES, batch_size=size, max_new_tokens=6) for size in (1, len(PASSAGES))
    )
    assert one == other


def test_nothing_to_score_is_refused(model, tokenizer):
    with pytest.raises(ValueError, match="VerbMem without passages; expected at least one prompt"):
        verbatim_scores(model, tokenizer, [], batch_size=1)
    with pytest.raises(ValueError, match="true answer '…' has no words"):
        verbatim_scores(model, tokenizer, [Passage("one", "…")], batch_size=1, max_new_tokens=9)


@pytest.mark.parametrize("name", ["full", "unlearned", "retain", "start"])
def test_scores_are_the_oracles(oracle, name):
    """open-unlearning's verbmem ROUGE-L F1 of every row; it stems."""
    lines = (oracle.folder / "rows/muse_verbmem.jsonl").read_text().splitlines()
    passages = [Passage(row["prompt"], row["gt"]) for row in map(json.loads, lines)]
    logged = oracle.expected["metrics"][name]["muse"]["forget_verbmem_ROUGE"]
    expected = [logged["value_by_index"][str(place)]["rougeL_f1"] for place in range(len(passages))]
    found = verbatim_scores(oracle.models[name], oracle.tokenizer, passages, batch_size=3, stem=True)
    assert found == pytest.approx(expected, abs=1e-12)
