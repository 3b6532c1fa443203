import json

import pytest

from efface.evaluation.rouge import rouge_score, unicode_words


def test_stemming_is_on_by_default():
    """ "running" and "runs" share the stem "run"; without stemming no word is shared."""
    assert rouge_score("running", "runs").rouge1_recall == 1.0
    assert rouge_score("running", "runs", stem=False).rouge1_recall == 0.0


def test_longest_common_subsequence_by_hand():
    """ "the cat sat on the mat" keeps four words in order inside "the mat sat on the cat": the sat on the."""
    assert rouge_score("the cat sat on the mat", "the mat sat on the cat").rougeL_recall == pytest.approx(4 / 6)


@pytest.mark.parametrize("words", ["ascii", "unicode"])
def test_pairs_are_the_oracles(oracle, words):
    """Unicode words score as ASCII words wherever a text is ASCII."""
    pure = oracle.expected["pure_functions"]
    for pair in [*pure["rouge_pairs"], *pure["rouge_pairs_with_muse_stopwords"]]:
        if words == "unicode" and not pair["ground_truth"].isascii():
            continue
        score = rouge_score(pair["ground_truth"], pair["generation"], words=words)
        expected = (pair["rouge1_recall"], pair["rougeL_recall"], pair["rougeL_f1"])
        assert (score.rouge1_recall, score.rougeL_recall, score.rougeL_f1) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("model", ["full", "unlearned", "retain", "start"])
def test_every_generation_scores_as_the_oracles(oracle, model):
    for short in ("forget", "retain", "ra", "wf"):
        logged = oracle.metric(model, f"{short}_Q_A_ROUGE")
        found = []
        for row in logged["value_by_index"].values():
            score = rouge_score(row["ground_truth"], row["generation"])
            assert (score.rouge1_recall, score.rougeL_recall, score.rougeL_f1) == pytest.approx(
                (row["rouge1_recall"], row["rougeL_recall"], row["rougeL_f1"]), abs=1e-12
            )
            found.append(score.rougeL_recall)
        assert sum(found) / len(found) == pytest.approx(logged["agg_value"], abs=1e-12)


def test_unicode_words_keep_marks_and_part_scripts_without_spaces():
    assert unicode_words("Zürich's café") == ["zürich", "s", "café"]
    assert unicode_words("हिन्दी में लेखक") == ["हिन्दी", "में", "लेखक"]
    assert unicode_words("1956 년 9월") == ["1956", "년", "9월"]
    assert unicode_words("東京Tower2") == ["東", "京", "tower2"]


@pytest.mark.parametrize("language", ["ko", "hi", "ar"])
def test_other_scripts_score_with_unicode_words_and_are_refused_with_ascii_ones(shared_folder, language):
    path = shared_folder / "data/multilingual_tofu" / language / "forget01_perturbed.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    for row in rows:
        assert rouge_score(row["answer"], row["answer"], words="unicode").rougeL_recall == 1.0
    overlaps = [rouge_score(row["answer"], row["paraphrased_answer"], words="unicode").rougeL_recall for row in rows]
    assert sum(overlap > 0 for overlap in overlaps) > 0.9 * len(rows)
    with pytest.raises(ValueError, match="rouge_words: unicode"):
        for row in rows:
            rouge_score(row["answer"], row["paraphrased_answer"])


def test_a_truth_without_words_is_refused():
    with pytest.raises(ValueError, match="has no words"):
        rouge_score("?!", "anything")


def test_an_empty_generation_scores_zero():
    assert rouge_score("one two three", "").rougeL_recall == 0.0
