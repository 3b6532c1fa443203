"""Loads a registered model back and measures it again: `python -m stages check_registered grom_no_leak-default`.

An auditor's proof that a version of the registry is the model whose metrics are recorded beside it.
"""

import json
from pathlib import Path

from stages.register_models import RECEIPTS
from stages.registry import load_registered, recorded_metrics

TOKENIZER = Path("data/prepare_data/tokenizer")
METRIC = "none.forget_probability"
TOLERANCE = 1e-4


def main(item: str | None = None) -> None:
    receipts = json.loads(RECEIPTS.read_text()) if RECEIPTS.is_file() else {}
    if item is None or item not in receipts:
        raise ValueError(f"{item}: not registered; known: {', '.join(receipts) or 'none'} (stage register_models)")
    name, version = receipts[item]["name"], receipts[item]["version"]
    recorded = recorded_metrics(name, version)
    if METRIC not in recorded:
        raise ValueError(
            f"{name} version {version}: metric {METRIC} is not recorded; run `dvc repro` and register again"
        )
    found = forget_probability(name, version, item)
    line = f"{name} version {version}: p(forget) is {found:.6f}, recorded {recorded[METRIC]:.6f}"
    if abs(found - recorded[METRIC]) > TOLERANCE:
        raise ValueError(f"{line}; they should agree within {TOLERANCE}")
    print(line)


def forget_probability(name: str, version: int, model: str) -> float:
    """Mean probability of the forget set's answers under a registered model, in [0, 1]."""
    import torch

    from efface.evaluation.suite import example_scores
    from efface.models import load_tokenizer
    from stages.evaluated_examples import evaluated_examples
    from stages.params import load_params
    from stages.tables.forget_sets import forgotten_ids

    params = load_params()
    forget_set = params.models[model].set or params.sets[0]
    ids = set(forgotten_ids(f"data/forget_sets/{forget_set}.parquet"))
    scores = example_scores(
        load_registered(name, version).to(getattr(torch, params.evaluate.dtype)),
        load_tokenizer(TOKENIZER),
        {number: example for number, example in evaluated_examples().items() if number in ids},
        **params.tokenization.model_dump(),
        **{**params.evaluate.model_dump(exclude={"dtype"}), "generate": False},
    )
    values = [score.value for score in scores if score.metric == "probability"]
    return sum(values) / len(values)
