"""What each stage would cost for a model and a corpus that no CPU can carry, from rates measured on one that it can.

`python -m benchmarks.scale [--model FOLDER_OR_GGUF]` measures how many times a forward pass each kind of work takes per
token (the dearest part of every stage is one of these), and multiplies by parameters and tokens of the plans below, a
GPU's arithmetic rate, and the share of it that is reached. Ratios are measured; rates and shares are assumptions.
"""

import argparse
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedModel

from efface.circuits.attribution import edge_scores
from efface.editing.band import sequential_edits
from efface.editing.grom import Grom
from efface.models import anatomy, load_model
from efface.tokenization import Batch, Encoding, length_sorted_batches
from efface.training.loop import answer_loss

ROWS, TOKENS, ANSWER, STEPS = 16, 64, 32, 5
SMALL = LlamaConfig(
    vocab_size=8000, hidden_size=512, intermediate_size=1408, num_hidden_layers=8, num_attention_heads=8,
    num_key_value_heads=4, max_position_embeddings=256, tie_word_embeddings=True,
)  # fmt: skip
# One H100: matrix products in bfloat16, float32 (TF32 off) and float64 on tensor cores, as its maker states them.
RATES = {"bfloat16": 989e12, "float32": 67e12, "float64": 67e12}  # FLOP/s
REACHED, EURO_PER_HOUR = 0.35, 3.0
GENERATED_AT_ONCE = 64
MEMORY_BYTES_PER_SECOND = 3.35e12


@dataclass(frozen=True)
class Plan:
    """A model and a corpus on paper."""

    name: str
    parameters: float
    layers: int
    hidden: int
    heads: int
    intermediate: int
    examples: int
    pool: int
    forget: int
    tokens: int = 80
    answer: int = 50
    epochs: int = 5
    sets: int = 3
    band: int = 5


PLANS = (
    Plan("8B × 4000", 8.0e9, 32, 4096, 32, 14336, examples=4000, pool=400, forget=200),
    Plan("70B × 4000", 70.6e9, 80, 8192, 64, 28672, examples=4000, pool=400, forget=200),
)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--model", help="a folder or a GGUF file; a random 8-layer Llama without")
    arguments.add_argument("--threads", type=int, default=2)
    chosen = arguments.parse_args()
    torch.set_num_threads(chosen.threads)
    torch.manual_seed(0)
    model = load_model(chosen.model) if chosen.model else LlamaForCausalLM(SMALL).eval()
    ratios = measured_ratios(model)
    print("| work, per token | × forward pass |\n|---|---|")
    for name, ratio in ratios.items():
        print(f"| {name} | {ratio:.2f} |")
    for plan in PLANS:
        print(f"\n{plan.name}\n\n| stage | GPU hours | € | memory |\n|---|---|---|---|")
        for stage, (seconds, memory) in costs(plan, ratios).items():
            print(f"| {stage} | {seconds / 3600:.2f} | {seconds / 3600 * EURO_PER_HOUR:.2f} | {memory / 1e9:.0f} GB |")


def measured_ratios(model: PreTrainedModel) -> dict[str, float]:
    """Seconds per token of each kind of work over those of a forward pass, all in float32 here."""
    rows = [_row(model, seed) for seed in range(ROWS)]
    ((_, batch),) = length_sorted_batches(rows, batch_size=ROWS, pad_id=0)
    works: dict[str, Callable[[], object]] = {
        "forward pass": lambda: _forward(model, batch),
        "training step": lambda: _training_step(model, batch),
        "EAP-IG, five steps": lambda: edge_scores(
            model, batch, method="eap_ig_inputs", intervention="patching", metric="neg_prob", steps=STEPS,
            corrupted_ids=batch.input_ids.flip(0),
        ),
        "GROM of the last two layers": lambda: _grom(model, rows),
    }  # fmt: skip
    seconds = {name: min(_seconds(work) for _ in range(3)) for name, work in works.items()}
    return {name: value / seconds["forward pass"] for name, value in seconds.items()}


