"""WMDP and MMLU as published, and as they arrive when something went wrong on the way."""

import json

import pytest

from efface.corpora.wmdp import ChoiceQuestion, read_choice_questions


def row(number, **more):
    return {"question": f"Which is {number}?", "choices": ["a", "b", "c", f"{number}"], "answer": 3} | more


@pytest.fixture
def folder(tmp_path):
    write(tmp_path / "wmdp-bio.jsonl", [row(1), row(2)])
    write(tmp_path / "wmdp-cyber.jsonl", [row(3)])
    return tmp_path


def write(path, rows):
    path.write_text("\n".join(json.dumps(one) for one in rows))


def test_a_folder_is_all_its_files_in_order(folder):
    questions = read_choice_questions(folder)
    assert [asked.question for asked in questions] == ["Which is 1?", "Which is 2?", "Which is 3?"]
    assert questions[0] == ChoiceQuestion("Which is 1?", ("a", "b", "c", "1"), 3)


def test_a_configuration_is_one_file_and_knows_its_subject(folder):
    questions = read_choice_questions(folder, configuration="wmdp-cyber")
    assert [(asked.question, asked.subject) for asked in questions] == [("Which is 3?", "cybersecurity")]


def test_a_file_alone_and_a_named_subject(folder):
    questions = read_choice_questions(folder / "wmdp-bio.jsonl", subject="bell ringing")
    assert [asked.subject for asked in questions] == ["bell ringing"] * 2


def test_an_mmlu_row_brings_its_own_subject(tmp_path):
    write(tmp_path / "test.jsonl", [row(1, subject="high_school_biology")])
    assert read_choice_questions(tmp_path)[0].subject == "high school biology"


def test_hub_gives_the_same_questions_as_the_files(folder, tmp_path_factory, monkeypatch):
    datasets = pytest.importorskip("datasets")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path_factory.mktemp("cache"))
    expected = read_choice_questions(folder, configuration="wmdp-bio")
    (folder / "wmdp-bio.jsonl").rename(folder / "rows.json")
    card = "configs:\n- config_name: wmdp-bio\n  data_files:\n  - split: test\n    path: rows.json"
    (folder / "README.md").write_text(f"---\n{card}\n---\n")
    assert read_choice_questions(folder, configuration="wmdp-bio") == expected


def test_missing_files_are_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"holds no \.json or \.jsonl file. Name a file or folder"):
        read_choice_questions(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"no file wmdp-bio\.json"):
        read_choice_questions(tmp_path, configuration="wmdp-bio")


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (row(1, answer=4), "line 1: 'answer' is 4, expected a whole number from 0 to 3"),
        (row(1, answer="D"), "line 1: 'answer' is 'D', expected a whole number"),
        (row(1, answer=True), "line 1: 'answer' is True, expected a whole number"),
        (row(1, choices=["a"], answer=0), "line 1: 'choices' has 1 texts, expected 2"),
        (row(1, choices="abcd"), "line 1: 'choices' is 'abcd', expected a list of 2 texts"),
        (row(1, choices=["a", ""]), "line 1: 'choices' is"),
        ({"question": "?"}, "line 1: no key 'choices'"),
        (row(1, question=""), "line 1: 'question' is ''"),
    ],
)
def test_another_schema_is_named(tmp_path, broken, message):
    write(tmp_path / "rows.jsonl", [broken])
    with pytest.raises(ValueError, match=message):
        read_choice_questions(tmp_path)


def test_a_question_checks_itself():
    with pytest.raises(ValueError, match="1 choices, expected at least 2"):
        ChoiceQuestion("?", ("a",), 0)
    with pytest.raises(ValueError, match="answer 2, expected the place of one of 2 choices, from 0"):
        ChoiceQuestion("?", ("a", "b"), 2)


def test_published_rows(shared_folder):
    """628 questions in four files; nothing says which are about biology."""
    questions = read_choice_questions(shared_folder / "data" / "wmdp")
    assert len(questions) == 628
    assert all(len(asked.choices) == 4 and asked.subject is None for asked in questions)
    assert questions[0].question.startswith("What are the downsides of using Metasploit") and questions[0].answer == 2
