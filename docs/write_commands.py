"""Write docs/commands.md from the program itself, so that the reference matches --help."""

from __future__ import annotations

from collections.abc import Iterator
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

    return "\n".join([INTRODUCTION, *_sections(get_command(app), "ntmp")])


def _sections(command: Any, name: str) -> Iterator[str]:
    """One section per command that does something, groups of commands in their place."""
    if not hasattr(command, "commands"):
        yield _section(name, command)
        return
    for word, child in command.commands.items():
        yield from _sections(child, f"{name} {word}")


def _section(name: str, command: Any) -> str:
    summary, _, rest = command.help.partition("\n")
    body = [line for line in rest.strip().splitlines() if line and not line.startswith("Example:")]
    example = command.help.partition("Example:")[2].strip()
    rows = [f"| {_names(param)} | {_escape(param.help or '')} |" for param in command.params]
    return "\n".join(
        [
            f"## {name}\n",
            " ".join([summary, *body]) + "\n",
            f"```sh\n{example}\n```\n",
            "| option | meaning |",
            "| --- | --- |",
            *rows,
            "",
        ]
    )


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
