"""Theorems of rounding to a grid, a slow literal twin, and bitsandbytes' own modules as the outside reference."""

import math

import pytest
import torch

from efface.quantization.schemes import (
    Blockwise4Bit,
    GgufBlocks,
    RoundToNearest,
    VectorwiseInt8,
    blockwise_4bit,
    gguf_blocks,
    quantize_weight,
    round_to_nearest,
    scheme,
    vectorwise_int8,
)

RTN = [
    RoundToNearest(bits, scope=scope, group_size=16, code_range=code_range)
    for bits in (8, 4, 3)
    for scope in ("tensor", "channel", "group")
    for code_range in ("full", "restricted")
]
FOUR_BIT = [Blockwise4Bit("nf4"), Blockwise4Bit("fp4")]
GGUF = [GgufBlocks(bits=4), GgufBlocks(bits=8)]


def random_weight(rows: int = 6, columns: int = 40, seed: int = 0) -> torch.Tensor:
    return torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed)) * 0.02


def groups_of(weight: torch.Tensor, rtn: RoundToNearest) -> list[list[tuple[int, int]]]:
    """Positions that share a step, written out."""
    rows, columns = weight.shape
    if rtn.scope == "tensor":
        return [[(row, column) for row in range(rows) for column in range(columns)]]
    width = columns if rtn.scope == "channel" else rtn.group_size
    return [
        [(row, column) for column in range(start, min(start + width, columns))]
        for row in range(rows)
        for start in range(0, columns, width)
    ]


def literal_round_to_nearest(weight: torch.Tensor, rtn: RoundToNearest) -> tuple[torch.Tensor, torch.Tensor]:
    """Codes and values, one weight after the other, in Python's own numbers."""
    codes, values = torch.zeros(weight.shape, dtype=torch.int8), torch.zeros(weight.shape, dtype=torch.float64)
    levels = 2 ** (rtn.bits - 1)
    lowest = -levels if rtn.code_range == "full" else -(levels - 1)
    for group in groups_of(weight, rtn):
        largest = max(abs(float(weight[place])) for place in group)
        step = largest / (levels if rtn.code_range == "full" else levels - 1)
        for place in group:
            code = round(float(weight[place]) / step) if step else 0
            codes[place] = min(max(code, lowest), levels - 1)
            values[place] = int(codes[place]) * step
    return codes, values


@pytest.mark.parametrize("rtn", RTN, ids=str)
def test_round_to_nearest_equals_its_literal_twin(rtn):
    weight = random_weight()
    quantized = round_to_nearest(weight, rtn)
    codes, values = literal_round_to_nearest(weight, rtn)
    assert torch.equal(quantized.codes, codes)
    torch.testing.assert_close(quantized.values.double(), values, rtol=1e-6, atol=0)
    assert quantized.scales.numel() == len(groups_of(weight, rtn))


def test_round_to_nearest_of_a_hand_computed_row():
    """Δ = 8 / 2³ = 1: 0.4 → 0, 2.5 → 2 (even), −3.6 → −4, 8 → 8, clamped to 7."""
    quantized = round_to_nearest(torch.tensor([[0.4, 2.5, -3.6, 8.0]]), RoundToNearest(4, scope="channel"))
    assert quantized.codes.tolist() == [[0, 2, -4, 7]]
    assert quantized.values.tolist() == [[0.0, 2.0, -4.0, 7.0]]
    assert quantized.scales.tolist() == [1.0]


@pytest.mark.parametrize("rtn", RTN, ids=str)
def test_error_is_at_most_half_a_step_and_one_step_where_clipped(rtn):
    weight = random_weight(seed=1)
    quantized = round_to_nearest(weight, rtn)
    largest = {place: max(abs(float(weight[p])) for p in group) for group in groups_of(weight, rtn) for place in group}
    for place, most in largest.items():
        step = most / (2 ** (rtn.bits - 1) - (rtn.code_range == "restricted"))
        clipped = rtn.code_range == "full" and float(weight[place]) > (2 ** (rtn.bits - 1) - 0.5) * step
        error = abs(float(weight[place]) - float(quantized.values[place]))
        assert error <= (1 if clipped else 0.5) * step * (1 + 1e-5)


@pytest.mark.parametrize("rtn", RTN, ids=str)
def test_codes_stay_in_the_signed_range(rtn):
    weight = random_weight(seed=2) * torch.logspace(-3, 3, 40)
    codes = round_to_nearest(weight, rtn).codes
    lowest = -(2 ** (rtn.bits - 1)) + (rtn.code_range == "restricted")
    assert lowest == rtn.lowest_code and codes.min() >= lowest and codes.max() <= 2 ** (rtn.bits - 1) - 1
    for group in groups_of(weight, rtn):
        assert len({int(codes[place]) for place in group}) <= 2**rtn.bits


@pytest.mark.parametrize("bits", [8, 4, 3])
@pytest.mark.parametrize("scope", ["tensor", "channel", "group"])
def test_restricted_rounding_is_idempotent(bits, scope):
    rtn = RoundToNearest(bits, scope=scope, group_size=16, code_range="restricted")
    once = round_to_nearest(random_weight(seed=3), rtn)
    twice = round_to_nearest(once.values, rtn)
    assert torch.equal(once.codes, twice.codes)
    torch.testing.assert_close(once.values, twice.values, rtol=1e-6, atol=0)


