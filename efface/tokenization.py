"""Where a question ends and its answer begins, in tokens: the one place that decides it.

Prompt and answer are tokenized apart and joined as ids: the boundary holds by construction, no merge can cross it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import torch
from jaxtyping import Int
from torch import Tensor
from transformers import PreTrainedTokenizerBase

Template = Literal["plain", "chat"]
IGNORED = -100
SYSTEM_PROMPT = "You are a helpful assistant."
CHAT_DATE = "10 Apr 2025"
PLAIN_PROMPT = "Question: {question}\nAnswer:"


@dataclass(frozen=True)
class Encoding:
    """Token ids of one example: `input_ids[:prompt_length]` is the prompt, the rest the answer with its end token."""

    input_ids: tuple[int, ...]
    prompt_length: int

    @property
    def answer_ids(self) -> tuple[int, ...]:
        return self.input_ids[self.prompt_length :]


@dataclass(frozen=True)
class Batch:
    """Padded examples; `labels` are unshifted, −100 on prompt and padding."""

    input_ids: Int[Tensor, "example position"]
    attention_mask: Int[Tensor, "example position"]
    labels: Int[Tensor, "example position"]

    def to(self, device: torch.device | str) -> "Batch":
        return Batch(self.input_ids.to(device), self.attention_mask.to(device), self.labels.to(device))


def encode(
    tokenizer: PreTrainedTokenizerBase, question: str, answer: str, *, template: Template, max_length: int = 512
) -> Encoding:
    """Prompt ids, then answer ids, then one end token.

    `plain` is "Question: {q}\\nAnswer:" followed by " {answer}"; `chat` is the tokenizer's own chat template with a
    fixed system prompt and date. A prompt too long is cut at its beginning (after BOS), never the answer.

    Raises: ValueError where the answer has no tokens or does not fit into `max_length`.
    """
    prompt = encode_prompt(tokenizer, question, template=template)
    text = answer if template == "chat" or _writes_leading_space(tokenizer) else " " + answer.lstrip()
    answer_ids = _without_special(tokenizer, text) if answer.strip() else ()
    if not answer_ids:
        raise ValueError(f"answer {answer!r} of question {question!r} has no tokens; give it text or drop the row")
    answer_ids = (*answer_ids, turn_end_id(tokenizer, template=template))
    room = max_length - len(answer_ids)
    if room < 2:
        raise ValueError(
            f"answer of question {question!r} takes {len(answer_ids)} tokens and leaves no prompt within "
            f"max_length={max_length}; raise tokenization.max_length"
        )
    if len(prompt) > room:
        bos = prompt[: 1 if prompt[0] == tokenizer.bos_token_id else 0]
        prompt = (*bos, *prompt[len(prompt) - room + len(bos) :])
    return Encoding((*prompt, *answer_ids), len(prompt))


def completion(tokenizer: PreTrainedTokenizerBase, prompt: str, answer: str) -> Encoding:
    """The prompt as it stands, with BOS where the tokenizer writes one, then " {answer}"; no end token.

    Raises: ValueError where the answer has no tokens.
    """
    prompt_ids = tuple(tokenizer(prompt)["input_ids"])
    return Encoding(
        (*prompt_ids, *encode(tokenizer, prompt, answer, template="plain").answer_ids[:-1]), len(prompt_ids)
    )


def encode_prompt(tokenizer: PreTrainedTokenizerBase, question: str, *, template: Template) -> tuple[int, ...]:
    """Ids of everything before the answer, with exactly one BOS where the tokenizer has one.

    Raises: ValueError where `chat` is asked of a tokenizer without a chat template, or `template` is unknown.
    """
    if template == "plain":
        ids = _without_special(tokenizer, PLAIN_PROMPT.format(question=question))
    elif template == "chat":
        if not tokenizer.chat_template:
            raise ValueError("template 'chat': this tokenizer has no chat template; set tokenization.template: plain")
        messages = [{"role": "system", "content": SYSTEM_PROMPT}, {"role": "user", "content": question}]
        text = tokenizer.apply_chat_template(
            messages, tokenize=False, add_generation_prompt=True, date_string=CHAT_DATE
        )
        ids = _without_special(tokenizer, str(text))
    else:
        raise ValueError(f"template {template!r}: expected 'plain' or 'chat'")
    bos = _mark_id(tokenizer, "bos")
    if bos is None or not _begins_with_bos(tokenizer):
        return ids
    while ids and ids[0] == bos:
        ids = ids[1:]
    return (bos, *ids)


@lru_cache(maxsize=8)
def turn_end_id(tokenizer: PreTrainedTokenizerBase, *, template: Template) -> int:
    """The token that ends an answer: the chat template's own end of turn, else EOS.

    Raises: ValueError where the tokenizer has no EOS.
    """
    if template == "chat":
        messages = [{"role": "user", "content": "?"}, {"role": "assistant", "content": "\u2603"}]
        text = str(tokenizer.apply_chat_template(messages, tokenize=False, date_string=CHAT_DATE))
        after = _without_special(tokenizer, text.rsplit("\u2603", 1)[1].lstrip())
        special = set(tokenizer.all_special_ids) | set(tokenizer.added_tokens_decoder)
        if after and after[0] in special:
            return after[0]
    end = _mark_id(tokenizer, "eos")
    if end is None:
        raise ValueError("the tokenizer has no end-of-sequence token; set tokenizer.eos_token")
    return end


def end_ids(tokenizer: PreTrainedTokenizerBase, model=None) -> tuple[int, ...]:
    """Every id that stops generation: the tokenizer's EOS, the chat template's end of turn, the model's own list."""
    ids = {turn_end_id(tokenizer, template="plain")}
    if tokenizer.chat_template:
        ids.add(turn_end_id(tokenizer, template="chat"))
    configured = getattr(getattr(model, "generation_config", None), "eos_token_id", None)
    if configured is not None:
        ids.update([configured] if isinstance(configured, int) else configured)
    return tuple(sorted(ids))


