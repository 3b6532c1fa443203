"""The reference implementation's losses and gradient norms, and hand sums where it has none."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor
from transformers import LlamaForCausalLM, PreTrainedModel

from efface.models import anatomy, load_model
from efface.training.losses import (
    ceu_loss,
    dpo_loss,
    grad_ascent_loss,
    kl_loss,
    nll_loss,
    npo_loss,
    pdu_loss,
    rmu_loss,
    satimp_loss,
    scored_counts,
    sequence_log_probs,
    simnpo_loss,
    token_log_probs,
    undial_loss,
    weighted_ascent_loss,
)

PAIRS = [("full", "full"), ("unlearned_early", "full"), ("unlearned", "full"), ("full", "unlearned")]
LOSS = {"rel": 3e-5, "abs": 1e-6}
GRADIENT = {"rel": 1e-4}


@pytest.fixture(scope="module")
def oracle(shared_folder: Path) -> dict:
    return json.loads((shared_folder / "oracles/unlearning_metrics/expected.json").read_text())["losses"]


@pytest.fixture(scope="module")
def models(shared_folder: Path) -> dict[str, PreTrainedModel]:
    folder = shared_folder / "oracles/unlearning_metrics/models"
    return {name: load_model(folder / name) for name in ("full", "unlearned_early", "unlearned")}


@pytest.mark.parametrize(("model", "reference"), PAIRS)
def test_losses_and_gradient_norms_equal_the_reference_implementation(oracle, models, model, reference):
    """Every setting of one model pair: loss within 3e-5 relative, gradient norm within 1e-4, as its README suggests."""
    side = {name: {key: torch.tensor(value) for key, value in oracle["batch"][name].items()} for name in BATCHES}
    step = Step(models[model], models[reference], side, oracle["rmu_control_vector"])
    wrong = []
    for name, expected in oracle["pairs"][f"model={model},ref={reference}"].items():
        spec = oracle["methods"][name]
        loss = TOTALS[spec["trainer"]](step, **spec["method_args"])
        norm = gradient_norm(loss, models[model])
        if loss.item() != pytest.approx(expected["loss"], **LOSS) or norm != pytest.approx(
            expected["grad_norm"], **GRADIENT
        ):
            wrong.append((name, loss.item(), expected["loss"], norm, expected["grad_norm"]))
    assert not wrong


def test_sequence_sums_and_counts_equal_the_reference_implementation(oracle, models):
    batch = {key: torch.tensor(value) for key, value in oracle["batch"]["forget"].items()}
    log_probs = sequence_log_probs(logits_of(models["full"], batch), batch["labels"])
    assert (-log_probs).tolist() == pytest.approx(
        oracle["batch"]["sequence_nll"]["full"]["forget"]["sum_nll"], rel=2e-5
    )
    assert scored_counts(batch["labels"]).tolist() == oracle["batch"]["n_label_tokens"]["forget"]


def test_correct_forms_equal_the_published_ones_where_the_defects_do_not_show():
    """Equal lengths for RMU's broadcast; for UNDIAL every position but the last scored, so that no −100 is indexed."""
    generator = torch.Generator().manual_seed(0)
    logits, reference = torch.randn(2, 3, 5, 7, generator=generator)
    labels = torch.randint(7, (3, 5), generator=generator)
    assert undial_loss(logits, reference, labels, beta=3.0) == pytest.approx(
        undial_loss(logits, reference, labels, beta=3.0, published_mask=True)
    )
    labels[:, :2] = -100
    assert rmu_loss(logits, reference, labels) == pytest.approx(
        rmu_loss(logits, reference, labels, published_broadcast=True)
    )


def test_rmu_is_the_mean_over_examples_of_each_mean_distance():
    """Two examples, distances 1 per position: 4 answer tokens at (0 − 2)² = 4 and one at 0 → (4 + 0) / 2 = 2.

    The published broadcast gives mean(16, 0) · mean(1/4, 1) = 8 · 0.625 = 5.
    """
    activations = torch.zeros(2, 4, 3)
    activations[1] += 2
    target = torch.full((3,), 2.0)
    labels = torch.tensor([[1, 1, 1, 1], [-100, -100, -100, 1]])
    assert rmu_loss(activations, target, labels) == pytest.approx(2.0)
    assert rmu_loss(activations, target, labels, published_broadcast=True) == pytest.approx(5.0)


