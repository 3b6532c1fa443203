"""Trains the model that knows everything, or fetches a published one."""

from pathlib import Path

from stages.params import load_params
from stages.training import train


def main(item: str | None = None) -> None:
    params = load_params()
    train(
        "train_target",
        item,
        params.train_target,
        tokenization=params.tokenization,
        seed=params.seed,
        forget_file=None,
        model_folder=Path("models/target"),
        curve_file=Path("data/train_target/loss.csv"),
    )
