"""The page: sections of pictures and tables, in one file that needs nothing else."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import jinja2
from matplotlib.figure import Figure

from stages.report_page.style import svg
from stages.report_page.tables import Grid

TEMPLATE = Path(__file__).with_name("template.html")


@dataclass(frozen=True)
class Picture:
    """A drawing with its title and one sentence on how to read it; without a figure, the reason why there is none."""

    name: str
    title: str
    reading: str
    figure: Figure | None
    absent: str = ""

    @property
    def source(self) -> str:
        return svg(self.figure) if self.figure is not None else ""


@dataclass(frozen=True)
class TableBlock:
    """A table with its title and one sentence on how to read it."""

    title: str
    reading: str
    grid: Grid


@dataclass(frozen=True)
class Section:
    """A chapter of the page."""

    name: str
    title: str
    intro: str
    blocks: Sequence[Picture | TableBlock]


@dataclass(frozen=True)
class KeyNumber:
    """One large number at the top of the page."""

    value: str
    label: str


def render(
    *, profile: str, summary: str, numbers: list[KeyNumber], sections: list[Section], words: dict[str, str]
) -> str:
    """The page as HTML; all text is escaped, pictures are data URIs.

    Raises: jinja2.UndefinedError where the template names what is not given.
    """
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    template = environment.from_string(TEMPLATE.read_text())
    return template.render(profile=profile, summary=summary, numbers=numbers, sections=sections, words=words)
