"""zsRE and CounterFact as published, and as they arrive when something went wrong on the way."""

import json

import pytest

from efface.corpora.facts import FABRICATED_FACTS, Fact, asked, read_counterfact, read_zsre

ZSRE = {
    "subject": "Dunmere Works", "src": "What does Dunmere Works make?", "pred": "bells", "alt": "kites",
    "rephrase": "What is made by Dunmere Works?", "answers": ["copper bells", "bells"], "cond": "",
    "loc": "nq question: who mills paper", "loc_ans": "Harlow Mill",
}  # fmt: skip
FLAT = {
    "case_id": 7, "prompt": "Dunmere Works makes", "target_new": "kites", "subject": "Dunmere Works",
    "ground_truth": "bells", "rephrase_prompt": "The product of Dunmere Works is",
    "locality_prompt": "Orland Forge makes", "locality_ground_truth": "bells",
}  # fmt: skip
NESTED = {
    "case_id": 7,
    "requested_rewrite": {
        "prompt": "{} makes", "subject": "Dunmere Works", "relation_id": "P1",
        "target_true": {"str": "bells", "id": "Q1"}, "target_new": {"str": "kites", "id": "Q2"},
    },
    "paraphrase_prompts": ["The product of Dunmere Works is", "Dunmere Works, maker of"],
    "neighborhood_prompts": ["Orland Forge makes"],
}  # fmt: skip


def written(folder, *rows) -> str:
    (folder / "rows.json").write_text(json.dumps(rows))
    return str(folder / "rows.json")


def test_zsre_row(tmp_path):
    expected = Fact(
        "What does Dunmere Works make?", "Dunmere Works", "copper bells", "kites",
        ("What is made by Dunmere Works?",), (("nq question: who mills paper?", "Harlow Mill"),),
    )  # fmt: skip
    assert read_zsre(written(tmp_path, ZSRE, ZSRE)) == (expected, expected)


def test_counterfact_rows_flat_and_nested(tmp_path):
    flat, nested = read_counterfact(written(tmp_path, FLAT, NESTED))
    assert flat == Fact(
        "Dunmere Works makes", "Dunmere Works", "bells", "kites",
        ("The product of Dunmere Works is",), (("Orland Forge makes", "bells"),),
    )  # fmt: skip
    assert nested.paraphrases == (*flat.paraphrases, "Dunmere Works, maker of")
    assert (nested.prompt, nested.target_true, nested.target_new) == (flat.prompt, flat.target_true, flat.target_new)
    assert nested.neighbours == flat.neighbours


def test_folder_and_json_lines_give_the_same_facts(tmp_path):
    facts = read_zsre(written(tmp_path, ZSRE, ZSRE))
    assert read_zsre(tmp_path) == facts
    (tmp_path / "rows.json").write_text(f"{json.dumps(ZSRE)}\n{json.dumps(ZSRE)}\n")
    assert read_zsre(tmp_path) == facts
    (tmp_path / "second.json").write_text("[]")
    with pytest.raises(FileNotFoundError, match=r"\['rows.json', 'second.json'\] as .json files, expected one"):
        read_zsre(tmp_path)


def test_hub_gives_the_same_rows_as_the_file(tmp_path, monkeypatch):
    datasets = pytest.importorskip("datasets")
    monkeypatch.setattr(
        datasets, "load_dataset", lambda name, _, split: [ZSRE] if (name, split) == ("a/b", "train") else []
    )
    assert read_zsre("a/b") == read_zsre(written(tmp_path, ZSRE))

    def offline(*_, **__):
        raise ConnectionError("no network")

    monkeypatch.setattr(datasets, "load_dataset", offline)
    with pytest.raises(FileNotFoundError, match=r"a/b default train: not reachable \(no network\)"):
        read_zsre("a/b")
    with pytest.raises(FileNotFoundError, match=r"absent\.json: no such file"):
        read_zsre(tmp_path / "absent.json")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"subject": " "}, r"row 1: 'subject' is ' ', expected non-empty text.*Download"),
        ({"subject": "Harlow Mill"}, r"row 1: fact .*'Harlow Mill' does not stand in the prompt.*drop the fact"),
        ({"answers": []}, r"row 1: 'answers' has 0 texts, expected 1"),
        ({"answers": "bells"}, r"row 1: 'answers' is 'bells', expected a list"),
        ({"loc": None}, r"row 1: 'loc' is None, expected non-empty text"),
    ],
)
def test_malformed_rows_are_named(tmp_path, changes, message):
    with pytest.raises(ValueError, match=message):
        read_zsre(written(tmp_path, ZSRE, ZSRE | changes))


def test_malformed_files_are_named(tmp_path):
    (tmp_path / "rows.json").write_text('[{"src": ')
    with pytest.raises(ValueError, match=r"rows\.json: not a whole JSON list"):
        read_zsre(tmp_path)
    with pytest.raises(ValueError, match=r"row 0: no key"):
        read_zsre(written(tmp_path, "text"))
    with pytest.raises(ValueError, match=r"row 0: 'requested_rewrite' is 'x', expected an object"):
        read_counterfact(written(tmp_path, {"requested_rewrite": "x"}))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (("It makes", "", "bells"), "subject '', expected text"),
        (("It makes", "Dunmere", "bells"), "subject 'Dunmere' does not stand in the prompt"),
        (("It makes", "It", " "), "target_true ' ', expected text"),
    ],
)
def test_impossible_facts_are_refused(fields, message):
    with pytest.raises(ValueError, match=message):
        Fact(*fields)


def test_asking_in_a_form_keeps_everything_else():
    fact = FABRICATED_FACTS[0]
    questioned = asked(fact, "Question: {}\nAnswer:")
    assert questioned.prompt == "Question: The capital of Velmora is\nAnswer:"
    assert questioned.paraphrases == ("Question: Velmora is governed from\nAnswer:",)
    assert questioned.neighbours == (("Question: The capital of Quenland is\nAnswer:", "Brill"),)
    assert asked(fact, "{}") == fact


def test_published_rows(shared_folder):
    zsre = read_zsre(shared_folder / "data" / "zsre")
    counterfact = read_counterfact(shared_folder / "data" / "counterfact")
    assert len(zsre) == len(counterfact) == 1000
    assert (zsre[0].subject, zsre[0].target_true, zsre[0].target_new) == ("UniFirst", "uniform", "unmanned aircraft")
    assert all(fact.neighbours[0][0].startswith("nq question: ") for fact in zsre)
    assert (counterfact[0].prompt, counterfact[0].target_true) == (
        "David Robinson professionally plays the sport",
        "basketball",
    )
