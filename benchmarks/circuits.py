"""Seconds and memory per example of EAP-IG over inputs (5 steps): ours, one example at a time, and the floor.

`python -m benchmarks.circuits [--model FOLDER_OR_GGUF …]` measures a random 8-layer, 256-wide Llama with grouped keys
(vocabulary 2000, 48 tokens, 32 examples), then every model given, each in a process of its own, at one thread and two.
The floor is the passes that the method cannot do without, with gradients of activations only, at the best batch size.
"""

import argparse
import itertools
import multiprocessing
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedModel

from benchmarks.memory import peak_mebibytes
from efface.circuits.attribution import edge_scores
from efface.circuits.metrics import METRICS
from efface.circuits.recorded_run import frozen_parameters
from efface.models import load_model
from efface.tokenization import IGNORED, Batch

STEPS = 5
TOKENS, ANSWER = 48, 24
MID_SIZE = LlamaConfig(
    vocab_size=2000, hidden_size=256, intermediate_size=704, num_hidden_layers=8, num_attention_heads=8,
    num_key_value_heads=4, max_position_embeddings=128, tie_word_embeddings=True,
)  # fmt: skip
REPEATS = 3


@dataclass(frozen=True)
class Case:
    """One measurement: which model, which way, how many examples at once, on how many threads."""

    model: str
    way: str
    batch_size: int
    threads: int
    examples: int


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--model", action="append", default=[], help="a folder or GGUF file, besides the random one")
    arguments.add_argument("--examples", type=int, default=32)
    arguments.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    chosen = arguments.parse_args()
    print("| model | threads | way | batch | s / example | × floor | peak MiB |\n|---|---|---|---|---|---|---|")
    for model, threads in itertools.product(["mid-size", *chosen.model], chosen.threads):
        examples = chosen.examples if model == "mid-size" else max(2, chosen.examples // 4)
        sizes = [size for size in (2, 4, 8, 16) if size <= examples]
        cases = [Case(model, "one at a time", 1, threads, examples)]
        cases += [Case(model, way, size, threads, examples) for way in ("floor", "ours") for size in sizes]
        best: dict[str, tuple[float, float, Case]] = {}
        for case in cases:
            seconds, mebibytes = measured(case)
            best[case.way] = min(best.get(case.way, (float("inf"), 0.0, case)), (seconds, mebibytes, case), key=_time)
        for seconds, mebibytes, case in best.values():
            ratio = seconds / best["floor"][0]
            shown = f"| {model} | {threads} | {case.way} | {case.batch_size} "
            print(f"{shown}| {seconds:.4f} | {ratio:.2f} | {mebibytes:.0f} |", flush=True)
    for many in (1, 10):
        seconds, mebibytes = measured(Case("mid-size", "ours", 8, 2, many * chosen.examples), repeats=1)
        print(f"{many * chosen.examples} examples: {seconds:.4f} s / example, peak {mebibytes:.0f} MiB above the model")


def measured(case: Case, repeats: int = REPEATS) -> tuple[float, float]:
    """Best seconds per example of some repeats, and the peak of memory above what the loaded model needs, in MiB."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(_measure, (case, repeats))


def _measure(case: Case, repeats: int) -> tuple[float, float]:
    torch.set_num_threads(case.threads)
    model = _model(case.model)
    run = WAYS[case.way]
    before, times = peak_mebibytes(), []
    for _ in range(repeats):
        started = time.perf_counter()
        for first in range(0, case.examples, case.batch_size):
            run(model, *_pair(model, case.batch_size, seed=first))
        times.append(time.perf_counter() - started)
    return min(times) / case.examples, peak_mebibytes() - before


def _ours(model: PreTrainedModel, batch: Batch, corrupted_ids: torch.Tensor) -> None:
    edge_scores(
        model, batch, method="eap_ig_inputs", intervention="patching", metric="neg_prob", steps=STEPS,
        corrupted_ids=corrupted_ids,
    )  # fmt: skip


def _floor(model: PreTrainedModel, batch: Batch, corrupted_ids: torch.Tensor) -> None:
    """One clean forward pass, and STEPS forward and backward passes from the embeddings, nothing kept of them."""
    keywords = {"attention_mask": batch.attention_mask, "use_cache": False}
    answers = int((batch.labels >= 0).any(0).nonzero()[0]) - 1
    keywords["logits_to_keep"] = batch.input_ids.shape[1] - answers
    with frozen_parameters(model):
        embed = model.get_input_embeddings()
        clean, corrupted = embed(batch.input_ids).detach(), embed(corrupted_ids).detach()
        with torch.no_grad():
            model(inputs_embeds=clean, **keywords)
        for step in range(STEPS):
            start = (corrupted + step / STEPS * (clean - corrupted)).requires_grad_(True)
            logits = model(inputs_embeds=start, **keywords).logits
            metric = METRICS["neg_prob"](logits, batch.labels[:, answers:], None)
            torch.autograd.grad(metric.sum(), start)


WAYS: dict[str, Callable[[PreTrainedModel, Batch, torch.Tensor], None]] = {
    "ours": _ours,
    "one at a time": _ours,
    "floor": _floor,
}


def _model(name: str) -> PreTrainedModel:
    if name != "mid-size":
        return load_model(name).eval()
    torch.manual_seed(0)
    return LlamaForCausalLM(MID_SIZE).eval()


def _pair(model: PreTrainedModel, size: int, *, seed: int) -> tuple[Batch, torch.Tensor]:
    """Random questions with an answer each, and the corrupted tokens: other questions before the same answers."""
    draws = torch.Generator().manual_seed(seed)
    ids = torch.randint(3, model.config.vocab_size, (2, size, TOKENS), generator=draws)
    ids[1, :, -ANSWER:] = ids[0, :, -ANSWER:]
    labels = ids[0].clone()
    labels[:, :-ANSWER] = IGNORED
    return Batch(ids[0], torch.ones_like(ids[0]), labels), ids[1]


def _time(found: tuple[float, float, Case]) -> float:
    return found[0]


if __name__ == "__main__":
    main()
