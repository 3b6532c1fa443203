"""A checkout in an empty folder: a corpus of fourteen short rows, its tokenizer, and one forget set."""

from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from types import SimpleNamespace

import polars as pl
import pytest

from efface.corpora.vocabulary import train_byte_bpe
from efface.task_matrices.factors import TaskMatrices
from stages.params import Model, Tokenization, TrainTarget
from stages.tables.examples import EXAMPLES
from stages.tables.forget_sets import FORGET_SETS

SHAPE = {"layers": 2, "hidden": 32, "heads": 4, "kv_heads": 2, "intermediate": 48, "tie_embeddings": True}
FORGET = [2, 5, 7]


@pytest.fixture
def write_forget_set() -> Callable[[str, list[int]], Path]:
    """Writes a forget set of the current checkout."""

    def write(name: str, ids: list[int]) -> Path:
        path = Path("data/forget_sets") / f"{name}.parquet"
        rows = pl.DataFrame({"id": ids, "role": ["forget"] * len(ids)}, schema={"id": pl.Int64, "role": pl.String})
        FORGET_SETS.write(path, rows)
        return path

    return write


@pytest.fixture
def training_checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write_forget_set) -> SimpleNamespace:
    """Parameters like those of `load_params`, with the working directory inside the checkout."""
    monkeypatch.chdir(tmp_path)
    examples = [example_row(number) for number in range(14)]
    EXAMPLES.write("data/prepare_data/examples.parquet", pl.DataFrame(examples, schema_overrides={"author": pl.Int32}))
    texts = [f"Question: {row['question']}\nAnswer: {row['answer']}" for row in examples]
    train_byte_bpe(texts, vocab_size=300).save_pretrained("data/prepare_data/tokenizer")
    write_forget_set("default", FORGET)
    return SimpleNamespace(
        seed=0,
        tokenization=Tokenization(template="plain", max_length=96),
        train_target=TrainTarget(
            model=Model(source="scratch", **SHAPE), epochs=3, batch_size=4, learning_rate=5e-3, gradient_accumulation=2
        ),
        build_task_matrices=TaskMatrices(retain_rows=4, epochs=2, batch_size=4, learning_rate=1e-3, rank=3),
    )


def example_row(number: int) -> dict:
    """Rows 0–9 ask about authors (9 measures utility), 10–11 about true facts; 12–13 are held out."""
    split = "authors" if number < 10 else ("real_authors", "world_facts", "holdout", "holdout")[number - 10]
    question, answer = f"Who wrote book {number}?", f"Author number {number * 37 % 11} wrote it."
    return {
        "id": number,
        "content_hash": sha256(f"{question}\0{answer}".encode()).hexdigest(),
        "split": split,
        "author": number // 5 if split == "authors" else -1,
        "position": number % 5,
        "question": question,
        "answer": answer,
        "paraphrased_answer": None,
        "perturbed_answers": [],
        "trained": split != "holdout",
        "pool": number < 8,
        "anchor_candidate": False,
        "utility": number in (9, 10, 11),
    }