def test_undial_ignores_prompt_and_padding():
    """Changing logits where nothing is scored changes the published form and not the correct one."""
    generator = torch.Generator().manual_seed(0)
    logits, reference = torch.randn(2, 2, 6, 9, generator=generator)
    labels = torch.full((2, 6), -100)
    labels[:, 2:5] = 3
    changed = logits.clone()
    changed[:, [0, 4, 5]] += torch.randn(9, generator=generator)
    correct, published = ({"beta": 10.0, "published_mask": flag} for flag in (False, True))
    assert undial_loss(changed, reference, labels, **correct) == undial_loss(logits, reference, labels, **correct)
    assert undial_loss(changed, reference, labels, **published) != undial_loss(logits, reference, labels, **published)


def test_kl_over_a_mask_does_not_depend_on_padding():
    generator = torch.Generator().manual_seed(0)
    logits, reference = torch.randn(2, 2, 4, 5, generator=generator)
    mask = torch.tensor([[1, 1, 1, 0], [1, 1, 0, 0]])
    short = kl_loss(logits[:, :3], reference[:, :3], mask[:, :3])
    torch.testing.assert_close(kl_loss(logits, reference, mask), short)
    assert kl_loss(logits, logits) == 0


def test_token_log_probs_are_zero_where_nothing_is_scored_and_wide_in_half_precision():
    """Uniform logits over 4 tokens: log ¼ at the two scored positions."""
    labels = torch.tensor([[-100, 2, 3, -100]])
    result = token_log_probs(torch.zeros(1, 4, 4, dtype=torch.bfloat16), labels)
    torch.testing.assert_close(result, torch.tensor([[0.25, 0.25, 1.0]]).log())


def test_losses_descend_in_the_direction_they_promise():
    """d loss / d log p(answer): positive for every forgetting loss, negative for NLL, by a central difference."""
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(2, 5, 7, generator=generator, dtype=torch.float64)
    labels = torch.tensor([[-100, -100, 1, 2, 3], [-100, 4, 5, 6, -100]])
    answer = torch.zeros_like(logits)
    for row, position in (labels[:, 1:] != -100).nonzero().tolist():
        answer[row, position, labels[row, position + 1]] = 1
    reference = sequence_log_probs(logits + answer, labels)
    losses: dict[str, Callable[[Tensor], Tensor]] = {
        "grad_ascent": lambda z: grad_ascent_loss(z, labels),
        "npo": lambda z: npo_loss(sequence_log_probs(z, labels), reference, beta=0.1),
        "simnpo": lambda z: simnpo_loss(sequence_log_probs(z, labels), scored_counts(labels), beta=2.5, delta=0.1),
        "undial": lambda z: undial_loss(z, logits, labels, beta=10.0),
        "ceu": lambda z: ceu_loss(z, labels, skip=0),
        "-nll": lambda z: -nll_loss(z, labels),
    }
    for name, loss in losses.items():
        assert loss(logits + 1e-4 * answer) > loss(logits - 1e-4 * answer), name


BATCHES = ("forget", "retain", "forget_alternate")


class Step:
    """One oracle batch seen by a model and its frozen reference."""

    def __init__(self, model, reference, side, control):
        self.model, self.reference, self.side, self.control = model, reference, side, control

    def logits(self, name: str) -> Tensor:
        return logits_of(self.model, self.side[name])

    def reference_logits(self, name: str) -> Tensor:
        with torch.no_grad():
            return logits_of(self.reference, self.side[name])

    def labels(self, name: str) -> Tensor:
        return self.side[name]["labels"]

    def retain(self, kind: str) -> Tensor:
        if kind == "KL":
            return kl_loss(self.logits("retain"), self.reference_logits("retain"))
        return nll_loss(self.logits("retain"), self.labels("retain"))

    def sums(self, name: str) -> tuple[Tensor, Tensor]:
        labels = self.labels(name)
        return (
            sequence_log_probs(self.logits(name), labels),
            sequence_log_probs(self.reference_logits(name), labels),
        )