def test_full_rounding_is_idempotent_where_the_largest_weight_is_negative():
    weight = random_weight(seed=4)
    largest = weight.abs().argmax(dim=1, keepdim=True)
    weight.scatter_(1, largest, -weight.gather(1, largest).abs())
    once = round_to_nearest(weight, RoundToNearest(4, scope="channel"))
    assert torch.equal(once.values, round_to_nearest(once.values, RoundToNearest(4, scope="channel")).values)


@pytest.mark.parametrize("scope", ["channel", "group"])
def test_codes_do_not_change_when_rows_are_scaled(scope):
    """By powers of two, so that the scaling itself is exact."""
    weight, factors = random_weight(seed=5), torch.tensor([1.0, 2.0, 0.25, 8.0, 0.5, 64.0])[:, None]
    rtn = RoundToNearest(4, scope=scope, group_size=16)
    plain, scaled = round_to_nearest(weight, rtn), round_to_nearest(weight * factors, rtn)
    assert torch.equal(plain.codes, scaled.codes)
    assert torch.equal(plain.values * factors, scaled.values)


@pytest.mark.parametrize("each", [*RTN, *FOUR_BIT, *GGUF, VectorwiseInt8()], ids=str)
def test_a_group_of_zeros_stays_zero(each):
    weight = random_weight(4, 64)
    weight[1] = 0
    quantized = quantize_weight(weight, each)
    assert torch.equal(quantized.values[1], torch.zeros(64)) and torch.isfinite(quantized.values).all()
    assert torch.equal(quantize_weight(torch.zeros(4, 64), each).values, torch.zeros(4, 64))


@pytest.mark.parametrize("each", [RoundToNearest(4), *FOUR_BIT, GgufBlocks(bits=4)], ids=str)
def test_four_bits_leave_at_most_sixteen_values_per_group(each):
    weight = random_weight(8, 256, seed=6)
    size = each.group_size if isinstance(each, RoundToNearest) else each.block_size
    values = quantize_weight(weight, each).values
    assert max(len(block.unique()) for block in values.view(-1, size)) <= 16 < len(weight.view(-1, size)[0].unique())


@pytest.mark.parametrize("each", [RoundToNearest(4), *FOUR_BIT, *GGUF, VectorwiseInt8()], ids=str)
def test_values_have_the_type_and_nearness_of_the_weights(each):
    weight = random_weight(8, 128, seed=7).bfloat16()
    quantized = quantize_weight(weight, each)
    assert quantized.values.dtype == torch.bfloat16 and quantized.codes.shape == weight.shape
    assert 0 < (quantized.values - weight).float().norm() < 0.2 * weight.float().norm()


def test_a_group_longer_than_the_row_is_the_row():
    weight = random_weight(seed=8)
    whole = round_to_nearest(weight, RoundToNearest(4, scope="channel"))
    long = round_to_nearest(weight, RoundToNearest(4, group_size=10**12))
    assert torch.equal(whole.values, long.values)


@pytest.mark.parametrize("data_type", ["nf4", "fp4"])
@pytest.mark.parametrize("shape", [(32, 128), (64, 192)], ids=str)
def test_four_bit_weights_equal_what_the_module_of_bitsandbytes_multiplies_by(data_type, shape):
    from bitsandbytes.functional import has_avx512bf16
    from bitsandbytes.nn import Linear4bit, Params4bit

    weight, inputs = random_weight(*shape, seed=9), random_weight(7, shape[1], seed=10)
    module = Linear4bit(shape[1], shape[0], bias=False, compute_dtype=torch.float32, quant_type=data_type)
    module.weight = Params4bit(weight.clone(), requires_grad=False, quant_type=data_type, compress_statistics=False)
    expected = module.to("cpu").eval()(inputs)
    ours = inputs @ blockwise_4bit(weight, Blockwise4Bit(data_type)).values.T
    tolerance = 2e-2 * expected.abs().max() if has_avx512bf16() else 1e-7
    torch.testing.assert_close(ours, expected.detach(), rtol=0, atol=float(tolerance))


@pytest.mark.parametrize("data_type", ["nf4", "fp4"])
@pytest.mark.parametrize("shape", [(6, 96), (5, 34), (3, 7), (4, 64)], ids=str)
def test_four_bit_codes_and_scales_make_the_values(data_type, shape):
    """Blocks that cross rows and a short last one included."""
    from bitsandbytes.functional import get_4bit_type

    weight = random_weight(*shape, seed=11)
    quantized = blockwise_4bit(weight, Blockwise4Bit(data_type))
    assert quantized.scales.numel() == math.ceil(weight.numel() / 64)
    units = get_4bit_type(data_type, device="cpu")[quantized.codes.long()]
    scales = quantized.scales.repeat_interleave(64)[: weight.numel()].view(weight.shape)
    torch.testing.assert_close(units * scales, quantized.values, rtol=1e-6, atol=0)


