"""Small random models of every family known, with weights large enough that every part of them matters."""

import torch
from transformers import (
    GemmaConfig,
    GemmaForCausalLM,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    PhiConfig,
    PhiForCausalLM,
    PreTrainedModel,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from efface.tokenization import Batch

VOCABULARY = 61
GROUPED = dict(
    vocab_size=VOCABULARY,
    hidden_size=24,
    intermediate_size=36,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=64,
    pad_token_id=0,
    bos_token_id=1,
    eos_token_id=2,
)
FAMILIES = {
    "llama": lambda: LlamaForCausalLM(LlamaConfig(**GROUPED)),
    "mistral": lambda: MistralForCausalLM(MistralConfig(**GROUPED, head_dim=8)),
    "qwen2": lambda: Qwen2ForCausalLM(Qwen2Config(**GROUPED)),
    "qwen3": lambda: Qwen3ForCausalLM(Qwen3Config(**GROUPED, head_dim=8)),
    "gemma": lambda: GemmaForCausalLM(GemmaConfig(**GROUPED, head_dim=6)),
    "phi": lambda: PhiForCausalLM(PhiConfig(**{**GROUPED, "hidden_size": 32})),
    "gpt2": lambda: GPT2LMHeadModel(
        GPT2Config(
            vocab_size=VOCABULARY, n_embd=24, n_layer=2, n_head=4, n_positions=64, bos_token_id=1, eos_token_id=2
        )
    ),
}


def lively_model(family: str = "llama", seed: int = 0) -> PreTrainedModel:
    """A model in evaluation mode; maps N(0, 0.25), gains near their own value, biases N(0, 0.1)."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = FAMILIES[family]().eval()
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.ndim > 1:
                    parameter.normal_(0, 0.25)
                else:
                    parameter.add_(torch.randn_like(parameter), alpha=0.1)
    return model


def random_batch(lengths: list[int], answer: int = 3, seed: int = 0) -> tuple[Batch, torch.Tensor]:
    """Random examples of these lengths padded on the right, and corrupted ids with the same answers."""
    generator = torch.Generator().manual_seed(seed)
    shape = (len(lengths), max(lengths))
    ids, other = (torch.randint(3, VOCABULARY, shape, generator=generator) for _ in range(2))
    position = torch.arange(shape[1])
    length = torch.tensor(lengths)[:, None]
    answers = (position >= length - answer) & (position < length)
    mask = (position < length).long()
    corrupted = torch.where(answers, ids, other)
    return Batch(ids * mask, mask, torch.where(answers, ids, -100)), corrupted * mask
