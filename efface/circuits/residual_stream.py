"""Who writes to a model's residual stream and who reads from it, as linear maps, for each family of models.

Everything here is structure and weights; the passes are in `recorded_run.py`.
"""

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from transformers import GPT2LMHeadModel, PhiForCausalLM, PreTrainedModel
from transformers.pytorch_utils import Conv1D

from efface.circuits.graph import Graph
from efface.models import anatomy
from efface.training.losses import at_least_float32

PROBE_TOLERANCE = 0.02


@dataclass(frozen=True)
class Block:
    """The modules of one layer that hooks sit on; `projections` are q, k, v, or one module for all three."""

    attention_norm: nn.Module
    mlp_norm: nn.Module
    attention: nn.Module
    mlp: nn.Module
    projections: tuple[nn.Module, ...]
    output: nn.Module


@dataclass(frozen=True)
class ResidualStream:
    """Embedding, blocks and final norm of a pre-norm decoder, and the shape of its heads."""

    embedding: nn.Module
    blocks: tuple[Block, ...]
    final_norm: nn.Module
    heads: int
    kv_heads: int
    head_dim: int
    parallel: bool

    @property
    def graph(self) -> Graph:
        return Graph(len(self.blocks), self.heads, self.parallel)


@dataclass(frozen=True)
class Norm:
    """LayerNorm (`centred`) or RMSNorm: gain ⊙ (x − mean(x)) / √(mean((x − mean(x))²) + ε) + shift."""

    gain: Float[Tensor, " width"]
    shift: Float[Tensor, " width"]
    epsilon: float
    centred: bool


def residual_stream(model: PreTrainedModel) -> ResidualStream:
    """The writers and readers of this model.

    Raises: ValueError naming what is missing where the architecture is not known to be a plain pre-norm decoder.
    """
    if isinstance(model, GPT2LMHeadModel):
        stream = _gpt2(model)
    elif isinstance(model, PhiForCausalLM):
        stream = _phi(model)
    else:
        stream = _llama_like(model)
    for block in stream.blocks:
        for module in (*block.projections, block.output):
            _weight(module)
        _check_norm(block.attention_norm)
        _check_norm(block.mlp_norm)
    return stream


def norm_of(module: nn.Module) -> Norm:
    """Gain, shift and ε of a norm module.

    Raises: ValueError where the module has no `weight` or no ε.
    """
    weight = getattr(module, "weight", None)
    epsilon = getattr(module, "variance_epsilon", getattr(module, "eps", None))
    if weight is None or epsilon is None:
        raise ValueError(
            f"{type(module).__name__} has no weight or no epsilon; known: LayerNorm and RMSNorm with a gain"
        )
    gain = at_least_float32(weight.detach())
    if type(module).__name__.startswith("Gemma"):
        gain = 1 + gain
    bias = getattr(module, "bias", None)
    shift = torch.zeros_like(gain) if bias is None else at_least_float32(bias.detach())
    return Norm(gain, shift, float(epsilon), centred=isinstance(module, nn.LayerNorm))


def normalised(
    x: Float[Tensor, "*place width"], norm: Norm
) -> tuple[Float[Tensor, "*place width"], Float[Tensor, "*place 1"]]:
    """x over its scale, before gain and shift, and 1 / scale."""
    x = at_least_float32(x)
    if norm.centred:
        x = x - x.mean(-1, keepdim=True)
    inverse_scale = (x.square().mean(-1, keepdim=True) + norm.epsilon).rsqrt()
    return x * inverse_scale, inverse_scale


def norm_backward(
    gradient: Float[Tensor, "*place width"], x: Float[Tensor, "*place width"], norm: Norm
) -> Float[Tensor, "*place width"]:
    """Gradient at the input x of a norm from the one at its output.

    v = gain ⊙ gradient, centred for LayerNorm; (v − x̂ mean(x̂ ⊙ v)) / scale with x̂ = x / scale.
    """
    x_hat, inverse_scale = normalised(x, norm)
    v = at_least_float32(gradient) * norm.gain
    if norm.centred:
        v = v - v.mean(-1, keepdim=True)
    return (v - x_hat * (x_hat * v).mean(-1, keepdim=True)) * inverse_scale


def reader_weights(stream: ResidualStream, layer: int) -> Float[Tensor, "read head head_dim width"]:
    """Query, key and value map of every query head, the norm's gain folded in; grouped keys and values are repeated.

    A head's projection is y = weights · x̂ + offsets, x̂ the residual stream over its scale.
    """
    block = stream.blocks[layer]
    whole = at_least_float32(torch.cat([_weight(module) for module in block.projections]))
    return _per_query_head(whole, stream) * norm_of(block.attention_norm).gain


