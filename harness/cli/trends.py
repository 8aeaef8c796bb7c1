"""The command of many nights: trends."""

from pathlib import Path
from typing import Annotated

import typer

from tribunal.harness.cli.usage import must_not_be_file
from tribunal.harness.scenario import BadScenario
from tribunal.harness.terminal import as_json, echo
from tribunal.results import night_store
from tribunal.results.digits import significant
from tribunal.results.night import Night
from tribunal.results.night_files import is_held, load
from tribunal.results.storage import is_url, parts_of
from tribunal.results.trends import Trends
from tribunal.results.trends import trends as trends_of
from tribunal.results.unreadable import UNREADABLE

SHOWN = 12


def trends(
    store: Annotated[
        str, typer.Argument(help="Nights as Delta tables: a folder, or an address such as s3://bucket/nights.")
    ],
    add: Annotated[
        list[Path] | None, typer.Option(help="Add the nights below this folder first; those that are there stay.")
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Write the page here, e.g. trends.html.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the result as JSON on stdout.")] = False,
) -> None:
    """Show nights over time: chance of a violation with its interval, time to known bugs, sensitivity, slowest parts."""
    can_be_store("store", store)
    try:
        for path in night_store.nights_below(add or []):
            if is_held(path.parent):
                echo(f"{'under way':<14} {path}: add it when it has ended", err=True)
                continue
            lacked = keep(store, _night(path))
            echo(f"{'added' if lacked else 'there already':<14} {path}", err=True)
        found = trends_of(store)
    except ModuleNotFoundError as problem:
        raise BadScenario(missing(problem)) from None
    except night_store.NoTables as problem:
        raise BadScenario(str(problem)) from None
    if out is not None:
        from tribunal.results.report.trends import write

        write(found, out)
    if json:
        echo(as_json(found))
        return
    for one in found:
        _show(one)
    if out is not None:
        echo(f"→ {out}")


def keep(store: str, night: Night) -> list[str]:
    """Add a night to a store; BadScenario where that cannot be."""
    try:
        return night_store.add(store, night)
    except ModuleNotFoundError as problem:
        raise BadScenario(missing(problem)) from None
    except night_store.NoTables as problem:
        raise BadScenario(str(problem)) from None


def can_be_store(option: str, store: str) -> None:
    """Raise what says that nights cannot be kept there: UsageError for a file, BadUrl for a URL that holds credentials."""
    if is_url(store):
        parts_of(store)
    else:
        must_not_be_file(option, Path(store))


def can_keep() -> None:
    """BadScenario where the package is missing that keeps nights: a night must not find that out at its end."""
    try:
        import deltalake  # noqa: F401 - is it there?
    except ModuleNotFoundError as problem:
        raise BadScenario(missing(problem)) from None


def missing(problem: ModuleNotFoundError) -> str:
    """Say which package is missing and how to get it."""
    return f"nights as tables need the package {problem.name}: {night_store.CLIENT}"


def _night(path: Path) -> Night:
    try:
        return load(path)
    except (OSError, *UNREADABLE) as problem:
        raise BadScenario(f"{path}: not a night: {problem}") from None


def _show(one: Trends) -> None:
    echo(f"{one.night}: {len(one.began)} nights")
    for night in one.chances[-SHOWN:]:
        share = (
            f"{significant(100 * night.low, 2)} to {significant(100 * night.high, 2)} %"
            if night.runs
            else "nothing is known"
        )
        echo(
            f"  {night.began}  {night.commit[:8]:<8}  {night.violations} of {night.runs} runs are violations ({share})  {night.word}"
        )
    for title, series, unit in (
        ("known bugs, seconds to find", one.known_bugs, "s"),
        ("sensitivity", one.sensitivity, "%"),
        ("parts, seconds", one.parts, "s"),
    ):
        if series:
            echo(f"  {title}")
        for each in series[:SHOWN]:
            echo(f"    {each.name:<40} {' '.join(_figure(value, unit) for value in each.values[-SHOWN:])}")
    for found in one.findings[:SHOWN]:
        echo(f"  {found.signature}: {found.runs} runs in {found.nights} nights, last {found.last}")
    for row in one.no_answer[:SHOWN]:
        echo(f"  no answer: {row.scenario}: {row.reason}: {row.runs} runs in {row.nights} nights")


def _figure(value: float | None, unit: str) -> str:
    return "-" if value is None else f"{significant(value, 4)} {unit}"
