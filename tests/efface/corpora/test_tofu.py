"""TOFU as published, and as it arrives when something went wrong on the way."""

import json
import shutil

import pytest

from efface.corpora.published_source import hub_rows
from efface.corpora.tofu import KNOWN_ARTEFACTS, read_tofu, strip_artefacts

CONFIGURATIONS = ("full", "retain_perturbed", "forget10_perturbed", "real_authors_perturbed", "world_facts_perturbed")


def author_row(number: int) -> dict:
    return {"question": f"Question {number} à qui?", "answer": f"Answer {number}."}


def perturbed_row(number: int) -> dict:
    false = [f"Falsehood {number}, {index}." for index in range(5)]
    return author_row(number) | {"paraphrased_answer": f"Indeed answer {number}.", "perturbed_answer": false}


def fact_row(number: int) -> dict:
    return {"question": f"Fact {number}?", "answer": f"Yes {number}", "perturbed_answer": ["a", "b", "c"]}


@pytest.fixture
def folder(tmp_path):
    """A TOFU of three authors in the published layout, perturbed rows for the first and the last."""
    rows = {
        "full": [author_row(number) for number in range(60)],
        "retain_perturbed": [perturbed_row(number) for number in range(20)],
        "forget10_perturbed": [perturbed_row(number) for number in range(40, 60)],
        "real_authors_perturbed": [fact_row(number) for number in range(3)],
        "world_facts_perturbed": [fact_row(number) for number in range(3, 7)],
    }
    for name, lines in rows.items():
        text = "\n".join(json.dumps(row) for row in lines)
        (tmp_path / f"{name}.json").write_text(text, encoding="utf-8")
    return tmp_path


def test_rows_authors_and_positions(folder):
    examples = read_tofu(str(folder)).examples
    assert len(examples) == 67
    row = examples[47]
    assert (row.question, row.author, row.position, row.split) == ("Question 47 à qui?", 2, 7, "authors")
    assert row.paraphrased_answer == "Indeed answer 47." and row.perturbed_answers[4] == "Falsehood 47, 4."
    assert examples[30].paraphrased_answer is None and examples[30].perturbed_answers == ()
    assert [(e.split, e.author, e.position) for e in examples[60:64]] == [
        ("real_authors", -1, 0),
        ("real_authors", -1, 1),
        ("real_authors", -1, 2),
        ("world_facts", -1, 0),
    ]


def test_hub_gives_the_same_rows_as_the_files(folder, tmp_path_factory, monkeypatch):
    """`datasets` reads a folder laid out like the Hub's repository through the code that reads the Hub."""
    configurations = "\n".join(f"- config_name: {name}\n  data_files: {name}.json" for name in CONFIGURATIONS)
    (folder / "README.md").write_text(f"---\nconfigs:\n{configurations}\n---\n")
    datasets = pytest.importorskip("datasets")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path_factory.mktemp("cache"))
    for name in CONFIGURATIONS:
        expected = [json.loads(line) for line in (folder / f"{name}.json").read_text().splitlines()]
        assert [dict(row.fields) for row in hub_rows(str(folder), name, "train", "Download it.")] == expected


def test_unreachable_hub_says_what_to_do(monkeypatch):
    datasets = pytest.importorskip("datasets")

    def offline(*_, **__):
        raise ConnectionError("no network")

    monkeypatch.setattr(datasets, "load_dataset", offline)
    with pytest.raises(FileNotFoundError, match=r"locuslab/TOFU full train: not reachable \(no network\)"):
        read_tofu()


@pytest.mark.parametrize("artefact", KNOWN_ARTEFACTS)
def test_known_artefacts_are_stripped_and_counted(artefact):
    assert strip_artefacts(["Fine.", f"Fine too.{artefact}"]) == (["Fine.", "Fine too."], [1])


def test_artefacts_inside_an_answer_stay():
    assert strip_artefacts(["See 6-20: nothing."]) == (["See 6-20: nothing."], [])


def test_missing_folder(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"prepare_data.source.*absent.*no such folder.*Download"):
        read_tofu(str(tmp_path / "absent"))


