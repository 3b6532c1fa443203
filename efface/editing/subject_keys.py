"""What a layer reads where a fact's subject ends: the key of locate-then-edit methods, and the second moment of keys.

ROME (arXiv:2202.05262) and MEMIT (arXiv:2210.07229): the key is the input of the MLP's down-projection at the last
token of the subject, averaged over contexts put before the prompt; C = E[k kᵀ] over a corpus, uncentred.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from efface.activations.capture import activation_batches, captured_inputs, captured_outputs, decoded_states
from efface.activations.key_statistics import KeyGram
from efface.corpora.facts import Fact
from efface.generation import generate_answers
from efface.models import anatomy, check_layers
from efface.tokenization import Encoding, length_sorted_batches, padding_id

Templates = Sequence[Sequence[str]]
PLAIN: Templates = (("{}",),)
OPENINGS = ("The", "Therefore", "Because", "I", "You")


@dataclass(frozen=True)
class SubjectPrompt:
    """A prompt in tokens, and the place of its subject's last token."""

    input_ids: tuple[int, ...]
    position: int


def subject_prompt(tokenizer: PreTrainedTokenizerBase, text: str, subject: str) -> SubjectPrompt:
    """The text as it stands, with BOS where the tokenizer writes one; of several mentions the last one counts.

    The last subject token is the last whose characters overlap the subject's, also where it goes on beyond them.
    Raises: ValueError where the subject is empty, not in the text or without tokens, or the tokenizer does not tell
    which characters a token covers.
    """
    name = subject.strip()
    start = text.rfind(name)
    if not name or start < 0:
        raise ValueError(f"subject {subject!r} of prompt {text!r}: expected text that stands in it; correct the fact")
    if not tokenizer.is_fast:
        raise ValueError(f"{type(tokenizer).__name__} does not say where tokens stand in a text; load a fast tokenizer")
    encoded = tokenizer(text, return_offsets_mapping=True)
    spans = encoded["offset_mapping"]
    inside = [place for place, (first, end) in enumerate(spans) if first < start + len(name) and end > start]
    if not inside:
        raise ValueError(f"subject {subject!r} of prompt {text!r} has no tokens of its own; name it otherwise")
    return SubjectPrompt(tuple(encoded["input_ids"]), inside[-1])


def contextual_prompts(tokenizer: PreTrainedTokenizerBase, fact: Fact, templates: Templates) -> list[SubjectPrompt]:
    """The fact's prompt in the place of "{}" in every template, group after group.

    Raises: ValueError where a template has not one "{}", a group is empty, or the first template is not "{}" alone.
    """
    flat = [template for group in templates for template in group]
    if not all(templates) or any(template.count("{}") != 1 for template in flat) or flat[:1] != ["{}"]:
        raise ValueError(f"templates {templates!r}: expected groups of texts with one '{{}}' each, '{{}}' alone first")
    return [subject_prompt(tokenizer, template.replace("{}", fact.prompt), fact.subject) for template in flat]


def sampled_templates(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    *,
    openings: Sequence[str] = OPENINGS,
    length: int = 10,
    seed: int | None = None,
) -> tuple[tuple[str, ...], ...]:
    """("{}",) and "{opening} … . {}" for each opening, continued by the model for `length` tokens.

    Greedy without a seed. Departs from the published templates, which sample among the five likeliest tokens.
    """
    texts = generate_answers(
        model, tokenizer, [tuple(tokenizer(opening)["input_ids"]) for opening in openings],
        max_new_tokens=length, batch_size=len(openings), sample=seed is not None, seed=seed or 0,
    )  # fmt: skip
    contexts = [f"{opening} {text}" for opening, text in zip(openings, texts, strict=True)]
    return ("{}",), tuple(context.replace("{", " ").replace("}", " ") + ". {}" for context in contexts)


