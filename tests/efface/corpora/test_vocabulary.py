"""The tokenizer learned from the corpus."""

import pytest

from efface.corpora.vocabulary import BOS, EOS, PAD, TrainedTokenizer, train_byte_bpe

TEXTS = ["Question: Who?\nAnswer: Jonden Queišovar of Søndburgh.", "Question: Where?\nAnswer: In Thomia, 日本."] * 20


def test_special_tokens_come_first_and_are_single_tokens():
    tokenizer = train_byte_bpe(TEXTS, vocab_size=300)
    assert (tokenizer.bos_token_id, tokenizer.eos_token_id, tokenizer.pad_token_id) == (0, 1, 2)
    assert tokenizer.convert_ids_to_tokens([0, 1, 2]) == [BOS, EOS, PAD]


def test_exactly_one_bos_and_no_eos():
    ids = train_byte_bpe(TEXTS, vocab_size=300)("Who?")["input_ids"]
    assert ids[0] == 0 and ids.count(0) == 1 and 1 not in ids


@pytest.mark.parametrize("text", [*TEXTS[:2], "Ünseen écriture: עברית, emoji 🦔, tab\t and  spaces ", " leading"])
def test_any_text_survives(text):
    tokenizer = train_byte_bpe(TEXTS, vocab_size=300)
    assert tokenizer.decode(tokenizer(text, add_special_tokens=False)["input_ids"]) == text


def test_same_texts_same_bytes(tmp_path):
    for name in ("one", "two"):
        train_byte_bpe(TEXTS, vocab_size=320).save_pretrained(tmp_path / name)
    files = sorted(path.name for path in (tmp_path / "one").iterdir())
    assert files == sorted(path.name for path in (tmp_path / "two").iterdir())
    for name in files:
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()


def test_saved_tokenizer_loads_as_it_was(tmp_path):
    from transformers import AutoTokenizer

    tokenizer = train_byte_bpe(TEXTS, vocab_size=300)
    tokenizer.save_pretrained(tmp_path)
    loaded = AutoTokenizer.from_pretrained(tmp_path)
    assert loaded(TEXTS[0])["input_ids"] == tokenizer(TEXTS[0])["input_ids"]
    assert (loaded.bos_token_id, loaded.eos_token_id, loaded.pad_token_id) == (0, 1, 2)


def test_vocabulary_holds_all_bytes():
    with pytest.raises(ValueError, match="vocab_size 258: expected at least 259"):
        TrainedTokenizer(vocab_size=258)