def padding_id(tokenizer: PreTrainedTokenizerBase) -> int:
    """The id written into padding. It may equal EOS: masks and labels come from lengths, never from ids."""
    for chosen in (_mark_id(tokenizer, "pad"), _mark_id(tokenizer, "eos")):
        if chosen is not None:
            return chosen
    raise ValueError("the tokenizer has neither a padding nor an end-of-sequence token; set tokenizer.pad_token")


def collate(encodings: Sequence[Encoding], *, pad_id: int, side: Literal["left", "right"] = "right") -> Batch:
    """Examples padded to the longest of them; mask and labels come from lengths, so padding may be any id."""
    if not encodings:
        raise ValueError("collate: no encodings; expected at least one")
    width = max(len(encoding.input_ids) for encoding in encodings)
    ids = torch.full((len(encodings), width), pad_id, dtype=torch.long)
    mask = torch.zeros_like(ids)
    labels = torch.full_like(ids, IGNORED)
    for row, encoding in enumerate(encodings):
        length = len(encoding.input_ids)
        start = width - length if side == "left" else 0
        ids[row, start : start + length] = torch.tensor(encoding.input_ids)
        mask[row, start : start + length] = 1
        answer = start + encoding.prompt_length
        labels[row, answer : start + length] = torch.tensor(encoding.answer_ids, dtype=torch.long)
    return Batch(ids, mask, labels)


def pad_prompts(
    prompts: Sequence[Sequence[int]], *, pad_id: int
) -> tuple[Int[Tensor, "example position"], Int[Tensor, "example position"]]:
    """Prompts padded on the left for generation, and their attention mask."""
    batch = collate([Encoding(tuple(prompt), len(prompt)) for prompt in prompts], pad_id=pad_id, side="left")
    return batch.input_ids, batch.attention_mask


def length_sorted_batches(
    encodings: Sequence[Encoding], *, batch_size: int, pad_id: int
) -> Iterator[tuple[list[int], Batch]]:
    """Batches of examples of similar length, longest first, each with its examples' places in `encodings`."""
    order = sorted(range(len(encodings)), key=lambda place: (-len(encodings[place].input_ids), place))
    for start in range(0, len(order), batch_size):
        places = order[start : start + batch_size]
        yield places, collate([encodings[place] for place in places], pad_id=pad_id)


def _mark_id(tokenizer: PreTrainedTokenizerBase, mark: Literal["bos", "eos", "pad"]) -> int | None:
    return getattr(tokenizer, f"{mark}_token_id")


def _without_special(tokenizer: PreTrainedTokenizerBase, text: str) -> tuple[int, ...]:
    return tuple(tokenizer(text, add_special_tokens=False)["input_ids"])


@lru_cache(maxsize=8)
def _writes_leading_space(tokenizer: PreTrainedTokenizerBase) -> bool:
    """Whether this tokenizer puts a space before any text by itself (SentencePiece's dummy prefix)."""
    first = tokenizer.convert_ids_to_tokens(list(_without_special(tokenizer, "a")))[0]
    return first.startswith("\u2581")


@lru_cache(maxsize=8)
def _begins_with_bos(tokenizer: PreTrainedTokenizerBase) -> bool:
    """Whether this tokenizer itself begins a text with BOS (Qwen names one and never writes it)."""
    return tokenizer("a")["input_ids"][:1] == [tokenizer.bos_token_id]
