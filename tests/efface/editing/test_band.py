"""A band edited in one pass equals a literal one that collects every layer's keys anew from the edited model."""

import pytest
import torch
from torch import nn

from efface.activations.capture import activation_batches
from efface.activations.key_statistics import KeyGram, Keys, joined_keys
from efface.editing.band import linear_map, one_shot_edits, sequential_edits
from efface.editing.delta import apply_delta
from efface.editing.grom import Grom
from efface.editing.suppression import specificity_weights
from efface.models import anatomy, module_name, scratch_llama
from efface.tokenization import Encoding

VOCABULARY = 40


def rows(count: int, first: int, last: int, seed: int) -> list[Encoding]:
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(6, 14, (count,), generator=generator).tolist()
    return [Encoding(tuple(torch.randint(first, last, (n,), generator=generator).tolist()), 3) for n in lengths]


FORGET, RETAIN = rows(5, 0, 25, 0), rows(9, 10, VOCABULARY, 1)
TOKENS = [torch.tensor([token for row in side for token in row.answer_ids]) for side in (FORGET, RETAIN)]
ALPHA = specificity_weights(*TOKENS, vocabulary=VOCABULARY)
OPTIONS = dict(batch_size=4, pad_id=0)


def model_of(intermediate: int = 24, *, tied: bool = True):
    return scratch_llama(
        vocab_size=VOCABULARY, layers=4, hidden=16, heads=2, kv_heads=1, intermediate=intermediate,
        tie_embeddings=tied, seed=0,
    )  # fmt: skip


def solver(edit: Grom, model):
    head, unembedding = module_name(model, anatomy(model).unembedding), anatomy(model).unembedding.weight.detach()

    def solve(name, keys, retain):
        if name == head:
            return edit.head_edit(keys, retain, alpha=ALPHA)
        return edit.residual_edit(keys, retain, alpha=ALPHA, unembedding=unembedding)

    return solve


def collected(model, encodings: list[Encoding], name: str) -> Keys:
    """Keys of one module from whole passes through the model as it is now."""
    modules = {} if name == "lm_head" else {name: model.get_submodule(name)}
    parts = [
        Keys(batch.inputs[name], batch.columns.tokens, batch.columns.examples)
        for batch in activation_batches(model, encodings, modules=modules, final="lm_head", **OPTIONS)
    ]
    return joined_keys(parts)


def literal_edits(edit: Grom, layers: tuple[int, ...], *, head: bool, sequential: bool, **shape) -> dict:
    model, solve, edits = model_of(**shape), solver(edit, model_of(**shape)), {}
    for name in [*(f"model.layers.{layer}.mlp.down_proj" for layer in layers), *(["lm_head"] if head else [])]:
        edits[name] = solve(name, collected(model, FORGET, name), collected(model, RETAIN, name).values)
        if sequential:
            apply_delta(model, {f"{name}.weight": edits[name].change})
    return edits


@pytest.mark.parametrize("layers", [(2,), (1, 2), (0, 3)])
@pytest.mark.parametrize("intermediate", [24, 300])
def test_one_pass_equals_collecting_anew_at_every_layer(layers, intermediate):
    edit, model = Grom(beta=4.0, head_beta=2.0), model_of(intermediate)
    edits = sequential_edits(model, FORGET, RETAIN, layers=layers, head=True, solve=solver(edit, model), **OPTIONS)
    literal = literal_edits(edit, layers, head=True, sequential=True, intermediate=intermediate)
    assert list(edits) == list(literal)
    for name, found in edits.items():
        expected = literal[name]
        torch.testing.assert_close(found.change, expected.change, atol=1e-5 * float(expected.change.norm()), rtol=0)
        assert found.influence == pytest.approx(expected.influence, rel=1e-4)


