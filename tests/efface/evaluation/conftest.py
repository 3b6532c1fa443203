"""The open-unlearning oracle: its models, rows, token layout and expected values (see its README)."""

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pytest

from efface.evaluation.scoring import AnswerScore, score_answers
from efface.models import load_model, load_tokenizer
from efface.tokenization import Encoding

MODELS = ("full", "unlearned", "retain", "start")
SHORT = {"forget": "forget", "retain": "retain", "real_authors": "ra", "world_facts": "wf"}


@dataclass(frozen=True)
class Oracle:
    """Expected values of one reference run, and what is needed to compute them again."""

    folder: Path

    @cached_property
    def expected(self) -> dict:
        return json.loads((self.folder / "expected.json").read_text())

    @cached_property
    def rows(self) -> dict[str, list[dict]]:
        lines = {name: (self.folder / f"rows/{name}.jsonl").read_text().splitlines() for name in SHORT}
        return {name: [json.loads(line) for line in of_name] for name, of_name in lines.items()}

    @cached_property
    def tokenizer(self):
        return load_tokenizer(self.folder / "tokenizer")

    @cached_property
    def models(self) -> dict:
        return {name: load_model(self.folder / "models" / name) for name in MODELS}

    def metric(self, model: str, name: str) -> dict:
        return self.expected["metrics"][model]["tofu"][name]

    def values(self, model: str, name: str, field: str) -> list:
        by_index = self.metric(model, name)["value_by_index"]
        return [by_index[str(place)][field] for place in range(len(by_index))]

    def prompt(self, question: str) -> tuple[int, ...]:
        """The reference's generation prompt, which ends with a space of its own."""
        return tuple(self.tokenizer(f"Question: {question}\nAnswer: ")["input_ids"])

    def encoding(self, question: str, answer: str) -> Encoding:
        """The reference's layout: joined text and EOS, the boundary at the length of the prompt tokenized alone."""
        joined = self.tokenizer(f"Question: {question}\nAnswer: {answer}")["input_ids"]
        return Encoding((*joined, self.tokenizer.eos_token_id), len(self.prompt(question)))

    @cached_property
    def scores(self) -> dict[tuple[str, str, str], list]:
        """(model, rows, kind) → scores in row order; kind is answer or paraphrase, or perturbed (a list a row)."""
        return {key: value for model in MODELS for key, value in self._scores_of(model).items()}

    def _scores_of(self, model: str) -> dict[tuple[str, str, str], list]:
        texts = [
            (name, kind, row["question"], text)
            for name, rows in self.rows.items()
            for row in rows
            for kind, text in [
                ("answer", row["answer"]),
                *([("paraphrase", row["paraphrased_answer"])] if "paraphrased_answer" in row else []),
                *(("perturbed", wrong) for wrong in row["perturbed_answer"]),
            ]
        ]
        encodings = [self.encoding(question, text) for _, _, question, text in texts]
        scores = score_answers(self.models[model], encodings, batch_size=32, pad_id=2)
        found: dict[tuple[str, str, str], list] = {}
        for (name, kind, _, _), score in zip(texts, scores, strict=True):
            found.setdefault((model, name, kind), []).append(score)
        for name, rows in self.rows.items():
            wrong, per_row = found[model, name, "perturbed"], len(rows[0]["perturbed_answer"])
            found[model, name, "perturbed"] = [wrong[i : i + per_row] for i in range(0, len(wrong), per_row)]
        return found

    def right_nlls(self, model: str, name: str) -> list[float]:
        kind = "paraphrase" if name in ("forget", "retain") else "answer"
        return [score.nll for score in self.scores[model, name, kind]]

    def wrong_nlls(self, model: str, name: str) -> list[list[float]]:
        return [[score.nll for score in row] for row in self.scores[model, name, "perturbed"]]

    def answers(self, model: str, name: str) -> list[AnswerScore]:
        return self.scores[model, name, "answer"]


@pytest.fixture(scope="session")
def oracle(shared_folder) -> Oracle:
    folder = shared_folder / "oracles/unlearning_metrics"
    if not folder.is_dir():
        pytest.skip(f"oracle not found at {folder}")
    return Oracle(folder)
