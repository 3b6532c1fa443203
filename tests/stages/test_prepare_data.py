"""`prepare_data` on a small corpus: what it writes, that it writes it again the same, and what it refuses."""

import json
import sys
from types import SimpleNamespace

import polars as pl
import pytest

from efface.corpora.selection import CorpusSelection
from efface.corpora.vocabulary import PretrainedTokenizer, TrainedTokenizer
from stages import prepare_data
from stages.tables.examples import EXAMPLES
from stages.tables.forget_sets import FORGET_SETS

SMALL = {
    "authors": 6, "questions_per_author": 4, "holdout_authors": 2, "pool_rows": 16, "anchor_candidates": 6,
    "utility_rows": 5, "forget_set_size": 4, "random_sets": 1, "real_authors": 8, "world_facts": 9,
    "tokenizer": TrainedTokenizer(vocab_size=400),
}  # fmt: skip


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Runs the stage in an empty folder with these parameters and returns the folder."""

    def run_with(*, folder="run", max_length=256, **changes):
        params = SimpleNamespace(
            seed=0,
            tokenization=SimpleNamespace(template="plain", max_length=max_length),
            prepare_data=CorpusSelection(**(SMALL | changes)),
        )
        monkeypatch.setitem(sys.modules, "stages.params", SimpleNamespace(load_params=lambda: params))
        (tmp_path / folder).mkdir(exist_ok=True)
        monkeypatch.chdir(tmp_path / folder)
        prepare_data.main()
        return tmp_path / folder

    return run_with


def test_tables_and_tokenizer(run):
    folder = run()
    examples = EXAMPLES.read(folder / "data/prepare_data/examples.parquet")
    assert examples["id"].to_list() == list(range(6 * 4 + 2 * 4)) + list(range(32, 40)) + list(range(92, 101))
    by_split = examples.group_by("split").agg(pl.len(), pl.col("trained", "pool", "anchor_candidate", "utility").sum())
    assert {row[0]: row[1:] for row in by_split.iter_rows()} == {
        "authors": (24, 24, 16, 6, 5),
        "holdout": (8, 0, 0, 0, 0),
        "real_authors": (8, 8, 0, 0, 8),
        "world_facts": (9, 9, 0, 0, 9),
    }
    assert examples.filter(pl.col("split") == "world_facts")["paraphrased_answer"].null_count() == 9
    assert examples["content_hash"].n_unique() == len(examples)

    scored = set(examples.filter(pl.col("pool") & ~pl.col("anchor_candidate"))["id"])
    for name in ("default", "random_1"):
        forget = FORGET_SETS.read(folder / f"data/forget_sets/{name}.parquet")
        assert len(forget) == 4 and set(forget["id"]) <= scored and set(forget["role"]) == {"forget"}

    tokenizer = json.loads((folder / "data/prepare_data/tokenizer/tokenizer.json").read_text())
    assert len(tokenizer["model"]["vocab"]) == 400


def test_same_parameters_same_bytes(run):
    one, two = run(folder="one"), run(folder="two")
    files = sorted(path.relative_to(one) for path in one.rglob("*") if path.is_file())
    assert files == sorted(path.relative_to(two) for path in two.rglob("*") if path.is_file())
    for file in files:
        assert (one / file).read_bytes() == (two / file).read_bytes(), file


def test_pretrained_tokenizer_is_copied(run):
    source = run(folder="source") / "data/prepare_data/tokenizer"
    folder = run(folder="copy", tokenizer=PretrainedTokenizer(kind="pretrained", source=str(source)))
    copied = folder / "data/prepare_data/tokenizer/tokenizer.json"
    assert json.loads(copied.read_text()) == json.loads((source / "tokenizer.json").read_text())


def test_answer_that_does_not_fit_names_its_row(run):
    with pytest.raises(ValueError, match=r"row 0 \(authors\): .*max_length"):
        run(max_length=5)


def test_answer_without_tokens_names_its_row(run, monkeypatch):
    """A tokenizer to which an answer is nothing: its text is there, its tokens are not."""
    import efface.tokenization

    monkeypatch.setattr(
        efface.tokenization, "_without_special", lambda tokenizer, text: () if "Nairobi" in text else (5,)
    )
    with pytest.raises(ValueError, match=r"row 92 \(world_facts\): answer 'Nairobi'.*has no tokens"):
        run()


def test_tofu_rows_keep_their_published_numbers(run, shared_folder):
    folder = run(
        corpus="tofu", source=str(shared_folder / "data" / "tofu"), author_ranges=((0, 3), (190, 200)), pool_rows=80,
        anchor_candidates=40, pool_author_range=(190, 200), utility_author_range=(0, 3), utility_rows=20,
    )  # fmt: skip
    examples = EXAMPLES.read(folder / "data/prepare_data/examples.parquet")
    authors = examples.filter(pl.col("author") >= 0)
    assert authors["id"].to_list() == [*range(60), *range(3800, 4000)]
    assert (authors["id"] == authors["author"].cast(pl.Int64) * 20 + authors["position"]).all()
    assert examples.filter("pool")["author"].min() >= 190
    utility = examples.filter(pl.col("utility") & (pl.col("author") >= 0))
    assert len(utility) == 20 and utility["id"].max() < 60
    holdout = examples.filter(pl.col("split") == "holdout")
    assert holdout["author"].n_unique() == 2 and not holdout["trained"].any() and holdout["author"].min() >= 190
    assert examples.filter(pl.col("id") == 3869)["answer"].item().endswith("health literature.")
