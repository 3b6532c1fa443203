import copy
import json

import pytest
import torch

from efface.corpora.vocabulary import train_byte_bpe
from efface.generation import before_any, generate_answers
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


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("It is red.\n\nQuestion: why?", "It is red."),
        ("Rye bread Question: and", "Rye bread "),
        ("Oren\nAnswer: two", "Oren\nAnswer: two"),
        ("Six miles\nQuestion: far", "Six miles"),
        ("\n\nLate", ""),
    ],
)
def test_a_text_ends_before_its_first_stop_string(text, expected):
    assert before_any(text, ("\n\n", "\nQuestion", "Question:")) == expected
    assert before_any(text, ()) == text


@pytest.mark.parametrize("batch_size", [1, 12])
def test_stop_strings_cut_what_is_written_without_them(model, tokenizer, prompts, batch_size):
    """Pairs of characters that the model does write, also across its tokens."""
    settings = {"max_new_tokens": 12, "batch_size": batch_size}
    whole = generate_answers(model, tokenizer, prompts, **settings)
    stops = tuple(whole[place][length : length + 2] for place, length in ((0, 3), (5, 6), (9, 1)))
    found = generate_answers(model, tokenizer, prompts, **settings, stop_strings=stops)
    assert found == [before_any(text, stops).strip() for text in whole] != whole


def test_a_stop_string_ends_the_work(model, tokenizer, prompts, monkeypatch):
    """Twelve forward passes without; with the first character as stop string, as many as it took to write it."""
    passes = []
    whole = generate_answers(model, tokenizer, prompts[:1], max_new_tokens=12, batch_size=1)
    forward = model.forward
    monkeypatch.setattr(model, "forward", lambda **inputs: passes.append(1) or forward(**inputs))
    stops = (whole[0][0],)
    assert generate_answers(model, tokenizer, prompts[:1], max_new_tokens=12, batch_size=1, stop_strings=stops) == [""]
    assert len(passes) <= 2


def test_samples_depend_on_the_seed(model, tokenizer, prompts):
    draws = [
        generate_answers(model, tokenizer, prompts, max_new_tokens=8, batch_size=4, sample=True, seed=seed)
        for seed in (0, 0, 1)
    ]
    assert draws[0] == draws[1] != draws[2]


def test_a_low_temperature_writes_the_greedy_answers(model, tokenizer, prompts):
    settings = {"max_new_tokens": 8, "batch_size": 4}
    cold, hot = (
        generate_answers(model, tokenizer, prompts, **settings, sample=True, temperature=t) for t in (1e-4, 3.0)
    )
    assert cold == generate_answers(model, tokenizer, prompts, **settings) != hot


def test_bad_input_is_refused(model, tokenizer, prompts):
    with pytest.raises(ValueError, match="prompt 1 has no tokens"):
        generate_answers(model, tokenizer, [prompts[0], ()], max_new_tokens=4, batch_size=2)
    with pytest.raises(ValueError, match="max_new_tokens=0"):
        generate_answers(model, tokenizer, prompts, max_new_tokens=0, batch_size=2)
    with pytest.raises(ValueError, match=r"temperature=0\.0: expected more than 0"):
        generate_answers(model, tokenizer, prompts, max_new_tokens=4, batch_size=2, sample=True, temperature=0.0)
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
