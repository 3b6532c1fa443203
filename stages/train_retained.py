"""Trains the gold standard: the target's recipe and seed, from the same start, without the forget set."""

from pathlib import Path

from stages.params import load_params
from stages.training import train


def main(item: str) -> None:
    params = load_params()
    if params.train_target.model.untrained:
        raise ValueError(
            f"train_retained {item}: the target was not trained here (train_target.model.untrained), so no retained "
            "model can be trained like it; remove the set from `retained` and its model from `models`"
        )
    train(
        "train_retained",
        item,
        params.train_target,
        tokenization=params.tokenization,
        seed=params.seed,
        forget_file=Path("data/forget_sets") / f"{item}.parquet",
        model_folder=Path("models/retained") / item,
        curve_file=Path("data/train_retained") / item / "loss.csv",
    )
