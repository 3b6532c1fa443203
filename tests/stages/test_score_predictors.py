"""Predictors of every pool row: complete, finite, and equal to what the library says."""

from pathlib import Path
from types import SimpleNamespace

import polars as pl
import pytest

from efface.difficulty.confounds import nearest_other_similarities
from efface.difficulty.mrd import Mrd
from efface.models import file_md5, load_tokenizer, save_model
from stages import score_predictors
from stages.encoded_rows import EXAMPLES_FILE
from stages.tables.examples import EXAMPLES
from stages.tables.predictors import PREDICTORS
from stages.training import start_model

OUTPUT = Path("data/score_predictors/predictors.parquet")
NAMES = {
    *("mrd", "answer_nll", "gradient_norm", "prompt_tokens", "answer_tokens", "question_position"),
    *("lexical_similarity_retain", "lexical_similarity_pool"),
}


@pytest.fixture
def params(training_checkout: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    monkeypatch.setattr(score_predictors, "load_params", lambda: training_checkout)
    tokenizer = load_tokenizer("data/prepare_data/tokenizer")
    save_model(start_model(training_checkout.train_target.model, tokenizer, max_length=96, seed=1), "models/target")
    training_checkout.score_predictors = Mrd(draws=2, sigma=1e-3, batch_size=4)
    return training_checkout


def test_every_predictor_of_every_pool_row(params):
    score_predictors.main()
    table = PREDICTORS.read(OUTPUT)
    pool = EXAMPLES.read(EXAMPLES_FILE).filter("pool").sort("id")
    assert set(table["predictor"]) == NAMES
    for name in NAMES:
        rows = table.filter(predictor=name)
        assert rows["id"].to_list() == pool["id"].to_list() and rows["value"].is_finite().all()
    wide = table.pivot("predictor", index="id", values="value")
    assert wide["question_position"].to_list() == pool["position"].to_list()
    texts = (pool["question"] + " " + pool["answer"]).to_list()
    assert wide["lexical_similarity_pool"].to_list() == pytest.approx(nearest_other_similarities(texts).tolist())
    assert (wide["gradient_norm"] > 0).all() and (wide["answer_nll"] > 0).all() and (wide["mrd"] > 0).all()
    assert wide["lexical_similarity_retain"].is_between(0, 1).all()


def test_a_second_run_writes_the_same_bytes(params):
    written = []
    for _ in range(2):
        score_predictors.main()
        written.append(file_md5(OUTPUT))
    assert written[0] == written[1]


def test_the_seed_moves_mrd_alone(params):
    score_predictors.main()
    before = PREDICTORS.read(OUTPUT)
    params.seed = 5
    score_predictors.main()
    changed = before.filter(pl.Series(before["value"] != PREDICTORS.read(OUTPUT)["value"]))
    assert set(changed["predictor"]) == {"mrd"}
