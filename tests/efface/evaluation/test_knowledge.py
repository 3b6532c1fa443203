"""KnowMem: few-shot prompts, stop strings, ROUGE-L F1."""

import json

import pytest

from efface.corpora.muse import Knowledge, Question
from efface.corpora.vocabulary import train_byte_bpe
from efface.evaluation.knowledge import few_shot_prompt, knowledge_scores
from efface.models import scratch_llama

SHOTS = (Question("Who painted the hall?", "Ilse Tarrow."), Question("When does it open?", "At seven."))
KNOWLEDGE = Knowledge((Question("Who found the bell?", "A diver."), Question("How deep?", "Nineteen metres.")), SHOTS)


@pytest.fixture(scope="module")
def tokenizer():
    return train_byte_bpe([few_shot_prompt(SHOTS, "Who found the bell?")], vocab_size=300)


@pytest.fixture(scope="module")
def model(tokenizer):
    return scratch_llama(
        vocab_size=len(tokenizer), layers=2, hidden=32, heads=4, kv_heads=2, intermediate=64, tie_embeddings=False,
        seed=1, bos_id=tokenizer.bos_token_id, eos_id=tokenizer.eos_token_id, pad_id=tokenizer.pad_token_id,
    )  # fmt: skip


def test_the_prompt_letter_by_letter():
    assert few_shot_prompt(SHOTS, "How deep?") == (
        "Question: Who painted the hall?\nAnswer: Ilse Tarrow.\n\n"
        "Question: When does it open?\nAnswer: At seven.\n\nQuestion: How deep?\nAnswer: "
    )
    assert few_shot_prompt((), "How deep?") == "Question: How deep?\nAnswer: "


def test_scores_by_hand(model, tokenizer, monkeypatch):
    """ "A diver did" has both words of "A diver.": precision 2/3, recall 1, F1 0.8; nothing written is 0."""
    asked = {}

    def written(_, __, prompts, **settings):
        asked.update(settings, prompts=prompts)
        return ["A diver did", ""]

    monkeypatch.setattr("efface.evaluation.knowledge.generate_answers", written)
    assert knowledge_scores(model, tokenizer, KNOWLEDGE, batch_size=2) == [pytest.approx(0.8), 0]
    assert asked["stop_strings"] == ("\n\n", "\nQuestion", "Question:")
    assert asked["max_new_tokens"] == 32
    assert asked["prompts"][1] == tuple(tokenizer(few_shot_prompt(SHOTS, "How deep?"))["input_ids"])


def test_batch_size_changes_nothing(model, tokenizer):
    one, other = (knowledge_scores(model, tokenizer, KNOWLEDGE, batch_size=size) for size in (1, 2))
    assert one == other


def test_no_questions_are_refused(model, tokenizer):
    with pytest.raises(ValueError, match="KnowMem without questions; expected at least one"):
        knowledge_scores(model, tokenizer, Knowledge((), SHOTS), batch_size=1)


@pytest.mark.parametrize("subject", ["forget", "retain"])
@pytest.mark.parametrize("name", ["full", "unlearned", "retain", "start"])
def test_scores_are_the_oracles(oracle, name, subject):
    """open-unlearning's knowmem ROUGE-L F1 of every row; it stems."""

    def questions(file):
        lines = (oracle.folder / f"rows/muse_{subject}_{file}.jsonl").read_text().splitlines()
        return tuple(Question(row["question"], row["answer"]) for row in map(json.loads, lines))

    knowledge = Knowledge(questions("qa"), questions("qa_icl"))
    logged = oracle.expected["metrics"][name]["muse"][f"{subject}_knowmem_ROUGE"]["value_by_index"]
    expected = [logged[str(place)]["rougeL_f1"] for place in range(len(knowledge.questions))]
    assert logged["0"]["input"] == few_shot_prompt(knowledge.shots, knowledge.questions[0].question)
    found = knowledge_scores(oracle.models[name], oracle.tokenizer, knowledge, batch_size=4, stem=True)
    assert found == pytest.approx(expected, abs=1e-12)
