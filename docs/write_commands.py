"""Write docs/commands.md from the program itself, so that the reference matches --help."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

TARGET = Path(__file__).with_name("commands.md")
INTRODUCTION = """# Commands

`make docs` writes this page from the output of `ntmp COMMAND --help`. A test checks that it is up to date.

Results go to stdout (`--json`: exactly one JSON object), progress and warnings to stderr. Settings come from
`--config FILE`, then `--set KEY=VALUE`, then options. Exit codes: 0 done, 2 usage or configuration, 3 bad or missing
artefact or data, 4 not identifiable, 130 interrupted, 1 internal error.
"""


def render() -> str:
    """The whole reference as Markdown."""
    from typer.main import get_command

    from ntmp_cli.app import app

    command = get_command(app)
    return "\n".join([INTRODUCTION, _before_the_command(command), *_sections(command, "ntmp")])


def _before_the_command(command: Any) -> str:
    rows = [
        f"| {_names(param)} | {_escape(param.help or '')} |"
        for param in command.params
        if "completion" not in param.name
    ]
    return "\n".join(["## Options before the command\n", "| option | meaning |", "| --- | --- |", *rows, ""])


def _sections(command: Any, name: str) -> Iterator[str]:
    """One section per command that does something, groups of commands in their place."""
    if not hasattr(command, "commands"):
        yield _section(name, command)
        return
    for word, child in command.commands.items():
        yield from _sections(child, f"{name} {word}")


def _section(name: str, command: Any) -> str:
    paragraphs = [" ".join(paragraph.split()) for paragraph in command.help.split("\n\n")]
    (example,) = [text.removeprefix("Example: ") for text in paragraphs if text.startswith("Example: ")]
    body = [text for text in paragraphs if not text.startswith("Example: ")]
    lines = [f"## {name}\n", " ".join(body) + "\n", f"```sh\n{example}\n```\n"]
    for panel, params in groupby(command.params, lambda param: getattr(param, "rich_help_panel", None)):
        lines += [f"| {panel or 'option'} | meaning |", "| --- | --- |"]
        lines += [*(f"| {_names(param)} | {_escape(param.help or '')} |" for param in params), ""]
    return "\n".join(lines)


def _names(param: Any) -> str:
    if param.param_type_name == "argument":
        shown = f"`{(param.metavar or param.name).upper()}`"
    else:
        shown = ", ".join(f"`{name}`" for name in param.opts)
    return shown + (" (required)" if param.required else "")


def _escape(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    TARGET.write_text(render(), encoding="utf-8")
