"""Load, save, and the only knowledge of architectures: where layer l keeps its projections and norms."""

import hashlib
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import nn
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

WEIGHTS = "model.safetensors"


@dataclass(frozen=True)
class LayerParts:
    """The named parts of one transformer block."""

    block: nn.Module
    attention_norm: nn.Module
    attention: nn.Module
    query: nn.Module
    key: nn.Module
    value: nn.Module
    output: nn.Module
    mlp_norm: nn.Module
    mlp: nn.Module
    down_projection: nn.Module


@dataclass(frozen=True)
class Anatomy:
    """The named parts of a causal language model; `parallel` where attention and MLP read the same residual stream."""

    embedding: nn.Embedding
    layers: tuple[LayerParts, ...]
    final_norm: nn.Module
    unembedding: nn.Linear
    n_heads: int
    n_kv_heads: int
    head_dim: int
    parallel: bool


def load_model(
    source: str | Path, *, dtype: torch.dtype = torch.float32, device: str | Mapping[str, str | int] = "cpu"
) -> PreTrainedModel:
    """A causal language model in evaluation mode, from a folder, a GGUF file or the Hugging Face Hub by name.

    `device` is where all of it goes; `auto` spreads a model that one device cannot hold over all there are, and a map
    from module names to devices (`disk` is one: weights are read when they are needed) says where each part goes. Such
    a model can be scored and asked; attribution and edits need all weights in memory. Pickled weights are not read.

    Raises: FileNotFoundError where a path-like source does not exist; OSError where there are no safetensors.
    """
    spread = device == "auto" or not isinstance(device, str)
    options = {"device_map": device, "offload_folder": tempfile.mkdtemp(prefix="efface-")} if spread else {}
    location = _located(source)
    if "gguf_file" not in location:
        options["use_safetensors"] = True
    model = AutoModelForCausalLM.from_pretrained(**location, **options, dtype=dtype, trust_remote_code=False).eval()
    return model if spread else model.to(torch.device(device))  # pyright: ignore[reportArgumentType]


def load_tokenizer(source: str | Path) -> PreTrainedTokenizerBase:
    """The tokenizer of a folder, a GGUF file or a model on the Hugging Face Hub.

    Raises: FileNotFoundError where a path-like source does not exist.
    """
    return AutoTokenizer.from_pretrained(**_located(source), trust_remote_code=False)


def scratch_llama(
    *,
    vocab_size: int,
    layers: int,
    hidden: int,
    heads: int,
    kv_heads: int,
    intermediate: int,
    tie_embeddings: bool,
    seed: int,
    max_positions: int = 512,
    bos_id: int | None = None,
    eos_id: int | None = None,
    pad_id: int | None = None,
) -> LlamaForCausalLM:
    """A Llama with random weights, the same for the same seed."""
    config = LlamaConfig(
        vocab_size=vocab_size,
        hidden_size=hidden,
        intermediate_size=intermediate,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        max_position_embeddings=max_positions,
        tie_word_embeddings=tie_embeddings,
        bos_token_id=bos_id,
        eos_token_id=eos_id,
        pad_token_id=pad_id,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return LlamaForCausalLM(config).eval()


def save_model(model: PreTrainedModel, folder: str | Path) -> None:
    """Config and one safetensors file, the same bytes for the same weights."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    model.config.save_pretrained(folder)
    if model.generation_config is not None:
        model.generation_config.save_pretrained(folder)
    tied = set(model._tied_weights_keys or ()) if model.config.tie_word_embeddings else set()
    state = {name: value.contiguous() for name, value in model.state_dict().items() if name not in tied}
    save_file(state, folder / WEIGHTS, metadata={"format": "pt"})
    (folder / WEIGHTS).chmod(0o644)


def file_md5(path: str | Path) -> str:
    """The md5 of a file's bytes in hexadecimal, as DVC computes it."""
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "md5").hexdigest()


