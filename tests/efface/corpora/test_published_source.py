"""Where rows come from, and what is said when they do not come."""

import json

import pytest

from efface.corpora.published_source import read_json_rows, source_rows

ROWS = [{"text": "one"}, {"text": "zwei"}]


def rows(source, file="part/forget"):
    return source_rows(source, file, configuration="part", split="forget", remedy="Download it.")


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "part").mkdir()
    return tmp_path


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("forget.json", json.dumps(ROWS)),
        ("forget.json", "\n".join(json.dumps(row) for row in ROWS)),
        ("forget.jsonl", "\n".join(json.dumps(row) for row in ROWS)),
        ("forget.json", json.dumps([row["text"] for row in ROWS])),
    ],
)
def test_lists_lines_and_lists_of_texts_are_the_same_rows(folder, name, content):
    (folder / "part" / name).write_text(content)
    assert [dict(row.fields) for row in rows(folder)] == ROWS


def test_hub_gives_the_same_rows_as_the_files(tmp_path, tmp_path_factory, monkeypatch):
    """`datasets` reads a folder laid out like the Hub's repository through the code that reads the Hub."""
    datasets = pytest.importorskip("datasets")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path_factory.mktemp("cache"))
    (tmp_path / "data.json").write_text("\n".join(json.dumps(row) for row in ROWS))
    card = "configs:\n- config_name: part\n  data_files:\n  - split: forget\n    path: data.json"
    (tmp_path / "README.md").write_text(f"---\n{card}\n---\n")
    found = rows(tmp_path)
    assert [dict(row.fields) for row in found] == ROWS
    assert found[1].where.endswith("part forget, row 1")


def test_an_unreachable_hub_says_what_to_do(monkeypatch):
    datasets = pytest.importorskip("datasets")

    def offline(*_, **__):
        raise ConnectionError("no network")

    monkeypatch.setattr(datasets, "load_dataset", offline)
    with pytest.raises(FileNotFoundError, match=r"owner/name part forget: not reachable \(no network\).*Download it"):
        rows("owner/name")


def test_missing_places_are_named(folder):
    with pytest.raises(FileNotFoundError, match=r"no file part/forget\.json or part/forget\.jsonl in it\. Download it"):
        rows(folder)
    with pytest.raises(
        FileNotFoundError, match=r"absent: no such folder, and no name on the Hub, expected 'owner/name'"
    ):
        rows(folder / "absent")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[]", "an empty list, expected at least one row"),
        ("[1, 2]", "row 0: a JSON int, expected an object or a text"),
        ('[{"text": "cut', "not a whole JSON list"),
        ('{"text": "cut', "line 1: not a whole JSON object"),
        ("", "no rows, expected JSON lines"),
    ],
)
def test_broken_files_are_named(tmp_path, content, message):
    path = tmp_path / "rows.json"
    path.write_text(content)
    with pytest.raises(ValueError, match=rf"rows\.json.*{message}.*Download it"):
        read_json_rows(path, remedy="Download it.")
