"""Other answers: refusals for every question, or draws that depend on the seed alone and survive a kill."""

from dataclasses import replace

import pytest

from efface.corpora.vocabulary import train_byte_bpe
from efface.models import scratch_llama
from efface.tokenization import encode
from efface.unlearning import alternatives
from efface.unlearning.alternatives import Asked, alternative_texts, alternatives_record, sampled_answers
from efface.unlearning.methods import AltPo, Flat, IdkDpo, Npo
from efface.unlearning.refusals import REFUSALS

ROWS = (("Who built the mill?", "Anna built it."), ("When?", "In 1901."), ("Where is the mill?", "On the hill."))
METHOD = AltPo(alternatives=3, max_new_tokens=6)


@pytest.fixture(scope="module")
def asked() -> Asked:
    tokenizer = train_byte_bpe([text for row in ROWS for text in row], vocab_size=300)
    return Asked(ROWS, tokenizer, template="plain", max_length=64)


@pytest.fixture(scope="module")
def model(asked):
    return scratch_llama(
        vocab_size=len(asked.tokenizer), layers=1, hidden=16, heads=2, kv_heads=1, intermediate=16,
        tie_embeddings=True, seed=0, eos_id=asked.tokenizer.eos_token_id,
    ).eval()  # fmt: skip


def test_there_are_a_hundred_refusals_and_no_two_are_equal():
    assert len(REFUSALS) == len(set(REFUSALS)) == 100


@pytest.mark.parametrize("method", [IdkDpo(), Flat()])
def test_refusals_are_ours_or_the_given_ones(model, asked, method):
    assert alternative_texts(method, model, asked, seed=0) == [REFUSALS] * 3
    given = replace(method, refusals=("No idea.", "Pass."))
    texts = alternative_texts(given, model, asked, seed=0)
    assert texts == [("No idea.", "Pass.")] * 3
    found = {key: value for key, value in alternatives_record(given, texts).items() if key != "sha256"}
    assert found == {"source": "given refusals", "fewest": 2, "most": 2, "distinct": 2}


def test_methods_without_alternatives_get_none(model, asked):
    assert alternative_texts(Npo(), model, asked, seed=0) is None


def test_alternatives_are_tokenized_as_answers_to_their_own_question(asked):
    [[first, second], [], [third]] = asked.encoded([["Bob did.", "I don't know."], [], ["In the vale."]])
    plain = {"template": "plain", "max_length": 64}
    assert first == encode(asked.tokenizer, ROWS[0][0], "Bob did.", **plain)
    assert second.input_ids[: second.prompt_length] == first.input_ids[: first.prompt_length]
    assert third == encode(asked.tokenizer, ROWS[2][0], "In the vale.", **plain)
    with pytest.raises(ValueError, match="answer '' of question 'When\\?' has no tokens"):
        asked.encoded([[], [""], []])


def test_samples_depend_on_the_seed_alone(model, asked):
    first, again, other, batched = (
        sampled_answers(method, model, asked, seed=seed)
        for method, seed in ((METHOD, 0), (METHOD, 0), (METHOD, 1), (replace(METHOD, batch_size=1), 0))
    )
    assert first == again == batched != other
    assert [len(texts) for texts in first] == [3, 3, 3]
    assert len({text for texts in first for text in texts}) == 9
    record = alternatives_record(METHOD, first)
    assert record["source"] == "sampled from the base" and record["distinct"] == 9
    assert (
        record["sha256"] == alternatives_record(METHOD, again)["sha256"] != alternatives_record(METHOD, other)["sha256"]
    )


def test_the_model_reads_question_answer_and_instruction(model, asked, monkeypatch):
    """Question, true answer and instruction, then "Answer:" again: the plain template around all three."""
    seen = []
    monkeypatch.setattr(alternatives, "generate_answers", lambda m, t, prompts, **_: seen.append(prompts) or ["x"] * 3)
    sampled_answers(replace(METHOD, alternatives=1, instruction="Lie."), model, asked, seed=0)
    text = asked.tokenizer.decode(seen[0][1], skip_special_tokens=True)
    assert text == "Question: When?\nAnswer: In 1901.\nLie.\nAnswer:"


def test_killed_sampling_goes_on_after_the_last_finished_draw(model, asked, tmp_path, monkeypatch):
    expected, calls = sampled_answers(METHOD, model, asked, seed=0), []
    whole = alternatives.generate_answers

    def killed_at_the_second(*arguments, **settings):
        calls.append(settings["seed"])
        if len(calls) == 2:
            raise KeyboardInterrupt
        return whole(*arguments, **settings)

    monkeypatch.setattr(alternatives, "generate_answers", killed_at_the_second)
    with pytest.raises(KeyboardInterrupt):
        sampled_answers(METHOD, model, asked, seed=0, checkpoint_folder=tmp_path)
    for _ in range(2):
        assert sampled_answers(METHOD, model, asked, seed=0, checkpoint_folder=tmp_path) == expected
    assert calls == [0, 1, 1, 2]


def test_draws_without_text_are_left_out_and_a_question_without_any_is_named(model, asked, monkeypatch):
    draws = iter([["a", "", "b"], ["", "c", ""], ["d", "e", ""]])
    monkeypatch.setattr(alternatives, "generate_answers", lambda *_, **__: next(draws))
    texts = sampled_answers(METHOD, model, asked, seed=0)
    assert texts == [("a", "d"), ("c", "e"), ("b",)]
    assert {alternatives_record(METHOD, texts)[key] for key in ("fewest", "most")} == {1, 2}
    monkeypatch.setattr(alternatives, "generate_answers", lambda *_, **__: ["a", "", "b"])
    with pytest.raises(
        ValueError, match=r"alt_po: 3 draws for question 'When\?' and none has text; raise alternatives"
    ):
        sampled_answers(METHOD, model, asked, seed=0)
