"""Measures what else is known of each pool row before unlearning: MRD, loss, gradient, lengths, likeness."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import polars as pl
import torch
from tqdm import tqdm

from efface.difficulty.confounds import (
    answer_token_counts,
    nearest_other_similarities,
    nearest_similarities,
    prompt_token_counts,
)
from efface.difficulty.gradient_norm import gradient_norms
from efface.evaluation.scoring import score_answers
from efface.models import load_model, load_tokenizer
from efface.tokenization import Encoding, padding_id
from stages.encoded_rows import EXAMPLES_FILE, TOKENIZER_FOLDER, encoded_rows
from stages.params import Params, load_params
from stages.tables.examples import EXAMPLES
from stages.tables.predictors import PREDICTORS

TARGET = Path("models/target")
OUTPUT = Path("data/score_predictors/predictors.parquet")


def main(item: str | None = None) -> None:
    params = load_params()
    rows = EXAMPLES.scan(EXAMPLES_FILE).filter("trained").sort("id").collect()
    pool, retained = rows.filter("pool"), rows.filter(~pl.col("pool"))
    tokenizer = load_tokenizer(TOKENIZER_FOLDER)
    encodings = encoded_rows(pool, tokenizer, params.tokenization)
    measured = _of_model(encodings, params, padding_id(tokenizer)) | _of_text(pool, retained, encodings)
    frames = [
        pl.DataFrame({"id": pool["id"], "predictor": name, "value": pl.Series(values, dtype=pl.Float64)})
        for name, values in measured.items()
    ]
    PREDICTORS.write(OUTPUT, pl.concat(frames))


def _of_model(encodings: Sequence[Encoding], params: Params, pad_id: int) -> dict[str, Sequence[float]]:
    """What the target shows of each row."""
    settings = params.score_predictors
    model = load_model(TARGET, device="cuda" if torch.cuda.is_available() else "cpu")
    scores = score_answers(model, encodings, batch_size=settings.batch_size, pad_id=pad_id, label="answer_nll")
    bars = {name: partial(tqdm, desc=name) for name in ("mrd", "gradient_norm")}
    return {
        "mrd": settings.scores(model, encodings, pad_id=pad_id, seed=params.seed, progress=bars["mrd"]).tolist(),
        "answer_nll": [score.nll for score in scores],
        "gradient_norm": gradient_norms(model, encodings, pad_id=pad_id, progress=bars["gradient_norm"]).tolist(),
    }


def _of_text(pool: pl.DataFrame, retained: pl.DataFrame, encodings: Sequence[Encoding]) -> dict[str, Sequence[float]]:
    """What question and answer alone show, beside the rows that stay and the rest of the pool."""
    texts, others = ([" ".join(pair) for pair in part.select("question", "answer").rows()] for part in (pool, retained))
    return {
        "prompt_tokens": prompt_token_counts(encodings),
        "answer_tokens": answer_token_counts(encodings),
        "lexical_similarity_retain": nearest_similarities(texts, others).tolist(),
        "lexical_similarity_pool": nearest_other_similarities(texts).tolist(),
        "question_position": pool["position"].to_list(),
    }
