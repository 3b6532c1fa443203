"""Trains a copy on the forget set and one on retained rows, and keeps what each did to the weights, in low rank."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl

from efface.corpora.roles import draw
from efface.task_matrices.factors import TaskMatrices, TaskMatrix, layer_shares
from stages.encoded_rows import EXAMPLES_FILE, TOKENIZER_FOLDER, encoded_rows
from stages.external_source import located
from stages.params import Model, load_params
from stages.scratch import scratch_folder
from stages.tables.energies import ENERGIES
from stages.training import forget_and_retain, start_model, training_rows

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

TARGET = Path("models/target")


def main(item: str) -> None:
    from efface.models import load_tokenizer
    from efface.tokenization import padding_id

    params = load_params()
    settings, forget_file = params.build_task_matrices, Path("data/forget_sets") / f"{item}.parquet"
    forget, retain = forget_and_retain(training_rows(), forget_file)
    rows = {"forget": forget, "retain": retain_sample(retain, settings.retain_rows, seed=params.seed)}
    used = [str(settings), str(params.tokenization), str(params.train_target.model), params.seed]
    with scratch_folder(
        "build_task_matrices", item, used, [EXAMPLES_FILE, TOKENIZER_FOLDER, TARGET, forget_file]
    ) as folder:
        tokenizer = load_tokenizer(TOKENIZER_FOLDER)
        model = starting_point(
            settings, params.train_target.model, tokenizer, params.tokenization.max_length, params.seed
        )
        matrices = {
            partition: settings.trained(
                model,
                encoded_rows(part, tokenizer, params.tokenization),
                pad_id=padding_id(tokenizer),
                seed=params.seed,
                checkpoint_folder=folder / partition,
                progress=f"build_task_matrices {item}: {partition}",
            )
            for partition, part in rows.items()
        }
        write(matrices, Path("data/build_task_matrices") / item)


def retain_sample(retain: pl.DataFrame, count: int, *, seed: int) -> pl.DataFrame:
    """At most `count` retained rows by seed, none of which measures utility: no edit sees what it is tested on.

    Raises: ValueError where every retained row measures utility.
    """
    others = retain.filter(~pl.col("utility"))
    if others.is_empty():
        raise ValueError("every retained row measures utility, none is left for T_r; lower prepare_data.utility_rows")
    ids = draw(others["id"].to_list(), min(count, len(others)), seed=seed, purpose="retain rows of task matrices")
    return others.filter(pl.col("id").is_in(ids)).sort("id")


def starting_point(
    settings: TaskMatrices, source: Model, tokenizer: "PreTrainedTokenizerBase", max_length: int, seed: int
) -> "PreTrainedModel":
    """The model that both copies start from.

    Raises: ValueError where the target's base is asked for and not known.
    """
    import torch

    from efface.models import load_model

    device = "cuda" if torch.cuda.is_available() else "cpu"
    if settings.start == "target":
        return load_model(TARGET, device=device)
    if settings.base is not None:
        return load_model(located(settings.base), device=device)
    if source.untrained:
        raise ValueError(
            f"build_task_matrices.start is base, but {source.source} was not trained here; name the model it was "
            "trained from as build_task_matrices.base, or set start: target"
        )
    return start_model(source, tokenizer, max_length=max_length, seed=seed)


def write(matrices: Mapping[str, Mapping[str, TaskMatrix]], folder: Path) -> None:
    """Factors as `<module>/<partition>/left` and `…/right`, and the table of their sizes."""
    from safetensors.torch import save_file

    folder.mkdir(parents=True, exist_ok=True)
    tensors = {
        f"{module}/{partition}/{side}": getattr(matrix, side).cpu()
        for partition, modules in matrices.items()
        for module, matrix in modules.items()
        for side in ("left", "right")
    }
    save_file(tensors, folder / "factors.safetensors")
    (folder / "factors.safetensors").chmod(0o644)
    ENERGIES.write(folder / "energies.parquet", energies(matrices))


def energies(matrices: Mapping[str, Mapping[str, TaskMatrix]]) -> pl.DataFrame:
    """One row per partition and module."""
    from efface.models import layer_of

    rows = []
    for partition, modules in matrices.items():
        shares = layer_shares({module: matrix.frobenius_norm for module, matrix in modules.items()})
        for module, matrix in modules.items():
            layer = layer_of(module)
            rows.append(
                {
                    "module": module,
                    "layer": layer,
                    "partition": partition,
                    "frobenius_norm": matrix.frobenius_norm,
                    "energy_share": shares[layer] if layer is not None else None,
                    "rank": matrix.rank,
                }
            )
    return pl.DataFrame(rows)
