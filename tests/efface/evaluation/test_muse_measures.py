"""All of MUSE's measures of one model, against open-unlearning's aggregates."""

import json
from dataclasses import replace

import pytest

from efface.corpora.muse import Knowledge, Muse, Passage, Question
from efface.evaluation.membership import priv_leak
from efface.evaluation.muse_measures import muse_scores


@pytest.fixture(scope="module")
def muse(oracle):
    def rows(name):
        return [json.loads(line) for line in (oracle.folder / f"rows/muse_{name}.jsonl").read_text().splitlines()]

    def questions(name):
        return tuple(Question(row["question"], row["answer"]) for row in rows(name))

    texts = {name: tuple(row["text"] for row in rows(f"privleak_{name}")) for name in ("forget", "holdout")}
    return Muse(
        passages=tuple(Passage(row["prompt"], row["gt"]) for row in rows("verbmem")),
        forget_knowledge=Knowledge(questions("forget_qa"), questions("forget_qa_icl")),
        retain_knowledge=Knowledge(questions("retain_qa"), questions("retain_qa_icl")),
        forget_texts=texts["forget"],
        retain_texts=(),
        holdout_texts=texts["holdout"],
    )


@pytest.mark.parametrize("name", ["full", "unlearned"])
def test_means_are_the_oracles(oracle, muse, name):
    """Whole texts: the reference leaves out the last token of each, which does not move these AUCs."""
    found = muse_scores(oracle.models[name], oracle.tokenizer, muse, batch_size=8, stem=True)
    expected = oracle.expected["summary"][name]["muse"]
    assert found.forget_verbatim == pytest.approx(expected["forget_verbmem_ROUGE"], abs=1e-12)
    assert found.forget_knowledge == pytest.approx(expected["forget_knowmem_ROUGE"], abs=1e-12)
    assert found.retain_knowledge == pytest.approx(expected["retain_knowmem_ROUGE"], abs=1e-12)
    assert found.min_k_auc == expected["mia_min_k"]
    retained = oracle.expected["summary"]["retain"]["muse"]["mia_min_k"]
    assert priv_leak(found.min_k_auc, retained) == pytest.approx(expected["privleak"], abs=1e-6)


@pytest.mark.parametrize(
    ("part", "message"),
    [
        ({"passages": ()}, "VerbMem without passages"),
        ({"forget_knowledge": Knowledge((), ())}, "KnowMem without questions"),
        ({"holdout_texts": ()}, "without outsiders; expected at least one score, from a set withheld for it"),
    ],
)
def test_a_missing_part_is_named(oracle, muse, part, message):
    with pytest.raises(ValueError, match=message):
        muse_scores(oracle.models["start"], oracle.tokenizer, replace(muse, **part), batch_size=8)
