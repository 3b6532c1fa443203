"""The value search against a literal one that writes the shift into a copy of the module, and its own promises."""

import pytest
import torch
from fact_models import TEMPLATES, knowing_model, tokenizer
from torch.nn import functional as F

from efface.corpora.facts import FABRICATED_FACTS, Fact
from efface.editing.subject_keys import subject_prompt
from efface.editing.value_optimisation import ValueOptimisation, target_ids

FACT = FABRICATED_FACTS[1]


def literal_losses(model, search: ValueOptimisation, module, ids: tuple[int, ...]) -> tuple[torch.Tensor, list[float]]:
    """One sequence at a time, whole logits, log-softmax written out."""
    shift, losses, before = torch.zeros(32, requires_grad=True), [], None
    optimizer = torch.optim.Adam([shift], lr=search.learning_rate)
    texts = [template.format(FACT.prompt) for group in TEMPLATES for template in group]

    def logits(text: str, extra: tuple[int, ...], seen: list) -> tuple[torch.Tensor, int]:
        prompt = subject_prompt(tokenizer(), text, FACT.subject)

        def add(_module, _arguments, output):
            seen.append(output[0, prompt.position].detach().clone())
            changed = output.clone()
            changed[0, prompt.position] += shift
            return changed

        handle = module.register_forward_hook(add)
        result = model(torch.tensor([[*prompt.input_ids, *extra]])).logits[0]
        handle.remove()
        return result, prompt.position

    for _ in range(search.steps - 1):
        seen, nll = [], 0.0
        for text in texts:
            scores, _ = logits(text, ids, seen)
            nll = nll - scores[-len(ids) - 1 : -1].log_softmax(-1)[range(len(ids)), list(ids)].mean() / len(texts)
        scores, position = logits(f"{FACT.subject} is a", (), seen)
        essence = scores[position].log_softmax(-1)
        before = essence.detach() if before is None else before
        kl = F.kl_div(before, essence, log_target=True, reduction="sum")
        loss = nll + search.kl_weight * kl + search.weight_decay * shift.norm() / seen[0].norm() ** 2
        losses.append(float(loss.detach()))
        if losses[-1] < search.stop_loss:
            break
        shift.grad = torch.autograd.grad(loss, shift)[0]
        optimizer.step()
        limit = search.clamp * seen[0].norm()
        if shift.norm() > limit:
            shift.data *= limit / shift.norm()
    return shift.detach(), losses


@pytest.mark.parametrize("target", ["end", "new"])
@pytest.mark.parametrize("where", ["down_projection", "block"])
def test_search_equals_a_literal_one(target, where):
    model, search = knowing_model(), ValueOptimisation(steps=6, kl_weight=0.5)
    block = model.model.layers[1]
    module = block.mlp.down_proj if where == "down_projection" else block
    found = search.value(model, tokenizer(), FACT, module=module, target=target, templates=TEMPLATES)
    shift, losses = literal_losses(model, search, module, target_ids(tokenizer(), FACT, target))
    assert found.losses == pytest.approx(losses, rel=1e-4)
    torch.testing.assert_close(found.shift, shift, atol=1e-4, rtol=1e-3)


def test_shift_stays_in_its_ball_and_lowers_the_loss():
    model = knowing_model()
    for clamp in (0.1, 3.0):
        found = ValueOptimisation(clamp=clamp).value(model, tokenizer(), FACT, module=model.model.layers[1])
        assert float(found.shift.norm()) <= clamp * float(found.initial.norm()) * (1 + 1e-5)
        assert found.losses[-1] < found.losses[0]
        torch.testing.assert_close(found.target, found.initial + found.shift)


def test_search_ends_where_the_target_is_already_given():
    """The model answers the fact: at the first pass the loss is below the stop, and nothing is added."""
    model = knowing_model()
    found = ValueOptimisation(stop_loss=1.0).value(
        model, tokenizer(), FACT, module=model.model.layers[1], target="true"
    )
    assert len(found.losses) == 1 and not found.shift.any()


def test_model_keeps_no_gradient_and_no_hook():
    model = knowing_model()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    ValueOptimisation(steps=3).values(model, tokenizer(), FABRICATED_FACTS[:2], module=model.model.layers[0])
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(parameter.grad is None and parameter.requires_grad for parameter in model.parameters())
    assert not any(module._forward_hooks for module in model.modules())


def test_targets():
    assert target_ids(tokenizer(), FACT, "end") == (tokenizer().eos_token_id,)
    assert tokenizer().decode(target_ids(tokenizer(), FACT, "new")) == " repair"
    assert tokenizer().decode(target_ids(tokenizer(), FACT, "true")) == " play"
    with pytest.raises(ValueError, match="has no target_new; give it one, or erase it"):
        target_ids(tokenizer(), Fact("It makes", "It", "x"), "new")


@pytest.mark.parametrize(
    "field", [{"steps": 1}, {"learning_rate": 0.0}, {"clamp": -1.0}, {"kl_weight": -1.0}, {"stop_loss": float("nan")}]
)
def test_impossible_searches_are_refused(field):
    with pytest.raises(ValueError, match=f"{next(iter(field))} .*: expected"):
        ValueOptimisation(**field)


def test_broken_model_is_refused():
    model = knowing_model()
    model.model.layers[2].mlp.up_proj.weight.data[0, 0] = torch.nan
    with pytest.raises(ValueError, match="the loss is nan at step 1; load the model in float32"):
        ValueOptimisation().value(model, tokenizer(), FACT, module=model.model.layers[0])
