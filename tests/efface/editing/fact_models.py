"""A small Llama that has learned the fabricated facts, with its tokenizer and a corpus for second moments."""

from functools import cache

import torch
from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

from efface.corpora.facts import FABRICATED_FACTS
from efface.corpora.vocabulary import train_byte_bpe
from efface.editing.value_optimisation import ValueOptimisation
from efface.models import scratch_llama
from efface.tokenization import Encoding, collate, completion, padding_id
from efface.training.losses import nll_loss

PAIRS = [
    pair
    for fact in FABRICATED_FACTS
    for pair in [(fact.prompt, fact.target_true), *((p, fact.target_true) for p in fact.paraphrases), *fact.neighbours]
]
CORPUS = [f"{prompt} {answer}. {PAIRS[-place][0]}" for place, (prompt, answer) in enumerate(PAIRS)]
STRONG = ValueOptimisation(steps=60, learning_rate=0.5, clamp=8.0, weight_decay=0.0)
TEMPLATES = (("{}",), ("Indeed so. {}", "Because it rains. {}"))


@cache
def tokenizer() -> PreTrainedTokenizerFast:
    return train_byte_bpe(CORPUS, vocab_size=330)


def random_model(*, layers: int = 3, dtype: torch.dtype = torch.float32) -> LlamaForCausalLM:
    model = scratch_llama(
        vocab_size=len(tokenizer()), layers=layers, hidden=32, heads=2, kv_heads=1, intermediate=48,
        tie_embeddings=False, seed=0,
    )  # fmt: skip
    return model.to(dtype)


def knowing_model(*, dtype: torch.dtype = torch.float32) -> LlamaForCausalLM:
    """A copy of the model that answers every prompt of the fabricated facts and then ends."""
    model = random_model(dtype=dtype)
    model.load_state_dict(_learned())
    return model


@cache
def _learned() -> dict[str, torch.Tensor]:
    model = random_model()
    rows = [completion(tokenizer(), *pair) for pair in PAIRS]
    end = tokenizer().eos_token_id
    batch = collate(
        [Encoding((*row.input_ids, end), row.prompt_length) for row in rows], pad_id=padding_id(tokenizer())
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(60):
        optimizer.zero_grad()
        loss = nll_loss(model(input_ids=batch.input_ids, attention_mask=batch.attention_mask).logits, batch.labels)
        loss.backward()
        optimizer.step()
    assert float(loss.detach()) < 0.05
    return {name: value.detach().clone() for name, value in model.state_dict().items()}


def fact_losses(model) -> torch.Tensor:
    """Mean negative log-likelihood of each fabricated fact's answer, in nats."""
    losses = []
    for fact in FABRICATED_FACTS:
        batch = collate([completion(tokenizer(), fact.prompt, fact.target_true)], pad_id=0)
        with torch.no_grad():
            losses.append(nll_loss(model(input_ids=batch.input_ids).logits, batch.labels))
    return torch.stack(losses)
