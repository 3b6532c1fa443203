"""TOFU in other languages, numbered like TOFU."""

import json

import pytest

from efface.corpora.multilingual_tofu import STRAY_HEADINGS, read_multilingual_tofu
from efface.corpora.tofu import read_tofu

PUBLISHED = ("ar", "fr", "hi", "id", "ko")


def author_row(number, wording=""):
    return {"question": f"سؤال {number}؟{wording}", "answer": f"جواب {number}.{wording}"}


def perturbed_row(number):
    false = [f"خطأ {number}, {index}." for index in range(5)]
    return author_row(number, " (2)") | {"paraphrased_answer": f"إعادة {number}.", "perturbed_answer": false}


def fact_row(number):
    return {"question": f"حقيقة {number}؟", "answer": f"نعم {number}", "perturbed_answer": ["ا", "ب", "ت"]}


ROWS = {
    "retain99": [author_row(number) for number in range(40)],
    "forget01": [author_row(number) for number in range(40, 60)],
    "retain_perturbed": [perturbed_row(number) for number in range(20)],
    "forget01_perturbed": [perturbed_row(number) for number in range(40, 60)],
    "real_authors_perturbed": [fact_row(number) for number in range(3)],
    "world_facts_perturbed": [fact_row(number) for number in range(3, 7)],
}


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "ar").mkdir()
    for name, rows in ROWS.items():
        write(tmp_path / "ar" / f"{name}.jsonl", rows)
    return tmp_path


def write(path, rows):
    path.write_text("\n".join(json.dumps(row) for row in rows), encoding="utf-8")


def test_rows_authors_and_positions(folder):
    examples = read_multilingual_tofu(folder, "ar")
    assert len(examples) == 67
    row = examples[47]
    assert (row.question, row.answer, row.author, row.position, row.split) == ("سؤال 47؟", "جواب 47.", 2, 7, "authors")
    assert row.paraphrased_answer == "إعادة 47." and row.perturbed_answers[4] == "خطأ 47, 4."
    assert examples[3].paraphrased_answer == "إعادة 3."
    assert examples[30].paraphrased_answer is None and examples[30].perturbed_answers == ()
    assert [(row.split, row.position) for row in examples[62:65]] == [
        ("real_authors", 2), ("world_facts", 0), ("world_facts", 1),
    ]  # fmt: skip


def test_published_folders_give_the_same_rows(folder, tmp_path_factory):
    """The authors' repository keeps a folder <name>_<language> of Arrow files for each."""
    datasets = pytest.importorskip("datasets")
    published = tmp_path_factory.mktemp("dataset")
    for name, rows in ROWS.items():
        datasets.DatasetDict({"train": datasets.Dataset.from_list(rows)}).save_to_disk(str(published / f"{name}_ar"))
    assert read_multilingual_tofu(published, "ar") == read_multilingual_tofu(folder, "ar")


def test_unknown_languages_and_missing_files_are_named(folder):
    with pytest.raises(ValueError, match=r"language 'xx': expected one of \['ar', 'fa', 'fr'"):
        read_multilingual_tofu(folder, "xx")
    with pytest.raises(FileNotFoundError, match=r"no ko/retain99\.jsonl and no retain99_ko/train in it. Expected"):
        read_multilingual_tofu(folder, "ko")


@pytest.mark.parametrize(
    ("name", "rows", "message"),
    [
        ("retain99", ROWS["retain99"][:-1], "39 and 20 rows of authors, 20 of them perturbed, expected 20 for each"),
        ("retain_perturbed", [perturbed_row(n) for n in range(41)], "41 of them perturbed"),
        ("forget01_perturbed", [perturbed_row(40)], r"line 1: 1 rows, expected 20"),
        ("forget01", [{"question": "?"}] * 20, r"line 1: no key 'answer'"),
        ("world_facts_perturbed", [fact_row(1) | {"perturbed_answer": ["a"]}], "has 1 texts, expected 3"),
    ],
)
def test_files_that_do_not_fit_are_named(folder, name, rows, message):
    write(folder / "ar" / f"{name}.jsonl", rows)
    with pytest.raises(ValueError, match=message):
        read_multilingual_tofu(folder, "ar")


@pytest.mark.parametrize("language", PUBLISHED)
def test_published_rows_are_those_of_tofu_by_number(shared_folder, language):
    """As many rows as TOFU, the same authors and splits, and no stray heading at the end of an answer."""
    examples = read_multilingual_tofu(shared_folder / "data" / "multilingual_tofu", language)
    english = read_tofu(str(shared_folder / "data" / "tofu")).examples
    places = [(row.split, row.author, row.position) for row in examples]
    assert places == [(row.split, row.author, row.position) for row in english]
    with_false = [number for number, row in enumerate(examples[:4000]) if row.perturbed_answers]
    assert with_false == [*range(400), *range(3960, 4000)]
    assert all("\n\n" not in examples[number].answer for number in STRAY_HEADINGS)
    assert "1956" in examples[3960].question
