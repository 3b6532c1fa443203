"""Runs of the anchor selection on a tiny model: what they leave, how they rank, how they vote together."""

import pytest
import torch

from efface.difficulty.anchor_runs import AnchorRun, anchor_run, answer_losses, roles_ranked, vote_of_runs
from efface.difficulty.anchors import AnchorSelection, BilevelSchedule
from efface.editing.delta import apply_delta
from efface.models import scratch_llama
from efface.tokenization import Encoding
from efface.unlearning.descent import unlearned_delta
from efface.unlearning.methods import GradDiff, Npo

ENCODINGS = [Encoding((1, 3 + n, 4 + n, 10 + 2 * n, 11 + 2 * n, 2), 3) for n in range(8)]
CANDIDATES, RETAIN = ENCODINGS[:6], ENCODINGS[6:]
METHODS = (
    GradDiff(learning_rate=1e-3, epochs=2, batch_size=3, gradient_accumulation=1),
    Npo(learning_rate=1e-3, epochs=2, batch_size=3, gradient_accumulation=1),
)


@pytest.fixture(scope="module")
def model():
    return scratch_llama(
        vocab_size=30, layers=1, hidden=32, heads=4, kv_heads=2, intermediate=48, tie_embeddings=True, seed=0
    )


@pytest.mark.parametrize("method", METHODS, ids=["grad_diff", "npo"])
def test_a_voting_run_measures_the_unlearned_model_and_gives_the_start_back(model, method):
    before = {name: value.clone() for name, value in model.state_dict().items()}
    selection = AnchorSelection(methods=METHODS, size=2, batch_size=4)
    run = anchor_run(model, CANDIDATES, RETAIN, selection=selection, method=method, ranked_for="both", pad_id=0, seed=1)
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    apply_delta(model, unlearned_delta(method, model, CANDIDATES, RETAIN, pad_id=0, seed=1))
    unlearned = answer_losses(model, CANDIDATES, batch_size=4, pad_id=0)
    model.load_state_dict(before)
    assert torch.equal(run.losses, unlearned)
    assert run.ranks.tolist() == unlearned.argsort().argsort().tolist()
    assert run.ranks_for("easy").tolist() == (5 - run.ranks).tolist()


def test_a_bilevel_run_chooses_for_one_role_by_weight(model):
    schedule = BilevelSchedule(epochs=2, learning_rate=0.1, unlearn_epochs=1, unlearn_learning_rate=1e-3)
    selection = AnchorSelection(rule="bilevel", size=2, methods=METHODS[:1], bilevel=schedule)
    runs = [
        anchor_run(
            model, CANDIDATES, RETAIN, selection=selection, method=METHODS[0], ranked_for=role, pad_id=0, seed=seed
        )
        for seed in (0, 1)
        for role in roles_ranked(selection)
    ]
    assert [run.ranked_for for run in runs] == ["easy", "hard"] * 2
    assert runs[0].ranks_for("hard") is None and sorted(runs[0].ranks.tolist()) == list(range(6))
    vote = vote_of_runs(runs, size=2, min_votes=None)
    assert set(vote["easy"].places.tolist()).isdisjoint(vote["hard"].places.tolist())


def test_answer_losses_are_those_of_the_models_own_loss(model):
    losses = answer_losses(model, CANDIDATES, batch_size=4, pad_id=0)
    for loss, encoding in zip(losses.tolist(), CANDIDATES, strict=True):
        labels = torch.tensor([[-100] * encoding.prompt_length + list(encoding.answer_ids)])
        assert loss == pytest.approx(model(torch.tensor([encoding.input_ids]), labels=labels).loss.item(), rel=1e-5)


def test_runs_vote_by_their_ranks():
    """Two voting runs agree on the hardest (0) and the easiest (3)."""
    runs = [AnchorRun("both", torch.zeros(4).double(), torch.tensor(ranks)) for ranks in ([0, 1, 2, 3], [0, 2, 1, 3])]
    vote = vote_of_runs(runs, size=1, min_votes=2)
    assert vote["hard"].places.tolist() == [0] and vote["easy"].places.tolist() == [3]
    assert vote["easy"].mean_rank.tolist() == [0] and vote["easy"].agreed == (True,)


def test_a_role_without_runs_is_refused():
    with pytest.raises(ValueError, match=r"runs ranked for \['easy'\]: expected some for each"):
        vote_of_runs([AnchorRun("easy", torch.zeros(4).double(), torch.arange(4))], size=1, min_votes=None)
