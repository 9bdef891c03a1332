"""The console for all results and messages: no control character in users' data reaches the terminal."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from ntmp_cli.plain_text import printable


class PlainConsole(Console):
    """A rich console that replaces control characters in text and keeps its own colour codes."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(printable(segment.text), segment.style)