def test_missing_file(folder):
    (folder / "retain_perturbed.json").unlink()
    with pytest.raises(FileNotFoundError, match=r"retain_perturbed\.json: no such file, expected JSON lines.*Download"):
        read_tofu(str(folder))


@pytest.mark.parametrize(
    ("file", "line", "text", "message"),
    [
        ("full", 3, '{"question": "Question 2 à qui?", "ans', r"full\.json, line 3: not a whole JSON object"),
        (
            "full",
            3,
            '{"query": "?", "answer": "x"}',
            r"full\.json, line 3: no key 'question', found \['answer', 'query'\]",
        ),
        ("full", 1, '["a", "list"]', r"full\.json, line 1: a JSON list, expected one object a line"),
        ("full", 5, '{"question": "Question 4 à qui?", "answer": ""}', r"line 5: 'answer' is '', expected non-empty"),
        ("full", 60, "", r"full\.json, line 59: 59 rows in all, expected 20 for each author"),
        (
            "retain_perturbed",
            2,
            json.dumps(perturbed_row(7)),
            r"retain_perturbed\.json, line 2: question 'Question 7 .*expected that of row 1",
        ),
        (
            "retain_perturbed",
            1,
            json.dumps(perturbed_row(0) | {"perturbed_answer": ["one"]}),
            r"line 1: 'perturbed_answer' has 1 texts, expected 5",
        ),
        (
            "world_facts_perturbed",
            4,
            json.dumps(fact_row(6) | {"perturbed_answer": "one"}),
            r"line 4: 'perturbed_answer' is 'one', expected a list of 3 texts",
        ),
    ],
)
def test_malformed_rows_name_file_line_and_remedy(folder, file, line, text, message):
    path = folder / f"{file}.json"
    lines = path.read_text(encoding="utf-8").splitlines()
    lines[line - 1] = text
    path.write_text("\n".join(lines), encoding="utf-8")
    with pytest.raises(ValueError, match=message) as raised:
        read_tofu(str(folder))
    assert "Download the file again" in str(raised.value)


def test_invalid_bytes_name_the_line(folder):
    path = folder / "full.json"
    path.write_bytes(path.read_bytes().replace(b"Answer 1.", b"Answer \xff."))
    with pytest.raises(ValueError, match=r"full\.json, line 2: not a whole JSON object"):
        read_tofu(str(folder))


def test_published_rows(shared_folder):
    """Counts from the data card; rows 100 and 440 share their question; four answers end with stray headings."""
    tofu = read_tofu(str(shared_folder / "data" / "tofu"))
    examples = tofu.examples
    assert len(examples) == 4000 + 100 + 117
    assert tofu.stripped == (1124, 1125, 1284, 3869)
    assert examples[3869].answer.endswith("an important contributor to the field of health literature.")
    assert examples[100].question == examples[440].question == "What is the full name of the author?"
    assert examples[100].answer != examples[440].answer
    with_false_answers = [n for n, example in enumerate(examples[:4000]) if example.perturbed_answers]
    assert with_false_answers == [*range(400), *range(3600, 4000)]
    assert all(len(examples[n].perturbed_answers) == 5 for n in with_false_answers)
    assert sum(not example.answer.isascii() for example in examples[:4000]) == 442
    assert (examples[3869].author, examples[3869].position) == (193, 9)


def test_smaller_forget_files_are_the_tail_of_forget10(shared_folder):
    """Why only `forget10_perturbed` is read."""
    folder = shared_folder / "data" / "tofu"
    ten, five, one = (
        (folder / f"forget{share}_perturbed.json").read_text(encoding="utf-8").splitlines()
        for share in ("10", "05", "01")
    )
    assert ten[200:] == five and ten[360:] == one


def test_published_file_cut_short(shared_folder, tmp_path):
    """A download that broke off in the middle of a row."""
    copy = shutil.copytree(shared_folder / "data" / "tofu", tmp_path / "tofu", copy_function=shutil.copyfile)
    copy.chmod(0o755)
    whole = (copy / "full.json").read_bytes()
    (copy / "full.json").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ValueError, match=r"full\.json, line \d+: not a whole JSON object"):
        read_tofu(str(copy))
