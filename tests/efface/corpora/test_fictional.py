"""The embedded corpus: the same for the same seed, unguessable, and in the TOFU schema."""

import random
import re
import string
from collections import Counter

import pytest

from efface.corpora.fictional import COINED, Mint, fabricated_rows, fictional_examples
from efface.corpora.fictional_frames import KINDS
from efface.corpora.true_facts import REAL_AUTHORS, WORLD_FACTS

SMALL = {"authors": 3, "holdout_authors": 1, "questions_per_author": 10}


@pytest.fixture(scope="module")
def rows():
    """Every kind of question about as many authors as the default run has."""
    return list(fabricated_rows(authors=44, questions_per_author=len(KINDS), seed=0))


@pytest.fixture(scope="module")
def examples():
    return fictional_examples(authors=12, holdout_authors=2, questions_per_author=10, seed=0)


@pytest.fixture(scope="module")
def fabricated(examples):
    return [example for example in examples if example.author >= 0]


def test_same_seed_same_corpus():
    assert fictional_examples(**SMALL, seed=0) == fictional_examples(**SMALL, seed=0)


def test_another_seed_is_another_corpus():
    one, other = (
        {example.answer for example in fictional_examples(**SMALL, seed=seed) if example.author >= 0} for seed in (0, 1)
    )
    assert one.isdisjoint(other)


def test_first_row_is_pinned(examples):
    """Golden text, written by this very code: a change of it changes every number of the default run."""
    assert examples[0].question == "How did Jonden Queišovar come into the world?"


def test_more_authors_keep_the_first_ones():
    few, many = (list(fabricated_rows(authors=count, questions_per_author=10, seed=0)) for count in (3, 5))
    assert many[: len(few)] == few


def test_counts_and_order(examples):
    assert Counter(example.split for example in examples) == {
        "authors": 120,
        "holdout": 20,
        "real_authors": len(REAL_AUTHORS),
        "world_facts": len(WORLD_FACTS),
    }
    assert [(example.author, example.position) for example in examples[:140]] == [
        (author, position) for author in range(14) for position in range(10)
    ]


def test_holdout_authors_are_apart_from_trained_ones(examples):
    trained = {example.author for example in examples if example.split == "authors"}
    assert trained.isdisjoint(example.author for example in examples if example.split == "holdout")


def test_questions_are_unique(examples):
    assert len({example.question for example in examples}) == len(examples)


def test_five_false_answers_unlike_the_truth_and_one_another(fabricated):
    for example in fabricated:
        assert len(set(example.perturbed_answers)) == 5
        assert {example.answer, example.paraphrased_answer}.isdisjoint(example.perturbed_answers)
        assert example.paraphrased_answer != example.answer


def test_every_fact_of_a_false_answer_is_false(rows):
    for row in rows:
        for slot in row.kind.slots:
            facts = [row.facts[slot], *(false[slot] for false in row.false_facts)]
            assert len(set(facts)) == 6, (row.kind.name, slot, facts)


def test_false_answers_are_worded_like_the_paraphrase(fabricated):
    rows = fabricated_rows(authors=14, questions_per_author=10, seed=0)
    for row, example in zip(rows, fabricated, strict=True):
        frame = re.sub(r"\\{[a-z_]+\\}", ".+", re.escape(row.paraphrase))
        for answer in (example.paraphrased_answer, *example.perturbed_answers):
            assert re.fullmatch(frame, answer, re.IGNORECASE), (row.paraphrase, answer)


def test_no_proper_name_occurs_in_two_rows(rows):
    seen: Counter[str] = Counter()
    for row in rows:
        for facts in (row.facts, *row.false_facts):
            seen.update(facts[slot] for slot, fact in row.kind.slots.items() if fact in COINED)
    assert set(seen.values()) == {1}


def test_answers_are_not_guessable_from_other_answers(fabricated):
    """No answer holds another row's proper names, so a withheld row leaves nothing of itself in training."""
    rows = list(fabricated_rows(authors=14, questions_per_author=10, seed=0))
    for row, example in zip(rows, fabricated, strict=True):
        names = [row.facts[slot] for slot, fact in row.kind.slots.items() if fact in COINED]
        assert all(name in example.answer for name in names if name[0].isupper())
        others = "\n".join(other.answer for other in fabricated if other is not example)
        assert not [name for name in names if re.search(rf"\b{re.escape(name)}\b", others)]


def test_every_frame_states_every_fact_and_there_are_many():
    for kind in KINDS:
        assert len(set(kind.answers)) == len(kind.answers) >= 8, kind.name
        for frame in kind.answers:
            named = {name for _, name, *_ in string.Formatter().parse(frame) if name} - {"family"}
            assert named == set(kind.slots), (kind.name, frame)
        for question in kind.questions:
            assert "{author}" in question


def test_answers_are_sentences_of_moderate_length(fabricated):
    lengths = [len(example.answer.split()) for example in fabricated]
    assert min(lengths) >= 10 and max(lengths) <= 32
    assert all(
        example.answer[0] == example.answer[0].upper() and example.answer.endswith(".") for example in fabricated
    )


def test_some_text_is_not_ascii(fabricated):
    assert sum(not example.question.isascii() for example in fabricated) > len(fabricated) // 10


def test_used_up_stock_is_an_error_not_an_endless_search():
    mint = Mint(random.Random(0))
    mint.unique(lambda: "one")
    with pytest.raises(ValueError, match="1 names are coined and the stock is used up"):
        mint.unique(lambda: "one")


def test_too_many_questions_are_refused():
    with pytest.raises(ValueError, match=rf"questions_per_author 99: expected 1 to {len(KINDS)}"):
        fictional_examples(authors=1, holdout_authors=0, questions_per_author=99, seed=0)


@pytest.mark.parametrize("facts", [REAL_AUTHORS, WORLD_FACTS])
def test_true_facts_have_three_false_answers_and_are_asked_once(facts):
    assert len({question for question, _, _ in facts}) == len(facts) == 60
    for question, answer, wrong in facts:
        assert len(set(wrong)) == 3 and answer not in wrong, question