def reader_offsets(stream: ResidualStream, layer: int) -> Float[Tensor, "read head head_dim"]:
    """The part of every query, key and value that does not depend on the input: W shift + bias."""
    block = stream.blocks[layer]
    shift = norm_of(block.attention_norm).shift
    offsets = [at_least_float32(_weight(part)) @ shift + at_least_float32(_bias(part)) for part in block.projections]
    return _per_query_head(torch.cat(offsets), stream)


def writers(stream: ResidualStream, layer: int) -> Float[Tensor, "head head_dim width"]:
    """What each head adds to the residual stream per unit of its output, without the output bias."""
    weight = at_least_float32(_weight(stream.blocks[layer].output))
    return weight.T.unflatten(0, (stream.heads, stream.head_dim))


def _per_query_head(
    whole: Float[Tensor, "output *width"], stream: ResidualStream
) -> Float[Tensor, "read head head_dim *width"]:
    """Rows of q, k and v after one another, as one map per query head."""
    sizes = [count * stream.head_dim for count in (stream.heads, stream.kv_heads, stream.kv_heads)]
    parts = [part.unflatten(0, (-1, stream.head_dim)) for part in whole.split(sizes)]
    return torch.stack([part.repeat_interleave(stream.heads // part.shape[0], dim=0) for part in parts])


def _weight(module: nn.Module) -> Float[Tensor, "output input"]:
    if isinstance(module, Conv1D):
        return module.weight.detach().T
    if type(module) is nn.Linear:
        return module.weight.detach()
    raise ValueError(f"{type(module).__name__}: circuits need plain linear maps; merge adapters, dequantize first")


def _bias(module: nn.Module) -> Float[Tensor, " output"]:
    bias = getattr(module, "bias", None)
    return _weight(module).new_zeros(_weight(module).shape[0]) if bias is None else bias.detach()


def _check_norm(module: nn.Module) -> None:
    """Raises: ValueError where the module does not compute what `Norm` says it does."""
    norm = norm_of(module)
    x = torch.linspace(-2, 3, len(norm.gain), device=norm.gain.device, dtype=next(module.parameters()).dtype)
    with torch.no_grad():
        expected = at_least_float32(module(x[None])[0])
    if not expected.isfinite().all():
        raise ValueError(f"{type(module).__name__}: its output is not finite; the model has NaN or infinite weights")
    found = normalised(x, norm)[0] * norm.gain + norm.shift
    if (found - expected).norm() > PROBE_TOLERANCE * expected.norm():
        raise ValueError(f"{type(module).__name__} is neither LayerNorm nor RMSNorm; known: those two")


def _llama_like(model: PreTrainedModel) -> ResidualStream:
    parts = anatomy(model)
    blocks = tuple(
        Block(
            attention_norm=layer.attention_norm,
            mlp_norm=layer.mlp_norm,
            attention=layer.attention,
            mlp=layer.mlp,
            projections=(layer.query, layer.key, layer.value),
            output=layer.output,
        )
        for layer in parts.layers
    )
    return ResidualStream(
        parts.embedding, blocks, parts.final_norm, parts.n_heads, parts.n_kv_heads, parts.head_dim, parts.parallel
    )


def _gpt2(model: GPT2LMHeadModel) -> ResidualStream:
    decoder: Any = model.transformer
    heads = model.config.num_attention_heads
    if model.config.add_cross_attention:
        raise ValueError("GPT-2 with cross-attention: circuits know decoders without an encoder only")
    blocks = tuple(
        Block(
            attention_norm=block.ln_1,
            mlp_norm=block.ln_2,
            attention=block.attn,
            mlp=block.mlp,
            projections=(block.attn.c_attn,),
            output=block.attn.c_proj,
        )
        for block in decoder.h
    )
    head_dim = model.config.hidden_size // heads
    return ResidualStream(decoder.wte, blocks, decoder.ln_f, heads, heads, head_dim, parallel=False)


def _phi(model: PhiForCausalLM) -> ResidualStream:
    decoder: Any = model.model
    config: Any = model.config
    blocks = tuple(
        Block(
            attention_norm=block.input_layernorm,
            mlp_norm=block.input_layernorm,
            attention=block.self_attn,
            mlp=block.mlp,
            projections=(block.self_attn.q_proj, block.self_attn.k_proj, block.self_attn.v_proj),
            output=block.self_attn.dense,
        )
        for block in decoder.layers
    )
    heads, kv_heads = config.num_attention_heads, config.num_key_value_heads or config.num_attention_heads
    head_dim = config.hidden_size // heads
    return ResidualStream(
        decoder.embed_tokens, blocks, decoder.final_layernorm, heads, kv_heads, head_dim, parallel=True
    )
