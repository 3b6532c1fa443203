"""The lower level: weights decide what is forgotten, and the model comes back as it was."""

import pytest
import torch

from efface.difficulty.bilevel import bilevel_choice
from efface.difficulty.weighted_unlearning import weighted_unlearning_losses
from efface.evaluation.scoring import score_answers
from efface.models import scratch_llama
from efface.tokenization import Encoding
from efface.unlearning.methods import GradDiff, Npo, Undial

ENCODINGS = [Encoding((1, 3 + n, 4 + n, 10 + 2 * n, 11 + 2 * n, 2), 3) for n in range(6)]
SCHEDULE = {"epochs": 3, "learning_rate": 2e-3, "batch_size": 3, "pad_id": 0, "seed": 0}


@pytest.fixture(scope="module")
def model():
    return scratch_llama(
        vocab_size=30, layers=2, hidden=32, heads=4, kv_heads=2, intermediate=48, tie_embeddings=True, seed=0
    )


@pytest.mark.parametrize("method", [GradDiff(), Undial(alpha=1.0)], ids=["grad_diff", "undial"])
def test_what_weighs_is_forgotten_and_the_rest_kept(model, method):
    before = {name: value.clone() for name, value in model.state_dict().items()}
    weights = torch.tensor([1.0, 1.0, 1.0, 0.0, 0.0, 0.0])
    losses = weighted_unlearning_losses(model, ENCODINGS, weights, method=method, **SCHEDULE)
    mirrored = weighted_unlearning_losses(model, ENCODINGS, 1 - weights, method=method, **SCHEDULE)
    assert (losses[:3] > mirrored[:3]).all() and (losses[3:] < mirrored[3:]).all()
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())


def test_one_step_is_a_sign_step_of_the_weighted_mean_loss(model):
    weights = torch.tensor([0.3, 0.9, 0.0])
    ours = weighted_unlearning_losses(
        model, ENCODINGS[:3], weights, method=GradDiff(gamma=2.0, alpha=0.5), **SCHEDULE | {"epochs": 1}
    )
    before = {name: value.clone() for name, value in model.state_dict().items()}
    total = 0
    for share, encoding in zip(weights.tolist(), ENCODINGS, strict=False):
        labels = torch.tensor([[-100] * encoding.prompt_length + list(encoding.answer_ids)])
        nll = model(input_ids=torch.tensor([encoding.input_ids]), labels=labels).loss
        total = total + (-2.0 * share + 0.5 * (1 - share)) * nll / 3
    total.backward()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter -= 2e-3 * parameter.grad.sign()
            parameter.grad = None
    scores = score_answers(model, ENCODINGS[:3], batch_size=3, pad_id=0)
    model.load_state_dict(before)
    assert ours.tolist() == pytest.approx([score.nll for score in scores], rel=1e-3)


def test_no_epochs_leave_the_losses_of_the_model_itself(model):
    losses = weighted_unlearning_losses(model, ENCODINGS, torch.ones(6), method=GradDiff(), **SCHEDULE | {"epochs": 0})
    assert losses.tolist() == [score.nll for score in score_answers(model, ENCODINGS, batch_size=3, pad_id=0)]


def test_drives_the_bilevel_choice(model):
    def unlearn(weights):
        return weighted_unlearning_losses(model, ENCODINGS, weights, method=GradDiff(), **SCHEDULE)

    easy = bilevel_choice(unlearn, role="easy", count=6, size=2, epochs=3, learning_rate=0.1)
    assert len(easy.places) == 2 and easy.losses.shape == (3, 6)


def test_other_methods_and_other_counts_are_refused(model):
    with pytest.raises(ValueError, match="method 'npo': the bi-level selection knows grad_diff and undial"):
        weighted_unlearning_losses(model, ENCODINGS, torch.ones(6), method=Npo(), **SCHEDULE)
    with pytest.raises(ValueError, match="2 weights for 6 examples"):
        weighted_unlearning_losses(model, ENCODINGS, torch.ones(2), method=GradDiff(), **SCHEDULE)
