"""The doors to other tools: `tribunal import` takes their histories, `tribunal export` gives ours."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Final

import typer

from tribunal.harness.cli.usage import UsageError
from tribunal.harness.terminal import as_json, echo, plain
from tribunal.results import export as exported
from tribunal.results import history
from tribunal.results.store import Recording

EXPORTS: Final = ("edn", "json")


def import_history(
    file: Annotated[Path, typer.Argument(help="A history: .edn, .json or .jsonl, also .gz.")],
    form: Annotated[str, typer.Option("--format", help=", ".join(history.FORMATS))],
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder to make; tribunal check judges it.")],
    model: Annotated[str, typer.Option(help="What it is a history of; default: found out from its operations.")] = "",
    option: Annotated[list[str] | None, typer.Option(help="For rw-register, e.g. linearizable_keys.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the result as JSON on stdout.")] = False,
) -> None:
    """Take a history of Jepsen, Elle or the corpus, so that it can be judged here."""
    from tribunal.checkers.judge.histories import KNOWN, OPTIONS

    _one_of("format", form, history.FORMATS)
    if model:
        _one_of("model", model, KNOWN)
    for name in option or ():
        _one_of("option", name, OPTIONS)
    if not file.is_file():
        raise UsageError(f"no history in {str(file)!r}: no such file")
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UsageError(f"{str(out)!r} is there already")
    events = history.read(file, form)
    origin = history.Origin(source=file.name, format=form, model=model, options=dict.fromkeys(option or (), True))
    history.write(out, events, origin)
    summary = as_json({"events": len(events), "run_dir": str(out)})
    echo(summary if json else f"{len(events)} events; judge them: tribunal check {out}")


def export_history(
    run: Annotated[Path, typer.Argument(help="Folder of a run, or of an imported history.")],
    form: Annotated[str, typer.Option("--format", help=", ".join(EXPORTS))] = "edn",
    out: Annotated[Path | None, typer.Option("--out", "-o", help="File to write; default: stdout.")] = None,
    json: Annotated[
        bool, typer.Option("--json", help="Print what was written as JSON on stdout; needs --out.")
    ] = False,
) -> None:
    """Write a run's history as Jepsen's tools and Elle read it, one operation a line."""
    _one_of("format", form, EXPORTS)
    if not run.is_dir():
        raise UsageError(f"no run in {str(run)!r}: no such folder")
    if json and out is None:
        raise UsageError("--json says what was written: give a file to write with --out")
    lines = _lines(run, form)
    if out is None:
        shown = map(plain, lines) if sys.stdout.isatty() else lines  # for another tool: as it is
        sys.stdout.writelines(f"{line}\n" for line in shown)
        return
    temporary = out.with_name(out.name + ".tmp")
    with temporary.open("w") as file:
        count = sum(file.write(f"{line}\n") > 0 for line in lines)
    temporary.replace(out)
    if json:
        echo(as_json({"file": str(out), "format": form, "operations": count}))


def _lines(run: Path, form: str) -> Iterator[str]:
    events = history.load(run)[0] if history.is_history(run) else exported.history(Recording.open(run, compare=False))
    return history.as_edn(events) if form == "edn" else history.as_json(events)


def _one_of(what: str, given: str, known: tuple[str, ...]) -> None:
    if given not in known:
        raise UsageError(f"unknown {what} {given!r}; known: {', '.join(known)}")
