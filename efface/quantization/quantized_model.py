"""A model whose linear maps inside the decoder are quantized, and the proof that they really are."""

import logging

import torch
from torch import nn
from transformers import PreTrainedModel

from efface.models import anatomy, linear_module_names, untie_unembedding
from efface.quantization.schemes import QuantizedWeight, Scheme, VectorwiseInt8, quantize_weight


def quantizable_modules(model: PreTrainedModel, scheme: Scheme) -> dict[str, nn.Linear]:
    """Every linear map inside the blocks and, where the scheme says so, the LM head, by dotted name; embeddings never.

    Like bitsandbytes, schemes leave the LM head alone by default: an edit of the head then survives untouched. A tied
    head that is to be quantized is untied, in place, so that the embedding keeps its weights.
    """
    if scheme.lm_head:
        untie_unembedding(model)
    inside, head = set(linear_module_names(model)), anatomy(model).unembedding
    return {
        name: module
        for name, module in model.named_modules()
        if isinstance(module, nn.Linear) and (name in inside or (scheme.lm_head and module is head))
    }


@torch.no_grad()
def quantize_model(model: PreTrainedModel, scheme: Scheme) -> None:
    """Quantizes the model in place: weights become the values their codes stand for, biases are left alone.

    For LLM.int8(), which quantizes inputs too, modules of bitsandbytes take the place of the linear maps.

    Raises: ValueError where quantization changed no weight at all, or a module's codes are not what the scheme allows.
    """
    changed = False
    for name, module in quantizable_modules(model, scheme).items():
        quantized = quantize_weight(module.weight, scheme)
        check_codes(quantized, scheme, name)
        changed = changed or not torch.equal(module.weight, quantized.values)
        if isinstance(scheme, VectorwiseInt8):
            model.set_submodule(name, _int8_module(module, scheme.threshold))
        else:
            module.weight.copy_(quantized.values)
    if not changed:
        raise ValueError(
            f"{scheme} changed no weight: they lie on its grid already, as after an earlier quantization (a GGUF file "
            "of few bits, say); take full-precision weights or another scheme"
        )


def check_codes(quantized: QuantizedWeight, scheme: Scheme, name: str) -> None:
    """The proof that a matrix is quantized: whole-number codes, at most 2^bits of them.

    Raises: ValueError naming the module where it is not.
    """
    codes, most = quantized.codes, 2**scheme.bits
    span = int(codes.max()) - int(codes.min()) + 1
    if codes.is_floating_point() or span > most:
        raise ValueError(f"{name}: codes of type {codes.dtype} span {span}; expected at most {most} whole numbers")


def _int8_module(linear: nn.Linear, threshold: float) -> nn.Module:
    """bitsandbytes' module for a linear map, on the same device."""
    from bitsandbytes.nn import Int8Params, Linear8bitLt

    # It warns at every call that inputs are cast to 16 bits, which is what the method does.
    logging.getLogger("bitsandbytes.autograd._functions").setLevel(logging.ERROR)
    module = Linear8bitLt(
        linear.in_features, linear.out_features, bias=False, has_fp16_weights=False, threshold=threshold, device="meta"
    )
    module.weight = Int8Params(linear.weight.detach().cpu(), requires_grad=False)
    module.bias = linear.bias
    return module.to(linear.weight.device).eval()