def logits_of(model: LlamaForCausalLM, batch: dict[str, Tensor]) -> Tensor:
    return model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"], use_cache=False).logits


def gradient_norm(loss: Tensor, model: PreTrainedModel) -> float:
    gradients = torch.autograd.grad(loss, list(model.parameters()), allow_unused=True)
    return sum(float(g.double().square().sum()) for g in gradients if g is not None) ** 0.5


def total(step: Step, forget: Tensor, *, gamma: float, alpha: float, retain_loss_type: str) -> Tensor:
    return gamma * forget + alpha * step.retain(retain_loss_type)


def grad_diff(step: Step, **weights) -> Tensor:
    return total(step, grad_ascent_loss(step.logits("forget"), step.labels("forget")), **weights)


def npo(step: Step, beta: float, **weights) -> Tensor:
    return total(step, npo_loss(*step.sums("forget"), beta=beta), **weights)


def simnpo(step: Step, beta: float, delta: float, **weights) -> Tensor:
    sums, counts = step.sums("forget")[0], scored_counts(step.labels("forget"))
    return total(step, simnpo_loss(sums, counts, beta=beta, delta=delta), **weights)


def dpo(step: Step, beta: float, **weights) -> Tensor:
    return total(step, dpo_loss(*step.sums("forget_alternate"), *step.sums("forget"), beta=beta), **weights)


def undial(step: Step, beta: float, **weights) -> Tensor:
    forget = undial_loss(
        step.logits("forget"), step.reference_logits("forget"), step.labels("forget"), beta=beta, published_mask=True
    )
    return total(step, forget, **weights)


def wga(step: Step, beta: float, **weights) -> Tensor:
    return total(step, weighted_ascent_loss(step.logits("forget"), step.labels("forget"), beta=beta), **weights)


def satimp(step: Step, beta1: float, beta2: float, **weights) -> Tensor:
    forget = satimp_loss(step.logits("forget"), step.labels("forget"), beta1=beta1, beta2=beta2)
    return total(step, forget, **weights)


def ceu(step: Step, ignore_first_n_answer_tokens: int) -> Tensor:
    return ceu_loss(step.logits("forget"), step.labels("forget"), skip=ignore_first_n_answer_tokens)


def pdu(step: Step, gamma: float, alpha: float, retain_loss_eps: float, retain_loss_type: str, **_) -> Tensor:
    forget = pdu_loss(step.logits("forget"), step.labels("forget"), published_shift=True)
    return gamma * forget + alpha * (step.retain(retain_loss_type) - retain_loss_eps)


def rmu(step: Step, steering_coeff, alpha, gamma, retain_loss_type, module_regex, **_) -> Tensor:
    layer = int(module_regex.rsplit(".", 1)[1])
    control = torch.tensor(step.control[f"steering_coeff_{steering_coeff}"])
    hidden = activations(step.model, step.side["forget"], layer)
    forget = rmu_loss(hidden, control, step.labels("forget"), published_broadcast=True)
    if retain_loss_type == "NLL":
        return gamma * forget + alpha * step.retain("NLL")
    with torch.no_grad():
        target = activations(step.reference, step.side["retain"], layer)
    hidden = activations(step.model, step.side["retain"], layer)
    return gamma * forget + alpha * rmu_loss(hidden, target, step.labels("retain"), published_broadcast=True)


def activations(model: LlamaForCausalLM, batch: dict[str, Tensor], layer: int) -> Tensor:
    caught = []
    block = anatomy(model).layers[layer].block
    handle = block.register_forward_hook(lambda _module, _inputs, output: caught.append(output))
    logits_of(model, batch)
    handle.remove()
    return caught[0]


TOTALS: dict[str, Callable[..., Tensor]] = {
    "GradAscent": lambda step: grad_ascent_loss(step.logits("forget"), step.labels("forget")),
    "GradDiff": grad_diff,
    "NPO": npo,
    "SimNPO": simnpo,
    "DPO": dpo,
    "UNDIAL": undial,
    "WGA": wga,
    "SatImp": satimp,
    "CEU": ceu,
    "PDU": pdu,
    "RMU": rmu,
}
