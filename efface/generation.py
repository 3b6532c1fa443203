"""Answers that a model writes: greedy or sampled, in batches, stopped at the end tokens."""

from collections.abc import Callable, Iterator, Mapping, Sequence

import torch
from jaxtyping import Float
from torch import Tensor
from tqdm import tqdm
from transformers import DynamicCache, PreTrainedModel, PreTrainedTokenizerBase

from efface.tokenization import end_ids, pad_prompts, padding_id


@torch.no_grad()
def generate_answers(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    prompts: Sequence[tuple[int, ...]],
    *,
    max_new_tokens: int,
    batch_size: int,
    sample: bool = False,
    temperature: float = 1.0,
    seed: int = 0,
    stop_strings: Sequence[str] = (),
) -> list[str]:
    """The text after each prompt up to an end token, in the order of `prompts`, without special tokens, stripped.

    Prompts of similar length share a batch, padded on the left; a finished answer leaves its batch. With `sample` every
    prompt draws from softmax(logits / `temperature`) by its own generator, seeded by `seed` and its place, so that a
    draw never depends on the batch. Greedy answers depend on `batch_size` only where two tokens tie to within rounding
    (about 1e-6). Where one of `stop_strings` comes, the answer ends before it.

    Raises: ValueError where a prompt is empty, a size or the temperature is not positive, the model is in training
    mode or its logits are not finite (naming the prompt's place).
    """
    _check(model, prompts, max_new_tokens=max_new_tokens, batch_size=batch_size)
    if not temperature > 0:
        raise ValueError(f"temperature={temperature}: expected more than 0; leave out `sample` for greedy answers")
    stops, pad_id = end_ids(tokenizer, model), padding_id(tokenizer)

    def text_of(ids: list[int]) -> str:
        return str(tokenizer.decode(ids, skip_special_tokens=True))

    def is_stopped(ids: list[int]) -> bool:
        text = text_of(ids) if stop_strings else ""
        return any(stop in text for stop in stop_strings)

    answers = [""] * len(prompts)
    with tqdm(total=len(prompts), desc="generate", unit="answer") as bar:
        for places in _places_by_length(prompts, batch_size):
            batch = {place: prompts[place] for place in places}
            draws = {place: _generator(seed, place) for place in places} if sample else None
            new_ids = _new_ids(
                model, batch, max_new_tokens=max_new_tokens, stops=stops, pad_id=pad_id, draws=draws,
                temperature=temperature, is_stopped=is_stopped,
            )  # fmt: skip
            for place, ids in new_ids.items():
                answers[place] = before_any(text_of(ids), stop_strings).strip()
            bar.update(len(places))
    return answers


def before_any(text: str, stop_strings: Sequence[str]) -> str:
    """The text before whichever stop string comes first, all of it where none does."""
    return text[: min((text.find(stop) for stop in stop_strings if stop in text), default=len(text))]


def _new_ids(
    model: PreTrainedModel,
    prompts: Mapping[int, tuple[int, ...]],
    *,
    max_new_tokens: int,
    stops: tuple[int, ...],
    pad_id: int,
    draws: Mapping[int, torch.Generator] | None,
    temperature: float,
    is_stopped: Callable[[list[int]], bool],
) -> dict[int, list[int]]:
    """The ids that follow each prompt, end token excluded, by the prompt's place."""
    ids, mask = (part.to(model.device) for part in pad_prompts(list(prompts.values()), pad_id=pad_id))
    positions = (mask.cumsum(-1) - 1).clamp(min=0)
    cache = DynamicCache(config=model.config)
    answers: dict[int, list[int]] = {place: [] for place in prompts}
    unfinished = list(prompts)
    for _ in range(max_new_tokens):
        logits = model(
            input_ids=ids, attention_mask=mask, position_ids=positions, cache=cache, use_cache=True, logits_to_keep=1
        ).logits[:, -1]
        chosen = _next_ids(logits.float() / temperature, unfinished, draws)
        kept = [row for row, token in enumerate(chosen) if token not in stops]
        for row in kept:
            answers[unfinished[row]].append(chosen[row])
        kept = [row for row in kept if not is_stopped(answers[unfinished[row]])]
        if not kept:
            break
        if len(kept) < len(unfinished):
            selected = torch.tensor(kept, device=ids.device)
            cache.batch_select_indices(selected)
            mask, positions, unfinished = mask[selected], positions[selected], [unfinished[row] for row in kept]
        ids = torch.tensor([[chosen[row]] for row in kept], device=ids.device)
        mask = torch.cat([mask, mask.new_ones(len(kept), 1)], dim=1)
        positions = positions[:, -1:] + 1
    return answers


def _next_ids(
    logits: Float[Tensor, "example vocabulary"], places: Sequence[int], draws: Mapping[int, torch.Generator] | None
) -> list[int]:
    """The likeliest token of every row, or one drawn from its distribution."""
    broken = ~torch.isfinite(logits.amax(dim=-1))
    if broken.any():
        place = places[int(broken.nonzero()[0])]
        raise ValueError(f"prompt {place}: the model's logits are not finite; its weights or its precision are broken")
    if draws is None:
        return logits.argmax(dim=-1).tolist()
    rows = zip(logits.softmax(dim=-1).cpu(), places, strict=True)
    return [int(torch.multinomial(row, 1, generator=draws[place])) for row, place in rows]


def _generator(seed: int, place: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed * 1_000_003 + place)


def _places_by_length(prompts: Sequence[tuple[int, ...]], batch_size: int) -> Iterator[list[int]]:
    order = sorted(range(len(prompts)), key=lambda place: (-len(prompts[place]), place))
    for start in range(0, len(order), batch_size):
        yield order[start : start + batch_size]


def _check(model: PreTrainedModel, prompts: Sequence[tuple[int, ...]], *, max_new_tokens: int, batch_size: int) -> None:
    if model.training:
        raise ValueError("the model is in training mode, so dropout would change its answers; call model.eval()")
    if max_new_tokens < 1 or batch_size < 1:
        raise ValueError(f"max_new_tokens={max_new_tokens}, batch_size={batch_size}: expected at least 1 of each")
    for place, prompt in enumerate(prompts):
        if not prompt:
            raise ValueError(f"prompt {place} has no tokens; expected at least one")
