"""Write docs/api.md from the docstrings of the package, so that the reference matches the code."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from dataclasses import is_dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

TARGET = Path(__file__).with_name("api.md")
INTRODUCTION = """# Python

`make docs` writes this page from the docstrings. A test checks that it is up to date. [In Python](guides/python.md) is
the guide with examples.
"""
METHODS = (
    *("fit", "predict", "predict_proba", "decision_function", "score", "save", "load", "to_bytes"),
    *("get_feature_names_out", "get_params", "set_params"),
)
STAGES = {
    "make_tuples": "make_tuples",
    "import_tuples": "import_tuples",
    "estimate_prior": "estimate_prior",
    "train": "train",
    "predict": "predict_rows",
    "predict_groups": "predict_groups",
    "audit": "audit",
    "explain": "explain",
    "export": "export",
    "evaluate": "evaluate",
    "report": "report",
    "design": "design",
}
ABOUT_STAGES = """## Stages

Every command is a function: settings in, a folder out. Settings are the models of `ntmp_cli.config`; their fields are
the options in [the command reference](commands.md). [The tutorial](tutorial.md#in-python) has an example.
"""
ABOUT_ERRORS = """## Errors

Everything that can go wrong because of input is an `NtmpError`, with `message`, `hint` and the exit code of the command
line.
"""


def render() -> str:
    """The whole reference as Markdown."""
    import ntmp_cli
    from ntmp_cli import errors

    classifier = ntmp_cli.NTMPClassifier
    parts = [INTRODUCTION, *_section("NTMPClassifier", classifier, level=2)]
    for name in METHODS:
        parts += _section(f"NTMPClassifier.{name}", getattr(classifier, name), level=3)
    for name in ("TupleKFold", "count_labels", "count_likelihood_score"):
        parts += _section(name, getattr(ntmp_cli, name), level=2)
    parts.append(ABOUT_STAGES)
    for module, name in STAGES.items():
        where = f"ntmp_cli.stages.{module}"
        parts += _section(f"{where}.{name}", getattr(import_module(where), name), level=3)
    parts.append(ABOUT_ERRORS)
    raised = [kind for kind in vars(errors).values() if inspect.isclass(kind) and issubclass(kind, errors.NtmpError)]
    rows = [f"| `{kind.__name__}` | {kind.exit_code} | {_first_line(kind)} |" for kind in raised]
    parts += ["\n".join(["| class | exit code | meaning |", "| --- | ---: | --- |", *rows]), ""]
    return "\n".join(parts)


def _section(name: str, thing: Any, level: int) -> Iterator[str]:
    yield f"{'#' * level} {name}\n"
    yield f"```python\n{_signature(name.rpartition('.')[2], thing)}\n```\n"
    yield from _prose(inspect.getdoc(thing) or "")


def _signature(name: str, thing: Callable[..., Any]) -> str:
    """Name and parameters with their defaults, one per line where one line would be long."""
    found = inspect.signature(thing)
    parameters = [p for p in found.parameters.values() if p.name != "self"]
    shown = [f"{p.name}={type(p.default).__name__}()" if is_dataclass(p.default) else _plain(p) for p in parameters]
    keywords = [i for i, p in enumerate(parameters) if p.kind is p.KEYWORD_ONLY]
    if keywords:
        shown.insert(keywords[0], "*")
    line = f"{name}({', '.join(shown)})"
    return line if len(line) <= 100 else "\n".join([f"{name}(", *(f"    {text}," for text in shown), ")"])


def _plain(parameter: inspect.Parameter) -> str:
    # Double quotes, as the formatter wants them in blocks of Python.
    return str(parameter.replace(annotation=parameter.empty)).replace("'", '"')


def _prose(doc: str) -> Iterator[str]:
    """A docstring as Markdown: `Parameters` and `Attributes` become tables, examples become code."""
    sections = re.split(r"^(\w+)\n-+\n", doc, flags=re.MULTILINE)
    yield re.sub(r"(?:^    .*\n?)+", _example, sections[0], flags=re.MULTILINE).strip() + "\n"
    for title, body in zip(sections[1::2], sections[2::2], strict=True):
        entries = re.split(r"\n(?=\S)", body.strip("\n"))
        yield f"| {title.lower()} | meaning |\n| --- | --- |"
        for entry in entries:
            names, _, meaning = entry.partition(" : ")
            text = " ".join(meaning.split()).replace("|", "\\|")
            yield f"| {', '.join(f'`{name}`' for name in names.split(', '))} | {text} |"
        yield ""


def _example(code: re.Match[str]) -> str:
    return f"```python\n{inspect.cleandoc(code[0])}\n```\n"


def _first_line(kind: type) -> str:
    return (inspect.getdoc(kind) or "").partition("\n")[0]


if __name__ == "__main__":
    TARGET.write_text(render(), encoding="utf-8")
