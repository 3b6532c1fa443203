"""`python -m stages <stage> [item]` runs one stage, here or in a fork of the stage server: the same work either way.

Nothing heavy is imported before the stage asks for it: a process costs seconds otherwise, times the grid.
"""

import errno
import importlib
import os
import re
import sys
from pathlib import Path

import yaml

from stages.process import die_with_dvc, set_instructions, set_threads
from stages.server import ADDRESS, Declined, run_through

FOLDER = Path(__file__).parent
NO_SPACE = os.strerror(errno.ENOSPC)


def run(argv: list[str]) -> int:
    """Runs the stage in the stage server where one is named and can, else here."""
    if "DVC_STAGE" in os.environ:
        die_with_dvc()
    try:
        return run_through(os.environ[ADDRESS], argv) if ADDRESS in os.environ else run_here(argv)
    except Declined:
        return run_here(argv)
    except ConnectionError as error:
        print(f"{_label(argv)}: {error}", file=sys.stderr)
        return 1


def run_here(argv: list[str]) -> int:
    """Runs the stage in this process and returns its exit code: 0, or 1 after a message that says what to do."""
    try:
        stage, item = _checked(argv)
        set_threads()
        set_instructions()
        main = importlib.import_module(f"stages.{stage}").main
        main(*([item] if item else []))
    except Exception as error:
        if os.environ.get("EFFACE_TRACEBACK") == "1" or not _is_known(error):
            raise
        print(f"{_label(argv)}: {_message(error)}", file=sys.stderr)
        return 1
    return 0


def stage_names() -> list[str]:
    """Every file of this folder that has a `main`."""
    return sorted(path.stem for path in FOLDER.glob("[a-z]*.py") if re.search(r"^def main\(", path.read_text(), re.M))


def stage_items(stage: str) -> list[str] | None:
    """The items over which `dvc.yaml` repeats a stage, read from `params.yaml`; None for a stage it does not list."""
    stages = _read_yaml("dvc.yaml").get("stages", {})
    if stage not in stages:
        return None
    over = stages[stage].get("foreach", [])
    if isinstance(over, str):
        keys = over.removeprefix("${").removesuffix("}").split(".")
        over = _read_yaml("params.yaml")
        for key in keys:
            over = over.get(key, {})
    return [str(item) for item in over]


def _checked(argv: list[str]) -> tuple[str, str | None]:
    """Stage and item.

    Raises: ValueError where either is missing or unknown, naming the known ones.
    """
    stages = stage_names()
    if len(argv) not in (1, 2):
        raise ValueError(f"usage: python -m stages STAGE [ITEM]; known stages: {', '.join(stages)}")
    stage, item = argv[0], argv[1] if len(argv) == 2 else None
    if stage not in stages:
        raise ValueError(f"no stage {stage!r}; known stages: {', '.join(stages)}")
    items = stage_items(stage)
    if items == [] and item:
        raise ValueError(f"{stage} takes no item, got {item!r}")
    if items and item not in items:
        raise ValueError(f"{f'no item {item!r}' if item else 'needs an item'}; known items: {', '.join(items)}")
    return stage, item


def _read_yaml(path: str) -> dict:
    """A YAML file of the working directory; empty where there is none."""
    return (yaml.safe_load(Path(path).read_text()) or {}) if Path(path).is_file() else {}


def _label(argv: list[str]) -> str:
    return " ".join(["stage", *argv])


def _is_known(error: Exception) -> bool:
    """Whether the message alone tells a user what to do; anything else is a defect and keeps its traceback."""
    return isinstance(error, ValueError | OSError | MemoryError) or NO_SPACE in str(error)


def _message(error: Exception) -> str:
    """What happened and what to do about it."""
    if NO_SPACE in str(error):
        return f"{error}; free some space and run `dvc repro` again: finished work is kept"
    if isinstance(error, MemoryError):
        return f"out of memory {error}; lower the batch size of this stage in params.yaml and run `dvc repro` again"
    return str(error)


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
