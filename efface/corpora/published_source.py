"""Where the rows of a published data set come from: a folder of its JSON files, or the Hugging Face Hub by name."""

import json
from pathlib import Path

from efface.corpora.published_rows import PublishedRow, read_json_lines

SUFFIXES = (".json", ".jsonl")


def source_rows(
    source: str | Path, file: str, *, configuration: str | None, split: str, remedy: str
) -> list[PublishedRow]:
    """The rows of `<source>/<file>.json` (or .jsonl), or of a split of a configuration on the Hub.

    `source` is a folder of such files, a folder laid out like the Hub's repository (with its README.md), or a name on
    the Hub, "owner/name".

    Raises: FileNotFoundError where the file or the Hub cannot be reached; ValueError naming the place that is not as
    published.
    """
    folder = Path(source)
    for path in (folder / f"{file}{suffix}" for suffix in SUFFIXES):
        if path.is_file():
            return read_json_rows(path, remedy=remedy)
    if folder.is_dir() and not (folder / "README.md").is_file():
        raise FileNotFoundError(f"{folder}: no file {file}.json or {file}.jsonl in it. {remedy}")
    if not folder.is_dir() and (str(source).count("/") != 1 or str(source).startswith((".", "/", "~"))):
        raise FileNotFoundError(f"{source}: no such folder, and no name on the Hub, expected 'owner/name'. {remedy}")
    return hub_rows(str(source), configuration, split, remedy)


def read_json_rows(path: str | Path, *, remedy: str) -> list[PublishedRow]:
    """The rows of a JSON file: one object a line, or one list of objects or of texts (a text becomes a field `text`).

    Raises: FileNotFoundError where there is no such file; ValueError naming the row that is neither.
    """
    path = Path(path)
    if not path.is_file() or not path.read_bytes().lstrip().startswith(b"["):
        return read_json_lines(path, remedy=remedy)
    try:
        items = json.loads(path.read_bytes())
    except ValueError as error:
        raise ValueError(f"{path}: not a whole JSON list ({error}). {remedy}") from error
    if not items:
        raise ValueError(f"{path}: an empty list, expected at least one row. {remedy}")
    rows = []
    for number, item in enumerate(items):
        where = f"{path}, row {number}"
        fields = {"text": item} if isinstance(item, str) else item
        if not isinstance(fields, dict):
            raise ValueError(f"{where}: a JSON {type(item).__name__}, expected an object or a text. {remedy}")
        rows.append(PublishedRow(where, remedy, fields))
    return rows


def hub_rows(repository: str, configuration: str | None, split: str, remedy: str) -> list[PublishedRow]:
    """The rows of a split of a configuration, through `datasets`: a name on the Hub, or a folder laid out like it.

    Raises: FileNotFoundError where the data set or its configuration cannot be reached.
    """
    from datasets import load_dataset

    place = f"{repository} {configuration or 'default'} {split}"
    try:
        rows = load_dataset(repository, configuration, split=split)
    except (OSError, ValueError) as error:
        raise FileNotFoundError(f"data set {place}: not reachable ({error}). Go online, or: {remedy}") from error
    return [PublishedRow(f"{place}, row {number}", remedy, dict(row)) for number, row in enumerate(rows)]