@torch.no_grad()
def subject_states(
    model: PreTrainedModel,
    prompts: Sequence[SubjectPrompt],
    module: nn.Module,
    *,
    side: Literal["input", "output"],
    batch_size: int,
    pad_id: int,
) -> Float[Tensor, "prompt feature"]:
    """What the module reads or writes at each prompt's last subject token, in float32."""
    captured = captured_inputs if side == "input" else captured_outputs
    encodings = [Encoding(prompt.input_ids, len(prompt.input_ids)) for prompt in prompts]
    found: dict[int, Tensor] = {}
    with captured({"module": module}) as seen:
        for places, batch in length_sorted_batches(encodings, batch_size=batch_size, pad_id=pad_id):
            decoded_states(model, batch.to(model.device))
            found |= {place: seen["module"][row, prompts[place].position] for row, place in enumerate(places)}
    return torch.stack([found[place] for place in range(len(prompts))]).float()


def subject_keys(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    facts: Sequence[Fact],
    *,
    layer: int,
    templates: Templates = PLAIN,
    batch_size: int = 16,
) -> Float[Tensor, "fact key"]:
    """The key of each fact at one layer: the mean over groups of the mean over a group's templates.

    Raises: ValueError where there are no facts, the layer does not exist, or a key is not finite.
    """
    check_facts(facts)
    parts = anatomy(model)
    check_layers([layer], len(parts.layers))
    prompts = [prompt for fact in facts for prompt in contextual_prompts(tokenizer, fact, templates)]
    states = subject_states(
        model, prompts, parts.layers[layer].down_projection,
        side="input", batch_size=batch_size, pad_id=padding_id(tokenizer),
    )  # fmt: skip
    weights = torch.tensor([1 / len(group) / len(templates) for group in templates for _ in group])
    keys = torch.einsum("t,ftk->fk", weights.to(states), states.unflatten(0, (len(facts), -1)))
    broken = (~torch.isfinite(keys)).any(1).nonzero().flatten().tolist()
    if broken:
        raise ValueError(
            f"layer {layer}: the key of {facts[broken[0]].prompt!r} holds NaN or infinity ({len(broken)} of "
            f"{len(keys)} keys do); load the model in float32 or check its weights"
        )
    return keys


def key_grams(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    corpus: Iterable[str | Encoding],
    *,
    layers: Sequence[int],
    batch_size: int = 16,
    max_length: int = 512,
) -> dict[int, KeyGram]:
    """Σ k kᵀ of each layer's down-projection: at every token but a text's last, or at an encoding's answer positions.

    Raises: ValueError where a layer does not exist, a key is not finite, or the corpus has no keys.
    """
    parts = anatomy(model)
    check_layers(layers, len(parts.layers))
    rows = [
        row if isinstance(row, Encoding) else Encoding(tuple(tokenizer(row)["input_ids"][:max_length]), 1)
        for row in corpus
    ]
    modules = {str(layer): parts.layers[layer].down_projection for layer in layers}
    grams: dict[int, KeyGram] = {}
    pad_id = padding_id(tokenizer)
    for batch in activation_batches(model, rows, modules=modules, batch_size=batch_size, pad_id=pad_id):
        for layer in layers:
            keys = batch.inputs[str(layer)]
            grams.setdefault(layer, KeyGram.empty(keys.shape[1], device=keys.device)).add(keys)
    if not any(gram.count for gram in grams.values()):
        raise ValueError(f"corpus of {len(rows)} texts has no keys: expected texts of two tokens or more; give others")
    return grams


def second_moment(grams: Mapping[int, KeyGram], layer: int) -> Float[Tensor, "key key"]:
    """C = E[k kᵀ] of one layer.

    Raises: ValueError where the layer's Gram matrix was not given.
    """
    if layer not in grams:
        raise ValueError(f"layer {layer}: no Gram matrix of its keys, given {sorted(grams)}; collect it by `key_grams`")
    return grams[layer].gram / grams[layer].count


def check_facts(facts: Sequence[Fact]) -> None:
    """Raises: ValueError where there are none."""
    if not facts:
        raise ValueError("no facts left to edit: expected at least one that the model answers; give other facts")
