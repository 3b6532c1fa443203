"""A Llama written out in loops, in float64, in which every edge can be patched: slow, sharing nothing with the package.

Every reader's input is the sum of its sources; share(u, v) of source u in it is replaced by u's baseline.
"""

import torch
from torch import Tensor
from transformers import LlamaForCausalLM


def literal_run(
    model: LlamaForCausalLM, ids: Tensor, share: Tensor, baseline: list[Tensor] | None = None
) -> tuple[Tensor, list[Tensor]]:
    """Logits of one example and the output of every source, in the order of the graph's rows.

    `share` is [source, destination]; without `baseline` it must be zero.
    """
    weights = {name: value.double() for name, value in model.state_dict().items()}
    config = model.config
    heads, groups = config.num_attention_heads, config.num_attention_heads // config.num_key_value_heads
    size = config.head_dim
    sources = [weights["model.embed_tokens.weight"][ids]]

    def reads(column: int) -> Tensor:
        total = torch.stack(sources).sum(0)
        for row, source in enumerate(sources):
            if share[row, column]:
                total = total + share[row, column] * (baseline[row] - source)
        return total

    def norm(x: Tensor, name: str) -> Tensor:
        return x / (x.square().mean(-1, keepdim=True) + config.rms_norm_eps).sqrt() * weights[f"{name}.weight"]

    def project(x: Tensor, name: str, head: int) -> Tensor:
        return x @ weights[f"{name}.weight"][head * size : (head + 1) * size].T

    column = 0
    for layer in range(config.num_hidden_layers):
        prefix = f"model.layers.{layer}"
        outputs = []
        for head in range(heads):
            x_q, x_k, x_v = (norm(reads(column + i * heads + head), f"{prefix}.input_layernorm") for i in range(3))
            query = rotated(project(x_q, f"{prefix}.self_attn.q_proj", head), config)
            key = rotated(project(x_k, f"{prefix}.self_attn.k_proj", head // groups), config)
            value = project(x_v, f"{prefix}.self_attn.v_proj", head // groups)
            scores = query @ key.T / size**0.5
            future = torch.ones_like(scores, dtype=torch.bool).triu(1)
            mixed = scores.masked_fill(future, float("-inf")).softmax(-1) @ value
            writes = weights[f"{prefix}.self_attn.o_proj.weight"][:, head * size : (head + 1) * size]
            outputs.append(mixed @ writes.T)
        sources += outputs
        column += 3 * heads
        x = norm(reads(column), f"{prefix}.post_attention_layernorm")
        gate, up, down = (weights[f"{prefix}.mlp.{name}_proj.weight"] for name in ("gate", "up", "down"))
        sources.append((torch.nn.functional.silu(x @ gate.T) * (x @ up.T)) @ down.T)
        column += 1
    return norm(reads(column), "model.norm") @ weights["lm_head.weight"].T, sources


def rotated(x: Tensor, config) -> Tensor:
    """Rotary position embedding, half-split layout."""
    half = x.shape[-1] // 2
    frequencies = config.rope_parameters["rope_theta"] ** (-torch.arange(half, dtype=torch.float64) / half)
    angles = torch.arange(len(x), dtype=torch.float64)[:, None] * frequencies
    a, b = x[:, :half], x[:, half:]
    return torch.cat([a * angles.cos() - b * angles.sin(), b * angles.cos() + a * angles.sin()], dim=-1)


def literal_neg_nll(logits: Tensor, labels: Tensor) -> Tensor:
    """Mean log-probability of the labelled tokens."""
    found = [logits[t - 1].log_softmax(-1)[labels[t]] for t in range(1, len(labels)) if labels[t] >= 0]
    return torch.stack(found).mean()