def anatomy(model: PreTrainedModel) -> Anatomy:
    """Where this model keeps its parts.

    Raises: ValueError naming what is missing where the architecture is not one of the pre-norm families known here
    (Llama, Mistral, Qwen2, Qwen3 and others that name their parts alike).
    """
    decoder = getattr(model, "model", None)
    blocks = getattr(decoder, "layers", None)
    if decoder is None or blocks is None:
        raise ValueError(f"{type(model).__name__}: no `model.layers`; known: decoders that name their parts as Llama")
    config = model.config
    return Anatomy(
        embedding=decoder.embed_tokens,
        layers=tuple(_layer_parts(block) for block in blocks),
        final_norm=decoder.norm,
        unembedding=_unembedding(model),
        n_heads=config.num_attention_heads,
        n_kv_heads=getattr(config, "num_key_value_heads", None) or config.num_attention_heads,
        head_dim=getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads,
        parallel=False,
    )


def module_name(model: nn.Module, module: nn.Module) -> str:
    """The dotted name of a module inside its model."""
    for name, candidate in model.named_modules():
        if candidate is module:
            return name
    raise ValueError(f"{type(module).__name__}: not a module of this {type(model).__name__}")


def linear_module_names(model: PreTrainedModel, layers: Iterable[int] | None = None) -> list[str]:
    """Dotted names of every linear map inside the given blocks (default: all), in forward order.

    Raises: ValueError where a layer does not exist.
    """
    blocks = anatomy(model).layers
    chosen = range(len(blocks)) if layers is None else list(layers)
    check_layers(chosen, len(blocks))
    return [
        f"{module_name(model, blocks[layer].block)}.{name}"
        for layer in chosen
        for name, module in blocks[layer].block.named_modules()
        if isinstance(module, nn.Linear)
    ]


def check_layers(layers: Iterable[int], count: int) -> None:
    """Raises: ValueError where a layer is outside 0 … count − 1."""
    for layer in layers:
        if not 0 <= layer < count:
            raise ValueError(f"layer {layer}: this model has layers 0 to {count - 1}")


def layer_of(name: str) -> int | None:
    """The block number in a parameter's or module's dotted name; None outside the blocks."""
    numbers = [part for part in name.split(".") if part.isdigit()]
    return int(numbers[0]) if numbers else None


def untie_unembedding(model: PreTrainedModel) -> None:
    """Gives a model with tied embeddings its own copy of the unembedding, so that it can be edited alone."""
    if not model.config.tie_word_embeddings:
        return
    unembedding = _unembedding(model)
    unembedding.weight = nn.Parameter(unembedding.weight.detach().clone())
    model.config.tie_word_embeddings = False


def _unembedding(model: PreTrainedModel) -> nn.Linear:
    unembedding = model.get_output_embeddings()
    if not isinstance(unembedding, nn.Linear):
        raise ValueError(f"{type(model).__name__}: its unembedding is {unembedding!r}; expected a linear map")
    return unembedding


def _layer_parts(block: nn.Module) -> LayerParts:
    def part(*names: str) -> nn.Module:
        module = block
        for name in names:
            if not hasattr(module, name):
                raise ValueError(
                    f"{type(block).__name__} has no `{'.'.join(names)}`; "
                    "known: pre-norm blocks with q_proj, k_proj, v_proj, o_proj and down_proj, as in Llama"
                )
            module = getattr(module, name)
        return module

    if hasattr(block, "pre_feedforward_layernorm"):
        raise ValueError(f"{type(block).__name__} normalises the outputs of its parts too; only pre-norm is known here")
    return LayerParts(
        block=block,
        attention_norm=part("input_layernorm"),
        attention=part("self_attn"),
        query=part("self_attn", "q_proj"),
        key=part("self_attn", "k_proj"),
        value=part("self_attn", "v_proj"),
        output=part("self_attn", "o_proj"),
        mlp_norm=part("post_attention_layernorm"),
        mlp=part("mlp"),
        down_projection=part("mlp", "down_proj"),
    )


def _located(source: str | Path) -> dict[str, str]:
    """Keyword arguments by which transformers finds `source`."""
    path = Path(source)
    if path.suffix == ".gguf":
        if not path.is_file():
            raise FileNotFoundError(f"{source}: no such GGUF file; check the path of the model")
        return {"pretrained_model_name_or_path": str(path.parent), "gguf_file": path.name}
    if path.is_dir():
        return {"pretrained_model_name_or_path": str(path)}
    if (
        str(source).startswith((".", "/", "~"))
        or str(source).count("/") > 1
        or (path.parent.parts and path.parent.is_dir())
    ):
        raise FileNotFoundError(f"{source}: no such model folder; give a folder, a .gguf file or a Hub name")
    return {"pretrained_model_name_or_path": str(source)}
