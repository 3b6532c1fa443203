"""Deletion requests as people hand them in: JSON-lines or Parquet files in a folder, checked one request at a time."""

import hashlib
import io
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import polars as pl
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from efface.corpora.example import content_hash
from stages.accept_requests import refusals

Action = Literal["delete", "withdraw"]


class RequestFileError(ValueError):
    """A file that cannot be read at all; nothing of it is refused or accepted until it can."""


class Line(BaseModel):
    """One request: a name for it, and the example by its content hash or word for word."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    request: str = Field(min_length=1, max_length=200)
    action: Action = "delete"
    content_hash: str | None = Field(default=None, pattern=r"^[0-9a-f]{64}$")
    question: str | None = None
    answer: str | None = None

    @model_validator(mode="after")
    def _names_one_example(self) -> "Line":
        if (self.content_hash is None) == (self.question is None or self.answer is None):
            raise ValueError("expected either content_hash, or question and answer")
        return self


@dataclass(frozen=True)
class Request:
    """A request of the right form; `example` is its row of the corpus once it was found there."""

    request: str
    action: Action
    content_hash: str
    file: str
    line: int
    example: int = -1


@dataclass(frozen=True)
class Refusal:
    """A request that is not carried out, and why."""

    request: str
    file: str
    line: int
    reason: str


@dataclass(frozen=True)
class RequestFile:
    """A file with the SHA-256 of its bytes, its requests, and what has not the form of one."""

    name: str
    digest: str
    requests: tuple[Request, ...]
    malformed: tuple[Refusal, ...]


def request_files(folder: Path) -> list[Path]:
    """The files of a folder that hold requests, by name."""
    return sorted(path for path in folder.iterdir() if path.suffix in (".jsonl", ".parquet") and path.is_file())


def read_requests(path: Path) -> RequestFile:
    """The requests of a file, and those that have not the form of one.

    Raises: RequestFileError where the file is no Parquet file, or not in UTF-8.
    """
    content = path.read_bytes()
    requests, refused = [], []
    for number, found in _lines(path.name, content):
        named = str(found.get("request") or "")[:200] if isinstance(found, Mapping) else ""
        try:
            line = Line.model_validate(found)
        except ValidationError as error:
            reasons = [f"{'.'.join(map(str, e['loc'])) or 'line'}: {e['msg']}" for e in error.errors()]
            refused.append(Refusal(named, path.name, number, f"malformed: {'; '.join(reasons)}"))
            continue
        key = line.content_hash or content_hash(str(line.question), str(line.answer))
        requests.append(Request(line.request, line.action, key, path.name, number))
    return RequestFile(path.name, hashlib.sha256(content).hexdigest(), tuple(requests), tuple(refused))


def checked(
    requests: Iterable[Request], examples: pl.DataFrame, standing: Iterable[str]
) -> tuple[list[Request], list[Refusal]]:
    """The requests that can be carried out, and those that cannot, each with the first reason against it.

    `examples`: the table of that name. `standing`: content hashes of earlier requests that were not withdrawn.
    """
    ids = dict(examples.select("content_hash", "id").iter_rows())
    unfit = refusals(examples, list(ids.values()))
    stands, seen, names = set(standing), set(), set()
    accepted, refused = [], []
    for request in requests:
        example = ids.get(request.content_hash)
        if request.request in names:
            reason = "duplicate: another request of this batch has the same name"
        elif request.content_hash in seen:
            reason = "duplicate: this example is named by another request of this batch"
        elif example is None:
            reason = "unknown: no example of the corpus has this content"
        elif request.action == "withdraw" and request.content_hash not in stands:
            reason = "unknown: no request for this example stands that could be withdrawn"
        elif request.action == "delete" and request.content_hash in stands:
            reason = "duplicate: an earlier request for this example stands already"
        elif request.action == "delete" and example in unfit:
            reason = f"impossible: the example {unfit[example]}"
        else:
            accepted.append(replace(request, example=example))
            seen.add(request.content_hash)
            names.add(request.request)
            continue
        refused.append(Refusal(request.request, request.file, request.line, reason))
    return accepted, refused


def _lines(name: str, content: bytes) -> Iterator[tuple[int, Any]]:
    """Every line of a file with its number, from 1; what is no JSON stays the text that it is."""
    try:
        if name.endswith(".parquet"):
            for number, row in enumerate(pl.read_parquet(io.BytesIO(content)).iter_rows(named=True), 1):
                yield number, {name: value for name, value in row.items() if value is not None}
            return
        text = content.decode()
    except (pl.exceptions.PolarsError, UnicodeDecodeError) as error:
        raise RequestFileError(f"{name}: {error}; expected a whole Parquet or JSON-lines file") from error
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip():
            try:
                yield number, json.loads(line)
            except ValueError:
                yield number, line
