"""The vector that makes a model continue a fact's prompt with a target, when written where the subject ends."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from efface.activations.capture import predicting_columns
from efface.corpora.facts import Fact
from efface.editing.subject_keys import PLAIN, SubjectPrompt, Templates, contextual_prompts, subject_prompt
from efface.models import anatomy
from efface.tokenization import Encoding, collate, completion, padding_id, turn_end_id
from efface.training.losses import kl_loss

Target = Literal["end", "new", "true"]


@dataclass(frozen=True)
class Value:
    """What the module wrote at the subject's last token of the plain prompt, what to add to it, and the losses seen."""

    initial: Float[Tensor, " residual"]
    shift: Float[Tensor, " residual"]
    losses: tuple[float, ...]

    @property
    def target(self) -> Float[Tensor, " residual"]:
        """The vector that the module should write."""
        return self.initial + self.shift


@dataclass(frozen=True)
class ValueOptimisation:
    """How a value is sought; the defaults are AlphaEdit's (arXiv:2410.02355) and ZeroUnlearn's (arXiv:2605.18879).

    `steps` counts passes as published, of which the last one changes nothing and is not run here. `clamp` is the
    longest shift relative to what the module wrote.
    """

    steps: int = 25
    learning_rate: float = 0.1
    weight_decay: float = 0.5
    kl_weight: float = 0.0625
    clamp: float = 0.75
    stop_loss: float = 0.05

    def __post_init__(self) -> None:
        if self.steps < 2:
            raise ValueError(f"steps {self.steps}: expected at least 2, of which the last changes nothing")
        for name in ("learning_rate", "clamp"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} {getattr(self, name)}: expected above 0")
        for name in ("weight_decay", "kl_weight", "stop_loss"):
            if not getattr(self, name) >= 0:
                raise ValueError(f"{name} {getattr(self, name)}: expected 0 or more")

    def value(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        fact: Fact,
        *,
        module: nn.Module,
        target: Target = "end",
        templates: Templates = PLAIN,
    ) -> Value:
        """The value of `module` (a down-projection or a block) for the target of a fact.

        δ = argmin mean_prompts NLL(target)/|target| + w_KL KL(p ‖ p₀ at the subject of "{subject} is a")
        + w_d ‖δ‖/‖h₀‖², Eq. (4), arXiv:2202.05262, by Adam, within ‖δ‖ ≤ clamp · ‖h₀‖, until the loss is below
        `stop_loss`. The KL is that of the code, p the changed distribution; the paper writes no weight decay.

        Raises: ValueError where target is "new" and the fact proposes none, or the loss is not finite.
        Cost: a forward and a backward pass over all templates for each step.
        """
        prompts = [*contextual_prompts(tokenizer, fact, templates), _essence(tokenizer, fact)]
        ids = target_ids(tokenizer, fact, target)
        encodings = [Encoding((*prompt.input_ids, *ids), len(prompt.input_ids)) for prompt in prompts[:-1]]
        encodings.append(Encoding(prompts[-1].input_ids, len(prompts[-1].input_ids)))
        batch = collate(encodings, pad_id=padding_id(tokenizer)).to(model.device)
        columns = predicting_columns(range(len(prompts)), batch.labels)
        head, essence_at = anatomy(model).unembedding, prompts[-1].position
        losses, reference = [], None
        with _shifted(module, [prompt.position for prompt in prompts], model) as (shift, initial), torch.enable_grad():
            optimizer = torch.optim.Adam([shift], lr=self.learning_rate)
            for _ in range(self.steps - 1):
                states = model.base_model(
                    input_ids=batch.input_ids, attention_mask=batch.attention_mask, use_cache=False
                ).last_hidden_state
                essence = head(states[-1:, essence_at : essence_at + 1])
                reference = essence.detach() if reference is None else reference
                length = initial[0].norm()
                loss = (
                    F.cross_entropy(head(columns.of(states)).float(), columns.tokens)
                    + self.kl_weight * kl_loss(reference, essence)
                    + self.weight_decay * shift.norm() / length**2
                )
                losses.append(float(loss.detach()))
                if not loss.isfinite():
                    raise ValueError(
                        f"value of {fact.prompt!r}: the loss is {losses[-1]} at step {len(losses)}; load the model in "
                        "float32, check its weights or lower learning_rate"
                    )
                if losses[-1] < self.stop_loss:
                    break
                (shift.grad,) = torch.autograd.grad(loss, [shift])
                optimizer.step()
                with torch.no_grad():
                    shift.mul_((self.clamp * length / shift.norm()).clamp(max=1))
        return Value(initial[0], shift.detach(), tuple(losses))

    def values(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        facts: Sequence[Fact],
        *,
        module: nn.Module,
        target: Target = "end",
        templates: Templates = PLAIN,
    ) -> Float[Tensor, "fact residual"]:
        """The vectors that the module should write, one for each fact."""
        found = [
            self.value(model, tokenizer, fact, module=module, target=target, templates=templates) for fact in facts
        ]
        return torch.stack([value.target for value in found])


def target_ids(tokenizer: PreTrainedTokenizerBase, fact: Fact, target: Target) -> tuple[int, ...]:
    """The end of text alone ("end": the fact is erased), the row's counterfact ("new") or the fact itself ("true").

    Raises: ValueError where the fact proposes no counterfact.
    """
    if target == "end":
        return (turn_end_id(tokenizer, template="plain"),)
    answer = fact.target_true if target == "true" else fact.target_new
    if answer is None:
        raise ValueError(f"fact {fact.prompt!r} has no target_new; give it one, or erase it with target 'end'")
    return completion(tokenizer, fact.prompt, answer).answer_ids


def _essence(tokenizer: PreTrainedTokenizerBase, fact: Fact) -> SubjectPrompt:
    return subject_prompt(tokenizer, f"{fact.subject} is a", fact.subject)


@contextmanager
def _shifted(
    module: nn.Module, positions: Sequence[int], model: PreTrainedModel
) -> Iterator[tuple[Tensor, list[Tensor]]]:
    """A shift, zero at first, that `module` adds to what it writes at each row's position; and what row 0 had there."""
    shift = torch.zeros(model.config.hidden_size, device=model.device, requires_grad=True)
    initial: list[Tensor] = []

    def add(_module: nn.Module, _arguments: tuple, output: Tensor) -> Tensor:
        if not initial:
            initial.append(output[0, positions[0]].detach().float())
        rows, places = (torch.tensor(part, device=output.device) for part in (range(len(positions)), positions))
        added = shift.to(output.dtype).expand(len(positions), -1)
        return output.index_put((rows, places), added, accumulate=True)

    handle = module.register_forward_hook(add)
    try:
        yield shift, initial
    finally:
        handle.remove()
