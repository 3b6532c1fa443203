"""Quantization schemes by name, and what each makes of one matrix: codes, scales, and the weights they stand for."""

import re
from dataclasses import dataclass, replace
from typing import Literal

import torch
from jaxtyping import Float, Shaped
from torch import Tensor
from torch.nn.functional import pad

NAMES = (
    "rtn_<bits>, nf4, fp4, int8, gguf_q4_0 or gguf_q8_0; rtn may be followed by _tensor, _channel or _group_<size> and "
    "by _restricted, any of them by _lm_head (as in rtn_4, rtn_3_group_128, rtn_8_channel_restricted, nf4_lm_head)"
)
RTN = re.compile(r"rtn_(?P<bits>\d+)(_(?P<scope>tensor|channel|group_(?P<size>\d+)))?(?P<restricted>_restricted)?")


@dataclass(frozen=True)
class RoundToNearest:
    """Round to nearest: one step per tensor, output row (`channel`), or `group_size` neighbours within an output row.

    `full`: the step is max|w| / 2^(bits−1) and codes run from −2^(bits−1) to 2^(bits−1) − 1, so that a largest weight
    that is positive is clipped by one step. `restricted`: the step is max|w| / (2^(bits−1) − 1), codes are symmetric,
    nothing is clipped. Where a row is no multiple of `group_size` its last group is shorter.
    """

    bits: int
    scope: Literal["tensor", "channel", "group"] = "group"
    group_size: int = 64
    code_range: Literal["full", "restricted"] = "full"
    lm_head: bool = False

    def __post_init__(self) -> None:
        if not 2 <= self.bits <= 8:
            raise ValueError(f"rtn bits is {self.bits}; expected 2 to 8")
        if self.group_size < 1:
            raise ValueError(f"rtn group size is {self.group_size}; expected at least 1")

    @property
    def lowest_code(self) -> int:
        return -self.highest_code - (self.code_range == "full")

    @property
    def highest_code(self) -> int:
        return 2 ** (self.bits - 1) - 1


@dataclass(frozen=True)
class Blockwise4Bit:
    """bitsandbytes' 4-bit data types: 16 values per block of the flattened matrix, scaled by its largest |w|."""

    data_type: Literal["nf4", "fp4"] = "nf4"
    block_size: int = 64
    lm_head: bool = False
    bits: int = 4


@dataclass(frozen=True)
class VectorwiseInt8:
    """bitsandbytes' LLM.int8(), arXiv:2208.07339: weights in 8 bits with one scale per output row.

    Inputs are quantized too, one scale per token; columns of a batch's inputs that hold a value of at least `threshold`
    stay in 16 bits, so that results depend a little on what is batched together.
    """

    threshold: float = 6.0
    lm_head: bool = False
    bits: int = 8


@dataclass(frozen=True)
class GgufBlocks:
    """llama.cpp's block types of a GGUF file: 32 neighbours of an output row share one step, kept in 16 bits."""

    bits: Literal[4, 8] = 4
    lm_head: bool = False
    block_size: int = 32


Scheme = RoundToNearest | Blockwise4Bit | VectorwiseInt8 | GgufBlocks


@dataclass(frozen=True)
class QuantizedWeight:
    """A quantized matrix.

    `codes`: whole numbers in its shape. `scales`: one per tensor, row, group or block. `values`: the weights that codes
    and scales stand for, in the type of the original.
    """

    codes: Shaped[Tensor, "out in"]
    scales: Float[Tensor, "..."]
    values: Float[Tensor, "out in"]


def scheme(name: str) -> Scheme:
    """The scheme of a name such as `rtn_4`, `nf4` or `rtn_8_channel_lm_head`.

    Raises: ValueError where no scheme has this name, saying how names are made.
    """
    lm_head = name.endswith("_lm_head")
    stem = name.removesuffix("_lm_head")
    if stem in ("nf4", "fp4"):
        return Blockwise4Bit(data_type="nf4" if stem == "nf4" else "fp4", lm_head=lm_head)
    if stem == "int8":
        return VectorwiseInt8(lm_head=lm_head)
    if stem in ("gguf_q4_0", "gguf_q8_0"):
        return GgufBlocks(bits=4 if stem == "gguf_q4_0" else 8, lm_head=lm_head)
    match = RTN.fullmatch(stem)
    if not match:
        raise ValueError(f"quantization scheme {name!r} is unknown; expected {NAMES}")
    rtn = RoundToNearest(
        int(match["bits"]), code_range="restricted" if match["restricted"] else "full", lm_head=lm_head
    )
    if match["size"]:
        return replace(rtn, group_size=int(match["size"]))
    return replace(rtn, scope=match["scope"]) if match["scope"] else rtn


def quantize_weight(weight: Float[Tensor, "out in"], scheme: Scheme) -> QuantizedWeight:
    """One matrix under a scheme.

    Raises: ValueError where a weight is not finite, or the matrix is empty.
    """
    if weight.numel() == 0 or not torch.isfinite(weight).all():
        shape = tuple(weight.shape)
        raise ValueError(f"a weight of shape {shape} is empty or not finite; mend the model before quantizing")
    weight = weight.detach()
    if isinstance(scheme, RoundToNearest):
        return round_to_nearest(weight, scheme)
    if isinstance(scheme, GgufBlocks):
        return gguf_blocks(weight, scheme)
    return blockwise_4bit(weight, scheme) if isinstance(scheme, Blockwise4Bit) else vectorwise_int8(weight)


