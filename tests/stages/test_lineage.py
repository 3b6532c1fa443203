"""What a lock says about a file: its recipe, what measured it, and what it leaves unexplained."""

import copy

from stages.lineage import gaps, lineage_of, lineage_sha256, steps


def stage(deps: dict[str, str], outs: dict[str, str]) -> dict:
    listed = {"deps": deps, "outs": outs}
    return {
        "cmd": "do",
        **{key: [{"path": path, "md5": md5} for path, md5 in of.items()] for key, of in listed.items()},
    }


LOCK = {
    "prepare_data": stage({"make.py": "c"}, {"data/prepare_data": "1.dir", "data/forget_sets/default.parquet": "2"}),
    "train_target": stage({"data/prepare_data": "1.dir"}, {"models/target": "3.dir"}),
    "score_cud": stage({"models/target": "3.dir"}, {"data/score_cud": "4.dir"}),
    "edit@a-default": stage(
        {"models/target": "3.dir", "data/forget_sets/default.parquet": "2"}, {"models/edit/a-default": "5.dir"}
    ),
    "evaluate@a-default": stage({"models/edit/a-default": "5.dir"}, {"data/evaluate/a-default": "6.dir"}),
    "quantize_attack@a-default": stage({"models/edit/a-default": "5.dir"}, {"data/quantize_attack/a-default": "7.dir"}),
    "evaluate@b-default": stage({"models/target": "3.dir"}, {"data/evaluate/b-default": "8.dir"}),
}


def lineage(lock: dict) -> dict:
    return lineage_of(lock, "models/edit/a-default", "a-default")


def test_recipe_and_measurement_are_told_apart() -> None:
    found = lineage(LOCK)
    assert list(found["stages"]) == ["edit@a-default", "train_target", "prepare_data"]
    assert set(found["measured"]) == {"score_cud", "evaluate@a-default", "quantize_attack@a-default"}
    assert gaps(found) == []
    assert {step: list(stages) for step, stages in steps(found).items() if stages} == {
        "base model": ["train_target"],
        "data and forget set": ["prepare_data"],
        "circuits and CUD": ["score_cud"],
        "edit": ["edit@a-default"],
        "evaluation": ["evaluate@a-default"],
        "attack": ["quantize_attack@a-default"],
    }


def test_only_the_recipe_is_in_the_hash() -> None:
    again = copy.deepcopy(LOCK)
    again["evaluate@a-default"]["outs"][0]["md5"] = "9.dir"
    assert lineage_sha256(lineage(again)) == lineage_sha256(lineage(LOCK))
    again["train_target"]["cmd"] = "do it otherwise"
    assert lineage_sha256(lineage(again)) != lineage_sha256(lineage(LOCK))


def test_gaps_are_named() -> None:
    partial = copy.deepcopy(LOCK)
    del partial["quantize_attack@a-default"], partial["prepare_data"]
    partial["evaluate@a-default"]["deps"][0]["md5"] = "0.dir"
    assert gaps(lineage(partial)) == [
        "no stage recorded for: data and forget set",
        "no stage recorded for: attack",
        "edit@a-default read data/forget_sets/default.parquet, which no recorded stage writes",
        "train_target read data/prepare_data, which no recorded stage writes",
        "evaluate@a-default read models/edit/a-default as 0.dir, but it was written as 5.dir; run `dvc repro`",
    ]
