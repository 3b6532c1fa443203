"""Anchors and the losses that chose them, on a tiny model: what is written, what is refused, what a kill leaves."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import polars as pl
import pytest

from efface.difficulty.anchors import AnchorSelection, BilevelSchedule
from efface.models import file_md5, load_tokenizer, save_model
from efface.unlearning.methods import GradDiff, Npo
from stages import select_anchors
from stages.encoded_rows import EXAMPLES_FILE
from stages.tables.anchors import ALL_RUNS, ANCHORS
from stages.tables.examples import EXAMPLES
from stages.tables.votes import VOTES
from stages.training import start_model

FILES = [Path("data/select_anchors") / name for name in ("anchors.parquet", "votes.parquet")]
CANDIDATES = [0, 1, 3, 4, 6, 7]
STEPS = {"learning_rate": 1e-3, "epochs": 2, "batch_size": 3, "gradient_accumulation": 1}
SELECTION = AnchorSelection(size=2, methods=(GradDiff(**STEPS), Npo(**STEPS)), seeds=(0, 1))


@pytest.fixture
def params(training_checkout: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    monkeypatch.setattr(select_anchors, "load_params", lambda: training_checkout)
    EXAMPLES.write(
        EXAMPLES_FILE, EXAMPLES.read(EXAMPLES_FILE).with_columns(anchor_candidate=pl.col("id").is_in(CANDIDATES))
    )
    tokenizer = load_tokenizer("data/prepare_data/tokenizer")
    save_model(start_model(training_checkout.train_target.model, tokenizer, max_length=96, seed=1), "models/target")
    training_checkout.select_anchors = SELECTION
    return training_checkout


def test_anchors_follow_from_the_votes_that_are_kept_beside_them(params):
    select_anchors.main()
    anchors, votes = ANCHORS.read(FILES[0]), VOTES.read(FILES[1])
    assert len(votes) == 4 * len(CANDIDATES) and set(votes["id"]) == set(CANDIDATES)
    for (_, _), run in votes.group_by("method", "seed"):
        assert run.sort("loss_after")["rank"].to_list() == list(range(len(CANDIDATES)))
        assert run.sort("id")["loss_before"].equals(votes.head(len(CANDIDATES)).sort("id")["loss_before"])
    assert (votes["loss_after"] > votes["loss_before"]).any()
    together = anchors.filter(source=ALL_RUNS)
    assert together["role"].to_list() == ["easy"] * 2 + ["hard"] * 2 and together["id"].n_unique() == 4
    chosen = votes.with_columns(easy=pl.col("rank") >= len(CANDIDATES) - 2, hard=pl.col("rank") < 2)
    counts = chosen.group_by("id").agg(pl.col("easy", "hard").sum())
    for row in together.iter_rows(named=True):
        assert counts.filter(id=row["id"])[row["role"]].item() == row["votes"]
        assert row["agreed"] == (row["votes"] >= 2)


def test_each_run_keeps_its_own_choice(params):
    select_anchors.main()
    anchors, votes = ANCHORS.read(FILES[0]), VOTES.read(FILES[1])
    runs = {f"{method}-{seed}" for method in ("grad_diff", "npo") for seed in (0, 1)}
    assert set(anchors["source"]) == {ALL_RUNS, "grad_diff", "npo", *runs}
    for (source, role), rows in anchors.filter(pl.col("source").is_in(runs)).group_by("source", "role"):
        method, seed = source.rsplit("-", 1)
        run = votes.filter(method=method, seed=int(seed)).sort("loss_after", descending=role == "easy")
        assert rows["id"].to_list() == run["id"].head(2).to_list()


def test_a_second_run_writes_the_same_bytes_and_leaves_nothing_unfinished(params):
    written = []
    for _ in range(2):
        select_anchors.main()
        written.append([file_md5(path) for path in FILES])
    assert written[0] == written[1]
    assert not [path for path in Path(".scratch/select_anchors").iterdir() if path.is_dir()]


def test_after_a_kill_finished_runs_are_read_back(params, monkeypatch):
    select_anchors.main()
    expected = [file_md5(path) for path in FILES]
    done, run = [], select_anchors.anchor_run

    def killed_in_the_third_run(*arguments, **settings):
        if len(done) == 2:
            raise KeyboardInterrupt
        done.append(settings["seed"])
        return run(*arguments, **settings)

    monkeypatch.setattr(select_anchors, "anchor_run", killed_in_the_third_run)
    with pytest.raises(KeyboardInterrupt):
        select_anchors.main()
    monkeypatch.setattr(select_anchors, "anchor_run", lambda *a, **s: done.append(s["seed"]) or run(*a, **s))
    select_anchors.main()
    assert len(done) == 4
    assert [file_md5(path) for path in FILES] == expected


def test_the_bilevel_rule_runs_once_per_role(params):
    schedule = BilevelSchedule(epochs=2, learning_rate=0.1, unlearn_epochs=1, unlearn_learning_rate=1e-3)
    params.select_anchors = replace(SELECTION, rule="bilevel", methods=SELECTION.methods[:1], bilevel=schedule)
    select_anchors.main()
    anchors, votes = ANCHORS.read(FILES[0]), VOTES.read(FILES[1])
    assert votes["ranked_for"].unique().sort().to_list() == ["easy", "hard"] and len(votes) == 4 * len(CANDIDATES)
    assert anchors.filter(source=ALL_RUNS)["id"].n_unique() == 4


def test_too_few_candidates_are_refused_before_anything_runs(params, monkeypatch):
    monkeypatch.setattr(select_anchors, "anchor_run", None)
    params.select_anchors = replace(SELECTION, size=4)
    with pytest.raises(ValueError, match=r"4 easy and 4 hard anchors from 6 candidates: expected size 1 to 3; lower"):
        select_anchors.main()