def costs(plan: Plan, ratios: Mapping[str, float]) -> dict[str, tuple[float, float]]:
    """Stage → seconds on one GPU (or the same work on several), and bytes it needs at once beside its workspace."""
    weights, widest = 4 * plan.parameters, plan.intermediate

    def seconds(tokens: float, work: str, dtype: str) -> float:
        return 2 * plan.parameters * tokens * ratios[work] / (RATES[dtype] * REACHED)

    trained = plan.examples * plan.tokens * plan.epochs
    keys = plan.examples * plan.answer
    gram = plan.band * 2 * keys * widest**2 / (RATES["float64"] * REACHED)
    solve = plan.band * widest**3 / 3 / (RATES["float64"] * REACHED)
    # A decoding step reads every weight once, whatever the batch.
    decode = 400 * 200 / GENERATED_AT_ONCE * 2 * plan.parameters / (MEMORY_BYTES_PER_SECOND * REACHED)
    scored = 1000 * 7 * plan.tokens
    nodes = plan.layers * (plan.heads + 1) + 1
    circuit_memory = 2 * nodes * plan.tokens * plan.hidden * 4
    full, adapters = 16 * plan.parameters, weights + 0.05 * plan.parameters
    return {
        "train_target, all weights": (seconds(trained, "training step", "bfloat16"), full),
        "train_target, LoRA": (seconds(trained, "training step", "bfloat16"), adapters),
        f"train_retained, {plan.sets} sets": (plan.sets * seconds(trained, "training step", "bfloat16"), adapters),
        f"extract_activations, {plan.band} layers": (
            seconds(plan.examples * plan.tokens, "forward pass", "float32") + gram,
            weights + plan.band * 4 * widest**2 * 8,
        ),
        "select_anchors, 160 candidates, 8 runs of 10 epochs": (
            seconds(160 * plan.tokens * 2 * 8 * 10, "training step", "bfloat16"), adapters,
        ),
        "extract_circuits, pool": (
            seconds(plan.pool * plan.tokens, "EAP-IG, five steps", "float32"), weights + circuit_memory,
        ),
        "edit: GROM": (
            seconds(2 * plan.forget * plan.tokens, "GROM of the last two layers", "float32") + gram / 4 + solve,
            weights + 2 * widest**2 * 8,
        ),
        "edit: a gradient method, 10 epochs": (
            seconds(plan.forget * 2 * plan.tokens * 10, "training step", "bfloat16"), adapters,
        ),
        "evaluate, one model": (seconds(scored, "forward pass", "bfloat16") + decode, 2 * plan.parameters),
        "quantize_attack, one model, three schemes": (
            3 * seconds(scored, "forward pass", "bfloat16"), 2 * plan.parameters,
        ),
    }  # fmt: skip


def _row(model: PreTrainedModel, seed: int) -> Encoding:
    draws = torch.Generator().manual_seed(seed)
    ids = torch.randint(3, model.config.vocab_size, (TOKENS,), generator=draws)
    return Encoding(tuple(ids.tolist()), TOKENS - ANSWER)


@torch.inference_mode()
def _forward(model: PreTrainedModel, batch: Batch) -> None:
    model(input_ids=batch.input_ids, attention_mask=batch.attention_mask, use_cache=False)


def _training_step(model: PreTrainedModel, batch: Batch) -> None:
    """Forward and backward pass and AdamW's update, at a rate of 0, so that the model stays what it is."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.0, weight_decay=0.0)
    answer_loss(model, batch).backward()
    optimizer.step()
    model.zero_grad(set_to_none=True)


def _grom(model: PreTrainedModel, rows: list[Encoding]) -> None:
    """Half of the rows forgotten, half retained."""
    last = len(anatomy(model).layers)
    unembedding = anatomy(model).unembedding.weight.detach()
    alpha = torch.ones(len(unembedding), dtype=torch.float64)

    def solve(_name, keys, retained):
        return Grom(influence=False).residual_edit(keys, retained, alpha=alpha, unembedding=unembedding)

    half = len(rows) // 2
    sequential_edits(
        model, rows[:half], rows[half:], layers=(last - 2, last - 1), head=False, solve=solve, batch_size=half, pad_id=0
    )


def _seconds(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


if __name__ == "__main__":
    main()
