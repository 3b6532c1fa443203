"""Request files: every line is a request, or refused by its name, its place and the reason."""

import json
from pathlib import Path

import polars as pl
import pytest

from efface.corpora.example import content_hash
from flows.request_files import RequestFileError, checked, read_requests, request_files

FLAGS = ("trained", "pool", "utility", "anchor_candidate")
FIT = {"trained": True, "pool": True, "utility": False, "anchor_candidate": False}
HASHES = [content_hash(f"Who {number}?", f"Me {number}.") for number in range(4)]
EXAMPLES = pl.DataFrame({"id": [10, 11, 12, 13], "content_hash": HASHES, **{flag: [FIT[flag]] * 4 for flag in FLAGS}})


def written(folder: Path, *lines: dict | str, name: str = "requests.jsonl") -> Path:
    text = "\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines)
    (folder / name).write_text(text + "\n")
    return folder / name


def test_an_example_is_named_by_hash_or_word_for_word(tmp_path):
    file = read_requests(
        written(
            tmp_path,
            {"request": "a", "content_hash": HASHES[0]},
            "",
            {"request": "b", "question": "Who 1?", "answer": "Me 1.", "action": "withdraw"},
        )
    )
    assert [(each.request, each.action, each.content_hash, each.line) for each in file.requests] == [
        ("a", "delete", HASHES[0], 1),
        ("b", "withdraw", HASHES[1], 3),
    ]
    assert not file.malformed and len(file.digest) == 64


def test_parquet_says_the_same_as_json_lines(tmp_path):
    rows = [
        {"request": "a", "action": "delete", "content_hash": HASHES[0], "question": None, "answer": None},
        {"request": "b", "action": None, "content_hash": None, "question": "Who 1?", "answer": "Me 1."},
    ]
    pl.DataFrame(rows).write_parquet(tmp_path / "requests.parquet")
    found = read_requests(tmp_path / "requests.parquet").requests
    assert [(each.request, each.action, each.content_hash) for each in found] == [
        ("a", "delete", HASHES[0]),
        ("b", "delete", HASHES[1]),
    ]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("not json", "line: Input should be"),
        ("[1]", "line: Input should be"),
        ({"content_hash": HASHES[0]}, "request: Field required"),
        ({"request": "", "content_hash": HASHES[0]}, "request: String should have at least 1 character"),
        ({"request": "x"}, "expected either content_hash, or question and answer"),
        ({"request": "x", "question": "Who 1?"}, "expected either content_hash, or question and answer"),
        (
            {"request": "x", "content_hash": HASHES[0], "question": "Who 0?", "answer": "Me 0."},
            "expected either content_hash",
        ),
        ({"request": "x", "content_hash": "../../etc/passwd"}, "content_hash: String should match pattern"),
        ({"request": "x", "content_hash": HASHES[0], "action": "rm -rf /"}, "action: Input should be 'delete'"),
        ({"request": "x", "content_hash": HASHES[0], "beta": 3}, "beta: Extra inputs are not permitted"),
    ],
)
def test_malformed_lines_are_refused_and_the_others_proceed(tmp_path, line, reason):
    file = read_requests(written(tmp_path, {"request": "good", "content_hash": HASHES[1]}, line))
    assert [each.request for each in file.requests] == ["good"]
    (refused,) = file.malformed
    assert (refused.file, refused.line) == ("requests.jsonl", 2)
    assert refused.reason.startswith("malformed: ") and reason in refused.reason


def test_a_file_that_is_not_whole_is_named(tmp_path):
    (tmp_path / "half.parquet").write_bytes(b"PAR1 and no more")
    (tmp_path / "latin.jsonl").write_bytes(b'{"request": "caf\xe9"}')
    for name in ("half.parquet", "latin.jsonl"):
        with pytest.raises(RequestFileError, match=f"{name}: .*expected a whole Parquet or JSON-lines file"):
            read_requests(tmp_path / name)
    (tmp_path / "notes.txt").write_text("no requests")
    assert [path.name for path in request_files(tmp_path)] == ["half.parquet", "latin.jsonl"]


def requests(folder: Path, *lines: dict):
    return read_requests(written(folder, *lines)).requests


def reasons(folder: Path, *lines: dict, standing: tuple[str, ...] = (), examples: pl.DataFrame = EXAMPLES):
    accepted, refused = checked(requests(folder, *lines), examples, standing)
    return [(each.request, each.example) for each in accepted], [(each.request, each.reason) for each in refused]


def test_what_is_unknown_or_named_twice_is_refused(tmp_path):
    accepted, refused = reasons(
        tmp_path,
        {"request": "a", "content_hash": HASHES[2]},
        {"request": "b", "content_hash": HASHES[2]},
        {"request": "a", "content_hash": HASHES[3]},
        {"request": "c", "content_hash": "0" * 64},
        {"request": "d", "content_hash": HASHES[0]},
    )
    assert accepted == [("a", 12), ("d", 10)]
    assert [(name, reason.partition(":")[0]) for name, reason in refused] == [
        ("b", "duplicate"),
        ("a", "duplicate"),
        ("c", "unknown"),
    ]


def test_only_what_stands_can_be_withdrawn_and_it_cannot_be_asked_again(tmp_path):
    accepted, refused = reasons(
        tmp_path,
        {"request": "a", "content_hash": HASHES[0], "action": "withdraw"},
        {"request": "b", "content_hash": HASHES[1], "action": "withdraw"},
        {"request": "c", "content_hash": HASHES[2]},
        standing=(HASHES[0], HASHES[2]),
    )
    assert accepted == [("a", 10)]
    assert [name for name, _ in refused] == ["b", "c"]
    assert "no request for this example stands" in refused[0][1] and "stands already" in refused[1][1]


@pytest.mark.parametrize("flag", FLAGS)
def test_examples_that_cannot_be_forgotten_are_refused(tmp_path, flag):
    unfit = EXAMPLES.with_columns(pl.Series(flag, [not FIT[flag], *[FIT[flag]] * 3]))
    lines = [{"request": str(number), "content_hash": HASHES[number]} for number in range(2)]
    accepted, ((name, reason),) = reasons(tmp_path, *lines, examples=unfit)
    assert accepted == [("1", 11)] and name == "0" and reason.startswith("impossible: the example ")
