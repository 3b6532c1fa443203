"""Keys stand at the last subject token whatever the tokenizer; means and second moments equal literal ones."""

import pytest
import torch
from fact_models import CORPUS, TEMPLATES, random_model, tokenizer
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from efface.activations.capture import captured_inputs
from efface.corpora.facts import FABRICATED_FACTS, Fact
from efface.editing.subject_keys import (
    contextual_prompts,
    key_grams,
    sampled_templates,
    second_moment,
    subject_keys,
    subject_prompt,
)
from efface.models import load_tokenizer
from efface.tokenization import Encoding

FACTS = FABRICATED_FACTS
PROMPTS = [
    ("Old Sarnath is a city", "Old Sarnath"),
    ("What is spoken in Old Sarnath", "Old Sarnath"),
    ("What is spoken in Old Sarnath?", " Old Sarnath "),
    ("So. Old Sarnath, or Old Sarnath by the sea?", "Old Sarnath"),
    ("Which instrument does Ilsa Brandt-Okoro", "Ilsa Brandt-Okoro"),
    ("Question: who is Ómsk's Kö?\nAnswer:", "Ómsk's Kö"),
]


def dummy_prefix() -> PreTrainedTokenizerFast:
    """A tokenizer that puts a space before any text, as Llama-2's does."""
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Metaspace(prepend_scheme="always"), pre_tokenizers.Punctuation()]
    )
    bpe.decoder = decoders.Metaspace(prepend_scheme="always")
    bpe.train_from_iterator(
        [*CORPUS, *(text for text, _ in PROMPTS)], trainers.BpeTrainer(vocab_size=200, special_tokens=["<s>", "</s>"])
    )
    return PreTrainedTokenizerFast(tokenizer_object=bpe, bos_token="<s>", eos_token="</s>")


@pytest.fixture(params=["byte_level", "dummy_prefix", "oracle"])
def any_tokenizer(request):
    if request.param == "oracle":
        return load_tokenizer(request.getfixturevalue("shared_folder") / "oracles" / "unlearning_metrics" / "tokenizer")
    return {"byte_level": tokenizer, "dummy_prefix": dummy_prefix}[request.param]()


@pytest.mark.parametrize(
    ("text", "subject"),
    PROMPTS,
)
def test_position_is_the_last_subject_token(any_tokenizer, text, subject):
    """What is decoded up to the position ends with the subject, and up to the one before it does not."""
    prompt = subject_prompt(any_tokenizer, text, subject)

    def decoded(stop: int) -> str:
        return any_tokenizer.decode(prompt.input_ids[:stop], skip_special_tokens=True)

    assert list(prompt.input_ids) == any_tokenizer(text)["input_ids"]
    before = text[: text.rindex(subject.strip())]
    assert decoded(prompt.position + 1).strip() == (before + subject.strip()).strip()
    assert not decoded(prompt.position).rstrip().endswith(subject.strip()) or before.count(subject.strip())


def test_a_token_that_goes_on_beyond_the_subject_still_counts():
    """Where the subject ends inside a token, that token is its last one."""
    prompt = subject_prompt(tokenizer(), "The capital of Velmoras is", "Velmora")
    assert (
        tokenizer()
        .decode(prompt.input_ids[: prompt.position + 1], skip_special_tokens=True)
        .startswith("The capital of Velmora")
    )


@pytest.mark.parametrize("subject", ["", " ", "Quenland"])
def test_subjects_that_are_not_there_are_refused(subject):
    with pytest.raises(ValueError, match=rf"subject '{subject}' of prompt .* expected text that stands in it"):
        subject_prompt(tokenizer(), "The capital of Velmora is", subject)


