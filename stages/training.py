"""How the target and every retained model are trained: the same recipe from the same start, on different rows."""

import shutil
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from stages.encoded_rows import EXAMPLES_FILE, TOKENIZER_FOLDER, encoded_rows
from stages.external_source import located
from stages.params import Model, Tokenization, TrainTarget
from stages.scratch import scratch_folder
from stages.tables.examples import EXAMPLES
from stages.tables.forget_sets import ids_of

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from efface.tokenization import Encoding
    from efface.training.checkpoint import LossPoint


def train(
    stage: str,
    item: str | None,
    section: TrainTarget,
    *,
    tokenization: Tokenization,
    seed: int,
    forget_file: Path | None,
    model_folder: Path,
    curve_file: Path,
) -> None:
    """Trains on every training row that the forget set does not name; a killed run continues at its last epoch.

    Raises: ValueError where the forget set cannot be left out (see `forget_and_retain`), a row cannot be encoded, or
    training diverges.
    """
    from efface.models import load_tokenizer, save_model

    rows = training_rows() if forget_file is None else forget_and_retain(training_rows(), forget_file)[1]
    used = [str(section), str(tokenization), seed]
    deps = [EXAMPLES_FILE, TOKENIZER_FOLDER, *([forget_file] if forget_file else [])]
    with scratch_folder(stage, item, used, deps) as folder:
        tokenizer = load_tokenizer(TOKENIZER_FOLDER)
        model = start_model(section.model, tokenizer, max_length=tokenization.max_length, seed=seed)
        encodings = encoded_rows(rows, tokenizer, tokenization)
        label = f"{stage} {item}" if item else stage
        model, curve = _fitted(model, encodings, section, tokenizer, seed, folder / "checkpoint", label)
        save_model(model, folder / "model")
        _write_curve(folder / "loss.csv", curve)
        _move(folder / "model", model_folder)
        _move(folder / "loss.csv", curve_file)


def start_model(
    source: Model, tokenizer: "PreTrainedTokenizerBase", *, max_length: int, seed: int
) -> "PreTrainedModel":
    """The model before it has seen the data: random weights of the given shape, or a pretrained one, on the GPU if any.

    Raises: ValueError where the tokenizer has more entries than a pretrained model.
    """
    import torch

    from efface.models import load_model, scratch_llama

    device = "cuda" if torch.cuda.is_available() else "cpu"
    if source.source != "scratch":
        model = load_model(located(source.source), device=device)
        entries = model.config.vocab_size
        if len(tokenizer) > entries:
            raise ValueError(
                f"tokenizer of {len(tokenizer)} entries, model {source.source} has {entries}; "
                "set prepare_data.tokenizer.source to this model"
            )
        return model
    shape = source.model_dump(include={"layers", "hidden", "heads", "kv_heads", "intermediate", "tie_embeddings"})
    marks: dict[str, Any] = {f"{mark}_id": getattr(tokenizer, f"{mark}_token_id") for mark in ("bos", "eos", "pad")}
    model = scratch_llama(**shape, **marks, vocab_size=len(tokenizer), seed=seed, max_positions=max(512, max_length))
    return model.to(torch.device(device))  # pyright: ignore[reportArgumentType]


def training_rows() -> pl.DataFrame:
    """The rows of the target's training run, by id; real authors and world facts among them, holdout rows never."""
    return EXAMPLES.scan(EXAMPLES_FILE).filter("trained").sort("id").collect()


def forget_and_retain(
    rows: pl.DataFrame, forget_file: Path, *, roles: Collection[str] = ("forget",)
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The training rows that a forget set names in one of these roles, and all others.

    Raises: ValueError where the set is empty, names a row that is not trained on, or leaves no row about an author.
    """
    ids = ids_of(forget_file, *roles).unique()
    if ids.is_empty():
        raise ValueError(f"{forget_file}: the forget set is empty; expected at least one id")
    unknown = set(ids) - set(rows["id"])
    if unknown:
        raise ValueError(f"{forget_file}: {_first(unknown)} not among the {len(rows)} training rows; make the set anew")
    forget, retain = rows.filter(pl.col("id").is_in(ids.implode())), rows.filter(~pl.col("id").is_in(ids.implode()))
    if retain.filter(pl.col("split") == "authors").is_empty():
        raise ValueError(
            f"{forget_file}: the forget set is every row about an author ({len(forget)}); nothing would be retained. "
            "Lower prepare_data.forget_set_size or use more of the corpus"
        )
    return forget, retain


def _fitted(
    model: "PreTrainedModel",
    encodings: list["Encoding"],
    section: TrainTarget,
    tokenizer: "PreTrainedTokenizerBase",
    seed: int,
    checkpoint_folder: Path,
    label: str,
) -> tuple["PreTrainedModel", list["LossPoint"]]:
    """The trained model, adapters merged into it, and its loss curve, which is empty for a model used as it is."""
    import torch

    from efface.models import linear_module_names
    from efface.tokenization import padding_id
    from efface.training.loop import answer_loss, finetune, scored_tokens, shuffled_batches
    from efface.training.lora import attach_lora, merge_lora

    if section.model.untrained:
        return model, []
    trained = attach_lora(model, section.lora, modules=linear_module_names(model), seed=seed) if section.lora else model
    curve = finetune(
        trained,
        shuffled_batches(encodings, batch_size=section.batch_size, pad_id=padding_id(tokenizer), seed=seed),
        answer_loss,
        epochs=section.epochs,
        learning_rate=section.learning_rate,
        weight_decay=section.weight_decay,
        warmup_fraction=section.warmup_fraction,
        gradient_accumulation=section.gradient_accumulation,
        autocast_dtype=torch.bfloat16 if section.dtype == "bfloat16" else None,
        weight_of=scored_tokens,
        checkpoint_folder=checkpoint_folder,
        seed=seed,
        progress=label,
    )
    return (merge_lora(trained) if section.lora else model), curve  # pyright: ignore[reportArgumentType]


def _write_curve(path: Path, curve: list["LossPoint"]) -> None:
    points = {name: [getattr(point, name) for point in curve] for name in ("step", "epoch", "loss")}
    pl.DataFrame(points, schema={"step": pl.Int64, "epoch": pl.Int64, "loss": pl.Float64}).write_csv(path)


def _move(source: Path, destination: Path) -> None:
    """Puts finished work in its place, over what an earlier run left there."""
    destination.parent.mkdir(parents=True, exist_ok=True)
    if destination.is_dir():
        shutil.rmtree(destination)
    source.replace(destination)


def _first(ids: Collection[int], count: int = 5) -> str:
    listed = sorted(ids)
    return f"ids {listed[:count]}{' and more are' if len(listed) > count else ' are'}"