def test_later_layers_see_the_edit_of_earlier_ones():
    edit = Grom(beta=4.0)
    sequential = sequential_edits(
        model_of(), FORGET, RETAIN, layers=(1, 2), head=False, solve=solver(edit, model_of()), **OPTIONS
    )
    one_shot = literal_edits(edit, (1, 2), head=False, sequential=False)
    first, second = (f"model.layers.{layer}.mlp.down_proj" for layer in (1, 2))
    torch.testing.assert_close(sequential[first].change, one_shot[first].change, atol=1e-5, rtol=1e-4)
    assert float((sequential[second].change - one_shot[second].change).norm()) > 0.01


@pytest.mark.parametrize("layers", [(1, 3), ()])
def test_model_is_left_as_it_was_also_after_an_error(layers):
    model, fresh = model_of(), model_of().state_dict()

    def fails(name, keys, retain):
        if name == "lm_head":
            raise ValueError("on purpose")
        return solver(Grom(beta=50.0), model)(name, keys, retain)

    with pytest.raises(ValueError, match="on purpose"):
        sequential_edits(model, FORGET, RETAIN, layers=layers, head=True, solve=fails, **OPTIONS)
    for name, weight in model.state_dict().items():
        assert torch.equal(weight, fresh[name]), name
    assert model.config.tie_word_embeddings
    assert not any(module._forward_pre_hooks or module._forward_hooks for module in model.modules())


def test_one_shot_edits_from_gram_matrices_equal_those_from_raw_keys():
    edit, model = Grom(beta=4.0, sequential=False), model_of()
    names = ["model.layers.1.mlp.down_proj", "model.layers.2.mlp.down_proj"]
    stored = {}
    for name in names:
        forget, whole = collected(model, FORGET, name), KeyGram.empty(24)
        for batch in activation_batches(
            model, [*RETAIN, *FORGET], modules={name: model.get_submodule(name)}, **OPTIONS
        ):
            whole.add(batch.inputs[name])
        stored[name] = (forget, whole.minus(forget.values))
    from_grams = one_shot_edits(iter(stored.items()), solver(edit, model))
    raw = literal_edits(edit, (1, 2), head=False, sequential=False)
    for name in names:
        torch.testing.assert_close(from_grams[name].change, raw[name].change, atol=1e-5, rtol=1e-4)


def test_edit_lowers_the_forget_tokens_and_keeps_the_others():
    def log_probability(model, side) -> float:
        total = 0.0
        for row in side:
            logits = model(torch.tensor([row.input_ids])).logits.detach().log_softmax(-1)[0]
            total += sum(float(logits[p - 1, row.input_ids[p]]) for p in range(row.prompt_length, len(row.input_ids)))
        return total

    model = model_of(300)
    edit = Grom(beta=10.0, retain_weight=1e5, ridge=1e-6)
    before = [log_probability(model, side) for side in (FORGET, RETAIN)]
    edits = sequential_edits(model, FORGET, RETAIN, layers=(2, 3), head=False, solve=solver(edit, model), **OPTIONS)
    apply_delta(model, {f"{name}.weight": change.change for name, change in edits.items()})
    forget, retain = (log_probability(model, side) - old for side, old in zip((FORGET, RETAIN), before, strict=True))
    assert forget < -len(FORGET) and abs(retain) < abs(forget) / 10


def test_impossible_bands_are_refused():
    model = model_of()
    for layers, message in [((0, 4), "layer 4: this model has layers 0 to 3"), ((), "nothing to edit")]:
        with pytest.raises(ValueError, match=message):
            sequential_edits(model, FORGET, RETAIN, layers=layers, head=False, solve=solver(Grom(), model), **OPTIONS)
    with pytest.raises(ValueError, match="5 forget and 0 retain rows"):
        sequential_edits(model, FORGET, [], layers=(1,), head=False, solve=solver(Grom(), model), **OPTIONS)
    with pytest.raises(ValueError, match=r"c_proj is a Conv1d, expected nn\.Linear"):
        linear_map(nn.Conv1d(1, 1, 1), "c_proj")
