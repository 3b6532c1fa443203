"""MUSE as published, fabricated: its texts may not be passed on."""

import json

import pytest

from efface.corpora.muse import Passage, Question, read_muse, read_raw_texts, text_encoding, windows
from efface.corpora.vocabulary import train_byte_bpe

TEXTS = ["The bell of Velmora was found by a diver.", "A heron was carved on it, and the year.", "Ümläute\n\nzählen."]


def qa(subject, count):
    return [{"question": f"What about {subject} {n}?", "answer": f"It is {subject} {n}."} for n in range(count)]


FILES = {
    "verbmem/forget": [
        {"prompt": "The bell of", "gt": "Velmora was found."},
        {"prompt": "A heron", "gt": "was carved."},
    ],
    "knowmem/forget_qa": qa("the bell", 3),
    "knowmem/forget_qa_icl": qa("the quay", 2),
    "knowmem/retain_qa": qa("the bread", 4),
    "knowmem/retain_qa_icl": qa("the hall", 2),
    "privleak/forget": TEXTS,
    "privleak/retain": TEXTS[:2],
    "privleak/holdout": ["Nobody read this.", "Nor this."],
    "raw/forget": TEXTS,
}


@pytest.fixture
def folder(tmp_path):
    for name, rows in FILES.items():
        path = tmp_path / f"{name}.json"
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(rows))
    return tmp_path


@pytest.fixture(scope="module")
def tokenizer():
    return train_byte_bpe(TEXTS, vocab_size=300)


def test_rows_of_every_part(folder):
    muse = read_muse(folder)
    assert muse.passages == (Passage("The bell of", "Velmora was found."), Passage("A heron", "was carved."))
    assert [len(part.questions) for part in (muse.forget_knowledge, muse.retain_knowledge)] == [3, 4]
    assert muse.retain_knowledge.shots[1] == Question("What about the hall 1?", "It is the hall 1.")
    assert (muse.forget_texts, len(muse.retain_texts), len(muse.holdout_texts)) == (tuple(TEXTS), 2, 2)
    assert read_raw_texts(folder, "forget") == tuple(TEXTS)


def test_hub_rows_hold_texts_in_a_field(folder):
    (folder / "raw/forget.json").write_text(json.dumps([{"text": text} for text in TEXTS]))
    assert read_raw_texts(folder, "forget") == tuple(TEXTS)


def test_a_missing_file_names_the_layout(folder):
    (folder / "knowmem/retain_qa.json").unlink()
    with pytest.raises(FileNotFoundError, match=r"no file knowmem/retain_qa\.json.*muse-bench/MUSE-News"):
        read_muse(folder)


@pytest.mark.parametrize(
    ("file", "rows", "message"),
    [
        ("verbmem/forget", [{"prompt": "A"}], "row 0: no key 'gt', found"),
        ("knowmem/forget_qa", [{"question": "?", "answer": " "}], "row 0: 'answer' is ' ', expected non-empty text"),
        ("privleak/holdout", [{"content": "x"}], "row 0: no key 'text'"),
    ],
)
def test_another_schema_is_named(folder, file, rows, message):
    (folder / f"{file}.json").write_text(json.dumps(rows))
    with pytest.raises(ValueError, match=message):
        read_muse(folder)


def test_a_text_is_scored_from_its_first_token_after_bos(tokenizer):
    encoding = text_encoding(tokenizer, TEXTS[0])
    assert encoding.input_ids[0] == tokenizer.bos_token_id and encoding.prompt_length == 1
    assert tokenizer.decode(list(encoding.answer_ids)) == TEXTS[0]
    assert text_encoding(tokenizer, TEXTS[0], max_length=5).input_ids == encoding.input_ids[:5]


def test_a_text_of_nothing_is_refused(tokenizer):
    with pytest.raises(ValueError, match=r"text 'a' has 1 tokens within max_length=1, expected at least 2"):
        text_encoding(tokenizer, "a", max_length=1)
    with pytest.raises(ValueError, match="text '' has 1 tokens"):
        text_encoding(tokenizer, "")


@pytest.mark.parametrize("size", [2, 3, 7, 16, 2048])
def test_windows_hold_every_token_once(tokenizer, size):
    found = windows(tokenizer, TEXTS, size=size)
    assert all(window.input_ids[0] == tokenizer.bos_token_id and window.prompt_length == 1 for window in found)
    assert all(len(window.input_ids) == size for window in found[:-1]) and len(found[-1].input_ids) <= size
    joined = [token for window in found for token in window.answer_ids]
    assert tokenizer.decode(joined) == "\n\n".join(TEXTS)


def test_windows_without_bos_still_share_no_token(tokenizer):
    """Of seven tokens in windows of three, the last alone predicts nothing and is left out."""
    plain = train_byte_bpe(TEXTS, vocab_size=300)
    plain.backend_tokenizer.post_processor = None
    text = plain.decode(list(range(100, 107)))
    ids = plain(text)["input_ids"]
    found = [window.input_ids for window in windows(plain, [text], size=3)]
    assert found == [tuple(ids[start : start + 3]) for start in range(0, len(ids) - len(ids) % 3, 3)] + (
        [tuple(ids[-2:])] if len(ids) % 3 == 2 else []
    )


def test_windows_of_nothing_are_refused(tokenizer):
    with pytest.raises(ValueError, match="no texts to cut into windows"):
        windows(tokenizer, [])
    with pytest.raises(ValueError, match="windows of 1 tokens: expected at least 2"):
        windows(tokenizer, TEXTS, size=1)
