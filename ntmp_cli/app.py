"""The `ntmp` program: its commands, global options, and the one place where errors become exit codes."""

from __future__ import annotations

import logging
import os
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, ClassVar

import typer

from ntmp_cli.commands.lazy import LazyGroup
from ntmp_cli.commands.steps import steps_on_stderr
from ntmp_cli.errors import InterruptedRunError, NotIdentifiableError, NtmpError, UsageError, is_memory_error
from ntmp_cli.plain_text import printable
from ntmp_cli.plugins import load_plugins, plugin_line
from ntmp_cli.ranks import is_first_process
from ntmp_cli.unpacking import LIMIT_VARIABLE


class _Commands(LazyGroup):
    modules: ClassVar[dict[str, str]] = {
        "make-tuples": "ntmp_cli.commands.make_tuples",
        "import-tuples": "ntmp_cli.commands.import_tuples",
        "inspect": "ntmp_cli.commands.inspect",
        "design": "ntmp_cli.commands.design",
        "audit": "ntmp_cli.commands.audit",
        "estimate-prior": "ntmp_cli.commands.estimate_prior",
        "train": "ntmp_cli.commands.train",
        "predict": "ntmp_cli.commands.predict",
        "explain": "ntmp_cli.commands.explain",
        "export": "ntmp_cli.commands.export",
        "evaluate": "ntmp_cli.commands.evaluate",
        "report": "ntmp_cli.commands.report",
        "run": "ntmp_cli.commands.run_pipeline",
        "list": "ntmp_cli.commands.list_things",
        "sweep": "ntmp_cli.commands.sweep",
    }


app = typer.Typer(
    name="ntmp",
    cls=_Commands,
    help="Instance classifiers from counts: this group of n items has m positives, nobody knows which.",
    epilog="Exit codes: 0 done, 2 usage or configuration, 3 bad or missing data, 4 not identifiable, "
    "130 interrupted, 1 internal error.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        from ntmp_cli import __version__

        typer.echo(f"ntmp {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version.", callback=_print_version, is_eager=True)
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Only errors on stderr.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="More detail on stderr.")] = False,
    plugin: Annotated[
        list[Path] | None,
        typer.Option(
            "--plugin",
            metavar="FILE.py",
            help="Python file with methods, models, encoders, data sets, metrics or prior estimators; "
            "repeat for several. Plugins in NTMP_PLUGINS and of installed packages are loaded too.",
            show_default=False,
        ),
    ] = None,
    unpack_limit_mb: Annotated[
        int | None,
        typer.Option(
            "--unpack-limit-mb",
            min=1,
            envvar=LIMIT_VARIABLE,
            help="Largest unpacked size of one compressed file or of a folder of images, in MB. Default: 512 (64 for "
            "one image), or 100 times the packed size if that is larger.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Options before the command's name."""
    if unpack_limit_mb is not None:
        os.environ[LIMIT_VARIABLE] = str(unpack_limit_mb)
    level = logging.ERROR if quiet or not is_first_process() else logging.DEBUG if verbose else logging.INFO
    logging.getLogger("ntmp_cli").setLevel(level)
    load_plugins(plugin or ())


class _StderrHandler(logging.Handler):
    """Log lines as a person reads them; looks stderr up at every line, so that redirection works."""

    def emit(self, record: logging.LogRecord) -> None:
        prefix = f"{record.levelname.lower()}: " if record.levelno >= logging.WARNING else ""
        print(printable(f"{prefix}{record.getMessage()}"), file=sys.stderr)  # noqa: T201


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code. Errors of users never raise."""
    logger = logging.getLogger("ntmp_cli")
    logger.handlers, logger.propagate = [_StderrHandler()], False
    logger.setLevel(logging.INFO)
    try:
        _require_text(sys.argv[1:] if arguments is None else arguments)
        with steps_on_stderr():
            code = app(arguments, prog_name="ntmp", standalone_mode=False)
        sys.stdout.flush()
        if code == 130:  # Typer's answer to Ctrl-C
            raise KeyboardInterrupt
        return code if isinstance(code, int) else 0
    except NtmpError as error:
        if isinstance(error, UsageError | NotIdentifiableError | InterruptedRunError) and not is_first_process():
            return error.exit_code  # the same for all processes of a training: only the first one prints it
        return _fail(error.message, error.hint, error.exit_code)
    except (KeyboardInterrupt, typer.Abort):
        return _fail("interrupted; nothing was published", None, 130)
    except (BrokenPipeError, SystemExit) as error:
        # The reader closed the pipe, as `head` does, so nothing more can be written. Typer and rich
        # make an exit of it.
        if isinstance(error, SystemExit) and not isinstance(error.__context__, BrokenPipeError):
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        if hasattr(error, "format_message"):  # the command line could not be parsed
            message = error.format_message()
            return _fail(message, _try_help(error), 2) if message else 2  # without arguments, help was shown
        if is_memory_error(error):
            hint = "Close other programs, raise the limit (ulimit -v), or take less data at a time."
            return _fail("not enough memory; nothing was published", hint, 3)
        if isinstance(error, OSError) and error.strerror:
            where = f"{error.filename}: " if error.filename else ""
            return _fail(f"{where}{error.strerror}", "Check the path, its permissions and the free space.", 3)
        if isinstance(error, ValueError) and "embedded null" in str(error):
            return _fail("a path or a setting holds a NUL character", "No file has such a name.", 2)
        if os.environ.get("NTMP_DEBUG"):
            traceback.print_exc()
        if line := plugin_line(error):
            hint = "The plugin raised it. Set NTMP_DEBUG=1 to see the traceback."
            return _fail(f"{line}: {type(error).__name__}: {error}", hint, 1)
        return _fail(
            f"internal error: {type(error).__name__}: {error}",
            "Set NTMP_DEBUG=1 to see where, and please report it.",
            1,
        )


def _require_text(words: Sequence[str]) -> None:
    """Refuse file names that are not valid text: a manifest cannot hold them."""
    for word in words:
        if any("\ud800" <= sign <= "\udfff" for sign in word):
            raise UsageError(f"{word}: not UTF-8 text", hint="Rename the file, or set the locale to UTF-8.")


def _try_help(error: Exception) -> str:
    context = getattr(error, "ctx", None)
    return f"See `{context.command_path if context else 'ntmp'} --help`."


def _fail(message: str, hint: str | None, code: int) -> int:
    from rich.text import Text

    from ntmp_cli.commands.terminal import PlainConsole

    console = PlainConsole(stderr=True, soft_wrap=True)
    console.print(Text("error: ", style="bold red"), Text(message), sep="", highlight=False)
    if hint:
        console.print(Text(hint), highlight=False)
    return code


def main() -> None:
    # Threads that wait for each other sleep instead of spinning: beside other busy processes, spinning took two to
    # five times the CPU of a small training, and on an idle machine it gained nothing there. OpenMP reads this when
    # torch is loaded.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    sys.exit(run())
