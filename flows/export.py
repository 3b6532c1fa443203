"""`python -m flows.export MODEL[@alias|/version] FOLDER`: a registered model and its card as a Hugging Face folder."""

import argparse
import shutil
import sys
from pathlib import Path

from mlflow.exceptions import MlflowException

from flows.environment import set_environment
from flows.registered import find_registered
from stages.registry import CARD, load_registered, recorded_file, registered_version

TOKENIZER = "data/prepare_data/tokenizer"


class FolderTaken(ValueError):
    """An export would overwrite something."""


def export(address: str, folder: str | Path) -> Path:
    """Writes weights (base and delta as one), configuration, tokenizer and card, to be loaded by `from_pretrained`.

    Raises: FolderTaken where the folder is not empty; NotRegistered where the address names nothing.
    """
    folder = Path(folder)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise FolderTaken(f"{folder}: not an empty folder; name another, or empty it first")
    model = find_registered(address)
    card = recorded_file(registered_version(model.name, model.version), CARD)
    tokenizer = model.files(TOKENIZER)
    load_registered(model.name, model.version).save_pretrained(folder)
    for name, source in tokenizer.items():
        shutil.copyfile(source, folder / name)
    (folder / CARD).write_text(card)
    return folder


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m flows.export", description=main.__doc__)
    parser.add_argument("model", help="NAME, NAME@alias or NAME/version")
    parser.add_argument("folder", help="where to write; must not exist, or be empty")
    chosen = parser.parse_args(argv)
    set_environment()
    try:
        print(export(chosen.model, chosen.folder))
    except (ValueError, OSError, MlflowException) as error:
        print(f"export: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
