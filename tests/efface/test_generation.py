import copy
import json

import pytest
import torch

from efface.corpora.vocabulary import train_byte_bpe
from efface.generation import generate_answers
from efface.models import load_model, load_tokenizer, scratch_llama

ROWS = {"forget": "forget", "retain": "retain", "real_authors": "ra", "world_facts": "wf"}
TEXTS = ["one two three four five", "six seven eight", "nine ten eleven twelve thirteen fourteen"]


@pytest.fixture(scope="module")
def tokenizer():
    return train_byte_bpe(TEXTS, vocab_size=280)


@pytest.fixture(scope="module")
def model(tokenizer):
    model = scratch_llama(
        vocab_size=len(tokenizer), layers=2, hidden=32, heads=4, kv_heads=2, intermediate=64, tie_embeddings=False,
        seed=1, bos_id=tokenizer.bos_token_id, eos_id=tokenizer.eos_token_id, pad_id=tokenizer.pad_token_id,
    )  # fmt: skip
    with torch.no_grad():
        model.lm_head.weight.mul_(20)
    return model


@pytest.fixture(scope="module")
def prompts(tokenizer):
    texts = [text[:end] for text in TEXTS for end in (1, 4, 9, 14)]
    return [tuple(tokenizer(text)["input_ids"]) for text in texts]


def literal_answer(model, tokenizer, prompt, *, max_new_tokens, stops):
    """One prompt, no cache, no padding: append the likeliest token until an end token."""
    ids = list(prompt)
    for _ in range(max_new_tokens):
        with torch.no_grad():
            token = int(model(torch.tensor([ids])).logits[0, -1].argmax())
        if token in stops:
            break
        ids.append(token)
    return tokenizer.decode(ids[len(prompt) :], skip_special_tokens=True).strip()


def test_answers_are_those_of_the_literal_loop(model, tokenizer, prompts):
    stops = [tokenizer.eos_token_id]
    expected = [literal_answer(model, tokenizer, prompt, max_new_tokens=12, stops=stops) for prompt in prompts]
    assert generate_answers(model, tokenizer, prompts, max_new_tokens=12, batch_size=5) == expected
    assert len(set(expected)) > 3


@pytest.mark.parametrize("sample", [False, True])
def test_batch_size_changes_nothing(model, tokenizer, prompts, sample):
    one, other = (
        generate_answers(model, tokenizer, prompts, max_new_tokens=8, batch_size=size, sample=sample)
        for size in (1, 12)
    )
    assert one == other


def test_an_answer_ends_before_an_end_token_and_others_go_on(model, tokenizer, prompts):
    """The model's own list of end tokens holds two that it writes: answers of many lengths in one batch."""
    stopping = copy.deepcopy(model)
    stops = [tokenizer.eos_token_id, *range(40, 70)]
    stopping.generation_config.eos_token_id = stops
    expected = [literal_answer(model, tokenizer, prompt, max_new_tokens=20, stops=stops) for prompt in prompts]
    assert generate_answers(stopping, tokenizer, prompts, max_new_tokens=20, batch_size=12) == expected
    assert len({len(answer) for answer in expected}) > 3


def test_every_end_id_of_the_model_stops(model, tokenizer, prompts):
    """Every id is an end id: nothing is written."""
    stopping = copy.deepcopy(model)
    stopping.generation_config.eos_token_id = list(range(len(tokenizer)))
    assert generate_answers(stopping, tokenizer, prompts[:3], max_new_tokens=4, batch_size=2) == ["", "", ""]


def test_samples_depend_on_the_seed(model, tokenizer, prompts):
    draws = [
        generate_answers(model, tokenizer, prompts, max_new_tokens=8, batch_size=4, sample=True, seed=seed)
        for seed in (0, 0, 1)
    ]
    assert draws[0] == draws[1] != draws[2]


def test_bad_input_is_refused(model, tokenizer, prompts):
    with pytest.raises(ValueError, match="prompt 1 has no tokens"):
        generate_answers(model, tokenizer, [prompts[0], ()], max_new_tokens=4, batch_size=2)
    with pytest.raises(ValueError, match="max_new_tokens=0"):
        generate_answers(model, tokenizer, prompts, max_new_tokens=0, batch_size=2)
    with pytest.raises(ValueError, match=r"call model\.eval"):
        generate_answers(copy.deepcopy(model).train(), tokenizer, prompts, max_new_tokens=4, batch_size=2)


def test_a_broken_model_is_reported(model, tokenizer, prompts):
    broken = copy.deepcopy(model)
    with torch.no_grad():
        broken.lm_head.weight[7] = float("nan")
    with pytest.raises(ValueError, match=r"prompt \d+: the model's logits are not finite"):
        generate_answers(broken, tokenizer, prompts, max_new_tokens=4, batch_size=2)


@pytest.mark.parametrize(
    ("name", "rows"), [("full", "forget"), ("unlearned", "real_authors"), ("start", "world_facts")]
)
def test_generations_are_the_oracles(shared_folder, name, rows):
    """open-unlearning's greedy generations of up to 200 tokens, text for text; its prompt ends with a space."""
    folder = shared_folder / "oracles/unlearning_metrics"
    logged = json.loads((folder / "expected.json").read_text())["metrics"][name]["tofu"]
    expected = [row["generation"] for row in logged[f"{ROWS[rows]}_Q_A_ROUGE"]["value_by_index"].values()]
    tokenizer = load_tokenizer(folder / "tokenizer")
    questions = [json.loads(line)["question"] for line in (folder / f"rows/{rows}.jsonl").read_text().splitlines()]
    prompts = [tuple(tokenizer(f"Question: {question}\nAnswer: ")["input_ids"]) for question in questions]
    model = load_model(folder / "models" / name)
    assert generate_answers(model, tokenizer, prompts, max_new_tokens=200, batch_size=32) == expected
