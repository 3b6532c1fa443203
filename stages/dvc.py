"""`python -m stages.dvc repro` is `dvc repro`, with `dvc.lock` changed in place: the same file results.

After every stage DVC parses and writes the whole lock, in pure Python: for a grid of thirty models that takes longer
than most stages do, and it grows with the square of the grid. Here only the entry of the stage itself is written.
"""

import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dvc.cli import main as dvc_main
from dvc.dvcfile import Lockfile
from dvc.log import logger
from dvc.stage.serialize import to_lockfile
from dvc.utils.serialize import dumps_yaml

if TYPE_CHECKING:
    from dvc.stage import PipelineStage

HEAD = "schema: '2.0'\nstages:\n"
ENTRY = re.compile(r"^(?=  \S)", re.MULTILINE)
OTHER_TOP_LEVEL = re.compile(r"^\S", re.MULTILINE)

whole_file_dump = Lockfile.dump_stages


def run(arguments: list[str]) -> int:
    Lockfile.dump_stages = _dump_stages
    return dvc_main(arguments)


def with_entries(lock: str, entries: Mapping[str, Any]) -> str | None:
    """The text of a lock in which these stages' entries are replaced, or added at the end; None where the lock holds
    more than stages, so that it has to be read as a whole."""
    if not lock.startswith(HEAD) or OTHER_TOP_LEVEL.search(lock, len(HEAD)):
        return None
    blocks = {_name(block): block for block in ENTRY.split(lock.removeprefix(HEAD)) if block}
    for name, entry in entries.items():
        block = dumps_yaml({"stages": {name: entry}}).removeprefix("stages:\n")
        blocks[_name(block)] = block
    return HEAD + "".join(blocks.values())


def _name(block: str) -> str:
    return block.partition("\n")[0]


def _dump_stages(self: Lockfile, stages: "Sequence[PipelineStage]", **options: Any) -> None:
    """In place of DVC's own method of the same name."""
    path = Path(self.path)
    before = path.read_text(encoding="utf-8") if path.is_file() else HEAD
    entries = {name: entry for stage in stages for name, entry in to_lockfile(stage, **options).items()}
    after = with_entries(before, entries)
    if after is None:
        whole_file_dump(self, stages, **options)
    elif after != before:
        logger.info("Updating lock file '%s'", self.relpath)
        path.write_text(after, encoding="utf-8")
        self.repo.scm_context.track_file(self.relpath)


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
