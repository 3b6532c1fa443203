"""Rows of a published data set, each with its place, so that an error can say where it is."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class PublishedRow:
    """One row: its fields, where it stands, and what to do when a field is not as expected."""

    where: str
    remedy: str
    fields: Mapping[str, Any]

    def text(self, key: str) -> str:
        """A field that must be text with something in it.

        Raises: ValueError naming place, key and expectation where it is absent, empty or not text.
        """
        value = self._field(key)
        if not isinstance(value, str) or not value.strip():
            raise ValueError(f"{self.where}: {key!r} is {value!r:.80}, expected non-empty text. {self.remedy}")
        return value

    def texts(self, key: str, count: int) -> tuple[str, ...]:
        """A field that must be a list of exactly `count` texts.

        Raises: ValueError naming place, key and expectation where it is not.
        """
        value = self._field(key)
        if not isinstance(value, list) or not all(isinstance(text, str) and text.strip() for text in value):
            raise ValueError(f"{self.where}: {key!r} is {value!r:.80}, expected a list of {count} texts. {self.remedy}")
        if len(value) != count:
            raise ValueError(f"{self.where}: {key!r} has {len(value)} texts, expected {count}. {self.remedy}")
        return tuple(value)

    def _field(self, key: str) -> Any:
        if key not in self.fields:
            raise ValueError(f"{self.where}: no key {key!r}, found {sorted(self.fields)}. {self.remedy}")
        return self.fields[key]


def read_json_lines(path: str | Path, *, remedy: str) -> list[PublishedRow]:
    """The objects of a JSON-lines file, one a line, whatever the file's name ends in; blank lines are skipped.

    Raises: FileNotFoundError where there is no such file; ValueError naming the line that is not one JSON object.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file, expected JSON lines. {remedy}")
    rows = []
    for number, line in enumerate(path.read_bytes().split(b"\n"), start=1):
        if not line.strip():
            continue
        where = f"{path}, line {number}"
        try:
            fields = json.loads(line)
        except ValueError as error:
            raise ValueError(f"{where}: not a whole JSON object ({error}), expected one a line. {remedy}") from error
        if not isinstance(fields, dict):
            kind = type(fields).__name__
            raise ValueError(f"{where}: a JSON {kind}, expected one object a line (JSON lines). {remedy}")
        rows.append(PublishedRow(where, remedy, fields))
    if not rows:
        raise ValueError(f"{path}: no rows, expected JSON lines. {remedy}")
    return rows
