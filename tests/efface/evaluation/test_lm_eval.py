"""lm-evaluation-harness itself on a local task with the same tiny model: the same log-likelihoods and accuracies."""

import json

import pytest

from efface.corpora.vocabulary import train_byte_bpe
from efface.corpora.wmdp import ChoiceQuestion
from efface.evaluation.multiple_choice import accuracy, choice_prompt, model_choices
from efface.models import scratch_llama

PLACES = ("the quay", "the old hall", "a mill", "the upper bridge", "a lighthouse")
QUESTIONS = [
    ChoiceQuestion(f"Where was bell number {n} found?", tuple(PLACES[(n + k) % 5] for k in range(4)), n % 4)
    for n in range(12)
]  # fmt: skip
TEMPLATES = {
    "letter": {
        "doc_to_text": "{{question.strip()}}\nA. {{choices[0]}}\nB. {{choices[1]}}\n"
        "C. {{choices[2]}}\nD. {{choices[3]}}\nAnswer:",
        "doc_to_choice": ["A", "B", "C", "D"],
    },
    "cloze": {"doc_to_text": "Question: {{question.strip()}}\nAnswer:", "doc_to_choice": "{{choices}}"},
}  # fmt: skip


@pytest.fixture(scope="module")
def tokenizer():
    return train_byte_bpe([choice_prompt(asked, form="letter") for asked in QUESTIONS], vocab_size=330)


@pytest.fixture(scope="module")
def model(tokenizer):
    return scratch_llama(
        vocab_size=len(tokenizer), layers=2, hidden=32, heads=4, kv_heads=2, intermediate=64, tie_embeddings=True,
        seed=3, bos_id=tokenizer.bos_token_id, eos_id=tokenizer.eos_token_id, pad_id=tokenizer.pad_token_id,
    )  # fmt: skip


@pytest.mark.parametrize("form", ["letter", "cloze"])
def test_accuracies_and_log_likelihoods_are_the_harnesss(model, tokenizer, form, tmp_path, monkeypatch):
    from lm_eval.evaluator import simple_evaluate
    from lm_eval.models.huggingface import HFLM

    rows = [{"question": asked.question, "choices": asked.choices, "answer": asked.answer} for asked in QUESTIONS]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    task = {
        "task": f"bells_{form}", "dataset_path": "json", "test_split": "test", "output_type": "multiple_choice",
        "dataset_kwargs": {"data_files": {"test": str(tmp_path / "rows.jsonl")}, "cache_dir": str(tmp_path)},
        "doc_to_target": "answer", "metric_list": [{"metric": "acc"}, {"metric": "acc_norm"}], **TEMPLATES[form],
    }  # fmt: skip
    harness = HFLM(pretrained=model, tokenizer=tokenizer, device="cpu", batch_size=4, add_bos_token=True)
    results = simple_evaluate(harness, tasks=[task], bootstrap_iters=0, log_samples=True)
    found, samples = results["results"][f"bells_{form}"], results["samples"][f"bells_{form}"]
    for normalisation, metric in (("none", "acc,none"), ("characters", "acc_norm,none")):
        ours = model_choices(model, tokenizer, QUESTIONS, batch_size=5, form=form, normalisation=normalisation)
        assert accuracy(ours) == pytest.approx(found[metric])
        if normalisation == "none":
            by_document = {sample["doc_id"]: sample["filtered_resps"] for sample in samples}
            for number, choice in enumerate(ours):
                theirs = [float(log_likelihood) for log_likelihood, _ in by_document[number]]
                assert choice.log_likelihoods == pytest.approx(theirs, abs=1e-4)
    assert 0 < found["acc,none"] < 1