def round_to_nearest(weight: Float[Tensor, "out in"], scheme: RoundToNearest) -> QuantizedWeight:
    """Codes clamp(round(w / Δ)) with Δ = max|w| / 2^(bits−1) per group, arXiv:2410.16454; computed in float32.

    A group of zeros has step 0 and codes 0. Ties round to the even code.

    Departs from the paper: codes are clamped to the signed range; its formula alone needs 2^bits + 1 of them.
    """
    grouped = _grouped(weight.float(), scheme)
    largest = grouped.abs().amax(dim=-1, keepdim=True)
    steps = largest / (scheme.highest_code + (scheme.code_range == "full"))
    ratios = grouped / torch.where(steps > 0, steps, 1.0)
    codes = ratios.round().clamp(scheme.lowest_code, scheme.highest_code)
    values = _ungrouped(codes * steps, weight.shape).to(weight.dtype)
    return QuantizedWeight(_ungrouped(codes, weight.shape).to(torch.int8), steps.squeeze(-1), values)


def blockwise_4bit(weight: Float[Tensor, "out in"], scheme: Blockwise4Bit) -> QuantizedWeight:
    """What bitsandbytes makes of the matrix; codes are indices into its 16 values, blocks may cross rows.

    Its module multiplies by just these weights, except on processors with AVX-512 BF16, where it also rounds inputs and
    scales to bfloat16. The matrix goes in as one row: with AVX-512, bitsandbytes 0.50 reads the wrong scale where a
    block crosses rows.
    """
    from bitsandbytes.functional import dequantize_4bit, quantize_4bit

    packed, state = quantize_4bit(weight.reshape(1, -1), blocksize=scheme.block_size, quant_type=scheme.data_type)
    halves = packed.flatten()
    codes = torch.stack([halves >> 4, halves & 15], dim=1).flatten()[: weight.numel()].view(weight.shape)
    return QuantizedWeight(codes, state.absmax, dequantize_4bit(packed, state).view(weight.shape))


def vectorwise_int8(weight: Float[Tensor, "out in"]) -> QuantizedWeight:
    """Codes round(127 w / max|w|) per output row, computed as bitsandbytes does from w in 16 bits."""
    from bitsandbytes.functional import int8_vectorwise_quant

    codes, largest, _ = int8_vectorwise_quant(weight.half())
    steps = largest / 127
    return QuantizedWeight(codes, steps, (codes * steps[:, None]).to(weight.dtype))


def gguf_blocks(weight: Float[Tensor, "out in"], scheme: GgufBlocks) -> QuantizedWeight:
    """What a GGUF file of type Q4_0 or Q8_0 keeps of the matrix, written and read back by llama.cpp's `gguf` package.

    Q8_0: codes round(w / Δ) with Δ = max|w| / 127. Q4_0: Δ = −w* / 8 with w* the weight of largest magnitude, codes
    ⌊w / Δ + 8.5⌋ up to 15, standing for (code − 8) Δ. A scheme quantizes the decoder's linear maps, and the LM head
    where it says so; llama.cpp's own program also quantizes the embedding.

    Raises: ValueError where a row is no multiple of 32, which llama.cpp would leave unquantized.
    """
    from gguf import GGMLQuantizationType, dequantize, quantize

    rows, columns = weight.shape
    if columns % scheme.block_size:
        raise ValueError(
            f"a weight has rows of {columns}; GGUF's blocks need a multiple of {scheme.block_size}; take an rtn scheme"
        )
    kind = GGMLQuantizationType.Q4_0 if scheme.bits == 4 else GGMLQuantizationType.Q8_0
    packed = quantize(weight.float().cpu().numpy(), kind)
    blocks = torch.from_numpy(packed).view(rows, columns // scheme.block_size, -1)
    steps, bytes_ = blocks[..., :2].contiguous().view(torch.float16), blocks[..., 2:].contiguous()
    codes = torch.cat([bytes_ & 15, bytes_ >> 4], dim=-1) if scheme.bits == 4 else bytes_.view(torch.int8)
    values = torch.from_numpy(dequantize(packed, kind)).to(weight)
    return QuantizedWeight(codes.reshape(rows, columns).to(weight.device), steps.flatten().to(weight.device), values)


def _grouped(weight: Float[Tensor, "out in"], scheme: RoundToNearest) -> Float[Tensor, "*groups member"]:
    """The weights with those that share a step along the last dimension; zeros fill a short last group."""
    if scheme.scope == "tensor":
        return weight.reshape(1, -1)
    if scheme.scope == "channel":
        return weight
    size = min(scheme.group_size, weight.shape[1])
    return pad(weight, (0, -weight.shape[1] % size)).unflatten(1, (-1, size))


def _ungrouped(grouped: Float[Tensor, "*groups member"], shape: torch.Size) -> Float[Tensor, "out in"]:
    """The inverse of `_grouped`."""
    return (
        grouped.reshape(shape) if grouped.numel() == shape.numel() else grouped.flatten(1)[:, : shape[1]].contiguous()
    )