def test_int8_codes_and_scales_are_those_of_the_module_of_bitsandbytes():
    from bitsandbytes.nn import Int8Params

    weight = random_weight(6, 40, seed=12)
    reference = Int8Params(weight.clone(), requires_grad=False, has_fp16_weights=False).to("cpu")
    quantized = vectorwise_int8(weight)
    assert torch.equal(quantized.codes, reference.CB)
    assert torch.equal(quantized.scales, reference.SCB / 127)


def literal_gguf_block(block: list[float], bits: int) -> tuple[list[int], list[float]]:
    """llama.cpp's quantize_row_q4_0_ref and quantize_row_q8_0_ref, one weight after the other."""
    most = max(block, key=abs)
    step = most / -8 if bits == 4 else abs(most) / 127
    kept = float(torch.tensor(step).half())
    if bits == 4:
        codes = [min(15, int(weight / step + 8.5)) for weight in block]
        return codes, [(code - 8) * kept for code in codes]
    codes = [int(math.copysign(math.floor(abs(weight / step) + 0.5), weight)) for weight in block]
    return codes, [code * kept for code in codes]


@pytest.mark.parametrize("bits", [4, 8])
def test_gguf_blocks_equal_llama_cpp_written_out(bits):
    weight = random_weight(5, 96, seed=14)
    quantized = gguf_blocks(weight, GgufBlocks(bits=bits))
    assert quantized.scales.shape == (15,) and quantized.scales.dtype == torch.float16
    for block, codes, values in zip(
        weight.view(-1, 32).tolist(), quantized.codes.view(-1, 32), quantized.values.view(-1, 32), strict=True
    ):
        expected_codes, expected_values = literal_gguf_block(block, bits)
        assert codes.tolist() == expected_codes
        torch.testing.assert_close(values, torch.tensor(expected_values), rtol=1e-6, atol=0)


@pytest.mark.parametrize("bits", [4, 8])
def test_gguf_values_are_those_of_a_file_written_and_read(tmp_path, bits):
    from gguf import GGMLQuantizationType, GGUFReader, GGUFWriter, dequantize, quantize

    weight, kind = random_weight(4, 64, seed=15), GGMLQuantizationType.Q4_0 if bits == 4 else GGMLQuantizationType.Q8_0
    writer = GGUFWriter(tmp_path / "matrix.gguf", "llama")
    writer.add_tensor("matrix", quantize(weight.numpy(), kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    (tensor,) = GGUFReader(tmp_path / "matrix.gguf").tensors
    read = torch.from_numpy(dequantize(tensor.data, tensor.tensor_type))
    assert torch.equal(read, gguf_blocks(weight, GgufBlocks(bits=bits)).values)


def test_gguf_refuses_rows_that_are_no_multiple_of_its_block():
    with pytest.raises(ValueError, match="rows of 40; GGUF's blocks need a multiple of 32"):
        quantize_weight(random_weight(), GgufBlocks())


def test_nf4_is_nearer_to_normal_weights_than_rtn():
    weight = random_weight(64, 128, seed=13)
    nf4, rtn = (quantize_weight(weight, scheme(name)).values for name in ("nf4", "rtn_4"))
    assert (nf4 - weight).norm() < (rtn - weight).norm()


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("rtn_4", RoundToNearest(4)),
        ("rtn_8_tensor", RoundToNearest(8, scope="tensor")),
        ("rtn_3_group_128", RoundToNearest(3, group_size=128)),
        ("rtn_4_channel_restricted_lm_head", RoundToNearest(4, "channel", code_range="restricted", lm_head=True)),
        ("nf4", Blockwise4Bit("nf4")),
        ("fp4_lm_head", Blockwise4Bit("fp4", lm_head=True)),
        ("int8", VectorwiseInt8()),
        ("gguf_q4_0", GgufBlocks(bits=4)),
        ("gguf_q8_0_lm_head", GgufBlocks(bits=8, lm_head=True)),
    ],
)
def test_scheme_of_a_name(name, expected):
    assert scheme(name) == expected


@pytest.mark.parametrize("name", ["", "rtn", "rtn_4_row", "nf8", "RTN_4", "int8_channel", "rtn_4_group_", "gguf_q5_0"])
def test_unknown_scheme_says_how_names_are_made(name):
    with pytest.raises(ValueError, match="rtn_<bits>, nf4, fp4, int8, gguf_q4_0"):
        scheme(name)


@pytest.mark.parametrize(
    ("name", "message"), [("rtn_1", "2 to 8"), ("rtn_16", "2 to 8"), ("rtn_4_group_0", "at least 1")]
)
def test_scheme_out_of_range_is_refused(name, message):
    with pytest.raises(ValueError, match=message):
        scheme(name)


@pytest.mark.parametrize("weight", [torch.full((2, 4), torch.nan), torch.full((2, 4), torch.inf), torch.zeros(0, 4)])
def test_weights_that_are_not_finite_are_refused(weight):
    with pytest.raises(ValueError, match="not finite"):
        quantize_weight(weight, scheme("rtn_4"))
