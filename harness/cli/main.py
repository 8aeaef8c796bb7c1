"""The `tribunal` command.

Exit codes: 0 PASS and PERMITTED (1 for PERMITTED with --strict), 1 VIOLATION, 2 INCONCLUSIVE, 3 ERROR, 64 wrong
usage, 130 interrupted. What went wrong is one clear line on stderr; verdicts go to stdout.

This module loads little: `tribunal.harness.cli.commands` says where the commands are.
"""

import signal
import sys
import traceback
from collections.abc import Sequence
from importlib.metadata import distribution
from typing import Annotated, NoReturn

import typer

from tribunal.harness.cli.commands import Commands
from tribunal.harness.cli.usage import UsageError, in_words
from tribunal.harness.event_loop import leave
from tribunal.harness.installed import DISTRIBUTION
from tribunal.harness.terminal import echo
from tribunal.results.verdict import EXIT_ERROR, EXIT_INTERRUPTED, EXIT_USAGE

app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
)


def _say_version(*, wanted: bool) -> None:
    if wanted:
        found = distribution(DISTRIBUTION)
        python = ".".join(map(str, sys.version_info[:3]))
        echo(f"tribunal {found.version} (of the distribution {found.name}, Python {python})")
        raise typer.Exit


@app.callback()
def every_command(
    *,
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", callback=_say_version, is_eager=True)
    ] = False,
) -> None:
    """Puts a replicated log on trial: runs clusters, injects faults, judges what clients saw."""


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command and end the process with the right exit code; SIGTERM ends it in good order, as Ctrl-C does."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    leave(exit_code(sys.argv[1:] if arguments is None else list(arguments)))


def exit_code(arguments: Sequence[str]) -> int:
    """Run the command; return its exit code, with what went wrong said in one line."""
    try:
        code = app(list(arguments), standalone_mode=False)
    except UsageError as problem:
        return _failed(in_words(problem), EXIT_USAGE)
    except OSError as problem:
        return _failed(f"{problem.filename or 'the system'}: {problem.strerror or problem}", EXIT_ERROR)
    except (KeyboardInterrupt, typer.Abort):
        return EXIT_INTERRUPTED
    except SystemExit as problem:
        if not isinstance(problem.__context__, BrokenPipeError):
            raise
        return EXIT_ERROR  # typer ends so where the reader of its output went away, with 1: that would be a VIOLATION
    except Exception as problem:  # noqa: BLE001 - the top: a bug of ours is an ERROR, never a verdict's exit code
        if (expected := _expected(problem)) is not None:
            return _failed(str(problem), expected)
        echo(traceback.format_exc().rstrip("\n"), err=True)
        return _failed("this is a bug of the harness", EXIT_ERROR)
    return code if isinstance(code, int) else 0


def _expected(problem: Exception) -> int | None:
    """Return the exit code of what may well go wrong; None for a bug."""
    # Where one of these was raised its module is loaded; where nothing was raised nobody needs them.
    from tribunal.checkers.spark.java import NoJava
    from tribunal.checkers.spark.session import NoSpark
    from tribunal.clusters.api import ClusterError
    from tribunal.harness.catalog import Unknown
    from tribunal.harness.scenario import BadScenario
    from tribunal.results.plugins import BadPlugin
    from tribunal.results.recording import DamagedRecording
    from tribunal.results.storage import BadUrl, NoStorage
    from tribunal.results.verdict import NoVerdict

    if isinstance(problem, Unknown | BadScenario | BadPlugin | BadUrl):
        return EXIT_USAGE
    expected = (ClusterError, DamagedRecording, NoVerdict, NoJava, NoSpark, NoStorage)
    return EXIT_ERROR if isinstance(problem, expected) else None


def _failed(message: str, code: int) -> int:
    echo(f"tribunal: {message}", err=True)
    return code


if __name__ == "__main__":
    main()
