"""Fine-tunes one model for a few steps and measures its forget set again: does what it forgot come back?"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import polars as pl
from tqdm import tqdm

from efface.evaluation.aggregate import author_resamples
from efface.evaluation.comparison import RECOVERABLE, Scores, Split, split_values
from efface.evaluation.recovery import recovery_estimate
from stages.comparison_inputs import read_splits
from stages.encoded_rows import EXAMPLES_FILE, TOKENIZER_FOLDER, encoded_rows
from stages.evaluated_examples import evaluated_examples
from stages.named_model import load_named_model
from stages.params import ModelItem, Params, Relearning, load_params
from stages.scratch import scratch_folder
from stages.tables.examples import EXAMPLES
from stages.tables.forget_sets import forgotten_ids
from stages.tables.relearned import RELEARNED
from stages.tables.results import RESULTS

OUTPUT = Path("data/relearn_attack")


def main(item: str | None = None) -> None:
    params = load_params()
    if item is None or item not in params.relearned:
        raise ValueError(f"relearn_attack {item!r}: no such model; params.relearned has {sorted(params.relearned)}")
    named = params.relearned[item]
    if named.set is None:
        raise ValueError(f"relearned: {item} names no set; say which forget set it is attacked for")
    forget_file = Path("data/forget_sets") / f"{named.set}.parquet"
    split = read_splits(named.set, params)["forget"]
    used = {name: attack_rows(name, attack, forget_file, split, params) for name, attack in _attacks(params)}
    settings = [str(params.relearn_attack), str(params.evaluate), str(params.tokenization), params.seed]
    deps = [named.base, named.weights, EXAMPLES_FILE, TOKENIZER_FOLDER, forget_file]
    with scratch_folder("relearn_attack", item, settings, deps) as folder:
        shards = {
            (name, steps): folder / f"{name}-{steps}.parquet" for name, a in _attacks(params) for steps in a.steps
        }
        for (name, steps), shard in tqdm(shards.items(), desc=f"relearn_attack {item}"):
            if not shard.is_file():
                RELEARNED.write(shard, _attacked(item, named, name, steps, used[name], split, params))
        with RELEARNED.writer(OUTPUT / item / "results.parquet") as writer:
            for shard in shards.values():
                writer.append(RELEARNED.read(shard))
    rates = pl.DataFrame(list(recovery_rows(item, split, params)), infer_schema_length=None)
    rates.write_csv(OUTPUT / item / "recovery.csv")


def attack_rows(name: str, attack: Relearning, forget_file: Path, split: Split, params: Params) -> pl.DataFrame:
    """The rows that an attack trains on, drawn by the seed; from the forget set, it leaves others to measure.

    Raises: ValueError where there are not enough.
    """
    rows = EXAMPLES.read(EXAMPLES_FILE).sort("id")
    forgotten = forgotten_ids(forget_file).implode()
    rows = rows.filter(pl.col("id").is_in(forgotten) if attack.source == "forget" else pl.col("split") == attack.source)
    drawn = np.random.default_rng([params.seed, 11]).permutation(len(rows))[: attack.examples]
    chosen = rows[sorted(drawn.tolist())]
    if len(chosen) < attack.examples or not set(split.ids) - set(chosen["id"]):
        raise ValueError(
            f"relearn_attack: {name} wants {attack.examples} rows of {attack.source}, which has {len(rows)}; "
            "of the forget set at least one has to stay unseen. Lower `examples`"
        )
    return chosen


def recovery_rows(item: str, split: Split, params: Params) -> Iterator[dict]:
    """How much came back after each attack, on the forget rows that it did not train on."""
    before, target = (_scores(RESULTS.read(f"data/evaluate/{name}/results.parquet")) for name in (item, "target"))
    authors = dict(EXAMPLES.read(EXAMPLES_FILE).select("id", "author").iter_rows())
    frame = RELEARNED.read(OUTPUT / item / "results.parquet")
    for (attack, steps), rows in frame.group_by("attack", "steps", maintain_order=True):
        after, seen = _scores(rows), set(rows.filter("used")["id"])
        ids = tuple(example for example in split.ids if example not in seen)
        draws = author_resamples(
            np.array([authors[example] for example in ids]), draws=params.compare.bootstrap, seed=[params.seed, 0]
        )
        unseen = Split("forget", ids, draws)
        for metric in RECOVERABLE:
            if metric in after:
                start, end, goal = (split_values(scores, unseen, metric) for scores in (before, after, target))
                found = recovery_estimate(
                    start,
                    end,
                    goal,
                    draws,
                    minimal_gap=params.compare.minimal_gap,
                    confidence=params.compare.confidence,
                )
                means = {"before": float(start.mean()), "after": float(end.mean()), "target": float(goal.mean())}
                rate = {"recovery_rate": found.value, "ci_low": found.low, "ci_high": found.high, "n": found.n}
                yield {"attack": attack, "steps": steps, "metric": metric, **means, **rate}


def _attacked(
    item: str, named: ModelItem, name: str, steps: int, rows: pl.DataFrame, split: Split, params: Params
) -> pl.DataFrame:
    """Rows of RELEARNED after one attack, which starts from the model as it is."""
    from efface.evaluation.suite import example_scores
    from efface.models import load_tokenizer
    from efface.relearning import relearn
    from efface.tokenization import padding_id

    attack, tokenizer = params.relearn_attack[name], load_tokenizer(TOKENIZER_FOLDER)
    model = load_named_model(item, named)
    relearn(
        model,
        encoded_rows(rows, tokenizer, params.tokenization),
        steps=steps,
        batch_size=attack.batch_size,
        learning_rate=attack.learning_rate,
        pad_id=padding_id(tokenizer),
        seed=params.seed,
    )
    settings = params.tokenization.model_dump() | params.evaluate.model_dump(exclude={"dtype", "wrong_answers"})
    evaluated = evaluated_examples()
    examples = {example: evaluated[example] for example in split.ids}
    scores = example_scores(model, tokenizer, examples, **settings, wrong_answers=False)
    found = pl.DataFrame(
        [(each.id, each.metric, each.value) for each in scores], ["id", "metric", "value"], orient="row"
    )
    return found.with_columns(
        model=pl.lit(item), attack=pl.lit(name), steps=steps, used=pl.col("id").is_in(rows["id"].implode())
    )


def _attacks(params: Params) -> list[tuple[str, Relearning]]:
    return sorted(params.relearn_attack.items())


def _scores(rows: pl.DataFrame) -> Scores:
    return {str(metric): dict(of.select("id", "value").iter_rows()) for (metric,), of in rows.group_by("metric")}