def literal_keys(model, layer: int) -> torch.Tensor:
    """One prompt at a time, groups averaged with equal weight."""
    keys = []
    for fact in FACTS:
        groups = []
        for group in TEMPLATES:
            states = []
            for template in group:
                prompt = subject_prompt(tokenizer(), template.format(fact.prompt), fact.subject)
                with captured_inputs({"key": model.model.layers[layer].mlp.down_proj}) as seen, torch.no_grad():
                    model(torch.tensor([prompt.input_ids]))
                states.append(seen["key"][0, prompt.position])
            groups.append(torch.stack(states).mean(0))
        keys.append(torch.stack(groups).mean(0))
    return torch.stack(keys)


@pytest.mark.parametrize("layer", [0, 2])
def test_keys_equal_literal_ones(layer):
    model = random_model()
    found = subject_keys(model, tokenizer(), FACTS, layer=layer, templates=TEMPLATES, batch_size=3)
    torch.testing.assert_close(found, literal_keys(model, layer), atol=1e-6, rtol=1e-4)


def test_second_moment_equals_a_literal_one():
    model = random_model()
    rows = [tokenizer()(text)["input_ids"] for text in CORPUS]
    keys = []
    for ids in rows:
        with captured_inputs({"key": model.model.layers[1].mlp.down_proj}) as seen, torch.no_grad():
            model(torch.tensor([ids]))
        keys.append(seen["key"][0, :-1].double())
    expected = torch.cat(keys).mT @ torch.cat(keys) / len(torch.cat(keys))
    for corpus in (iter(CORPUS), [Encoding(tuple(ids), 1) for ids in rows]):
        grams = key_grams(model, tokenizer(), corpus, layers=(0, 1), batch_size=4)
        torch.testing.assert_close(second_moment(grams, 1), expected, atol=1e-8, rtol=1e-5)


def test_templates_are_the_same_for_the_same_seed():
    model = random_model()
    greedy, drawn = sampled_templates(model, tokenizer()), sampled_templates(model, tokenizer(), seed=1)
    assert greedy == sampled_templates(model, tokenizer()) and drawn == sampled_templates(model, tokenizer(), seed=1)
    assert greedy != drawn
    assert drawn[0] == ("{}",) and len(drawn[1]) == 5
    for template, opening in zip(drawn[1], ("The", "Therefore", "Because", "I", "You"), strict=True):
        assert template.startswith(f"{opening} ") and template.endswith(". {}") and template.count("{") == 1
    assert len(contextual_prompts(tokenizer(), FACTS[0], drawn)) == 6


@pytest.mark.parametrize("templates", [(("{}",), ()), (("So. {}", "{}"),), (("{}", "no place"),), ()])
def test_impossible_templates_are_refused(templates):
    with pytest.raises(ValueError, match="expected groups of texts with one"):
        contextual_prompts(tokenizer(), FACTS[0], templates)


def test_impossible_requests_are_refused():
    model = random_model()
    with pytest.raises(ValueError, match="no facts left to edit"):
        subject_keys(model, tokenizer(), [], layer=0)
    for collect in (
        lambda: subject_keys(model, tokenizer(), FACTS, layer=3),
        lambda: key_grams(model, tokenizer(), CORPUS, layers=(3,)),
    ):
        with pytest.raises(ValueError, match="layer 3: this model has layers 0 to 2"):
            collect()
    with pytest.raises(ValueError, match="corpus of 0 texts has no keys"):
        key_grams(model, tokenizer(), [], layers=(0,))
    with pytest.raises(ValueError, match=r"layer 1: no Gram matrix of its keys, given \[0\]"):
        second_moment(key_grams(model, tokenizer(), CORPUS, layers=(0,)), 1)
    slow = Fact("It makes", "It", "x")
    model.model.layers[0].mlp.up_proj.weight.data[0, 0] = torch.nan
    with pytest.raises(ValueError, match="layer 0: the key of 'It makes' holds NaN or infinity"):
        subject_keys(model, tokenizer(), [slow], layer=0)
    with pytest.raises(ValueError, match="keys hold NaN or infinity"):
        key_grams(model, tokenizer(), CORPUS, layers=(0,))
