"""`tribunal calibrate`: how much of what is wrong would the judge have seen in these runs."""

import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import msgspec
import typer

from tribunal.harness.cli.usage import known_engine, must_be_file_to_write
from tribunal.harness.scenario import BadScenario
from tribunal.harness.terminal import as_json, echo
from tribunal.results.history import is_history
from tribunal.results.scratch import Scratch
from tribunal.results.unreadable import UNREADABLE

if TYPE_CHECKING:
    from tribunal.harness.campaign.calibrate import Measure

EVERY_S: Final = 2.0


def calibrate(
    runs: Annotated[list[Path], typer.Argument(help="Folders of runs.")],
    per_class: Annotated[int, typer.Option(min=1, help="Anomalies of each class in each run, at most.")] = 1,
    seed: Annotated[int, typer.Option(min=0, help="Seed of every choice.")] = 0,
    engine: Annotated[str, typer.Option(help="Who judges: spark, inline or spark-sql.")] = "inline",
    classes: Annotated[str | None, typer.Option(help="Only these classes, by comma.")] = None,
    out: Annotated[Path | None, typer.Option(help="Keep the figures and misses in this file.")] = None,
    last: Annotated[Path | None, typer.Option(help="Fail when a class falls below the figure in this file.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the result as JSON on stdout.")] = False,
) -> None:
    """Put known anomalies into copies of recordings, one changed fact each, judge the copies, and say what was seen."""
    from tribunal.checkers.calibration.api import classes as all_classes
    from tribunal.checkers.spark.session import Prepared
    from tribunal.harness.campaign.calibrate import Options, Outcome, measure
    from tribunal.results.sensitivity import fallen

    known_engine(engine)
    chosen = tuple(name.strip() for name in classes.split(",")) if classes else ()
    if unknown := [name for name in chosen if name not in all_classes()]:
        raise BadScenario(f"unknown class {unknown[0]!r}; known: {', '.join(all_classes())}")
    for folder in runs:
        if not folder.is_dir():
            raise BadScenario(f"no run in {str(folder)!r}: no such folder")
        if is_history(folder):
            raise BadScenario(f"{folder}: an imported history; anomalies are put into recordings of runs")
    if out is not None:
        must_be_file_to_write("--out", out)
    before = None if last is None else read(last)
    board = _Board()
    measured = len(chosen or all_classes())
    many = "1 recording: it is" if len(runs) == 1 else f"{len(runs)} recordings: each is"
    echo(f"{many} judged as it is, then copies of it with anomalies of {measured} classes", err=True)

    def progress(outcome: Outcome, count: int) -> None:
        board.update(outcome.run, count, seen=outcome.seen)

    with ExitStack() as stack:
        scratch = stack.enter_context(Scratch("calibrate", in_memory=True))
        prepared = None if engine == "inline" else stack.enter_context(Prepared())
        options = Options(per_class=per_class, seed=seed, engine=engine, chosen=chosen)
        found = measure([folder.resolve() for folder in runs], options, scratch, progress, prepared, board.say)
    less = [] if before is None else fallen(before.figures, found.figures)
    if out is not None:
        out.write_bytes(msgspec.json.format(msgspec.json.encode(found), indent=2) + b"\n")
    echo(as_json(found) if json else "\n".join(lines(found)))
    for line in less:
        echo(f"fell below the last figure: {line}", err=True)
    raise typer.Exit(1 if less else 0)


def read(path: Path) -> "Measure":
    """Read figures that were kept; `BadScenario` when the file is none of ours."""
    from tribunal.harness.campaign.calibrate import Measure

    try:
        return msgspec.json.decode(path.read_bytes(), type=Measure)
    except OSError as problem:
        raise BadScenario(f"{path}: {problem.strerror}") from None
    except UNREADABLE as problem:
        raise BadScenario(f"{path}: no figures of a calibration: {problem}") from None


def lines(found: "Measure") -> list[str]:
    """Return the table of classes, and each miss with what the judge said instead."""
    width = max(map(len, found.figures), default=0)
    table = [f"{'class':<{width}}  injected  seen"]
    for name, figure in found.figures.items():
        if name in found.lacking:
            table.append(f"{name:<{width}}         -     -  {found.lacking[name]}")
        else:
            share = f"{100 * figure.share:3.0f} %" if figure.injected else "no place in these runs"
            table.append(f"{name:<{width}}  {figure.injected:8}  {figure.seen:4}  {share}")
    total = found.total
    share = (
        f"{100 * total.share:3.0f} %" if total.injected else "nothing is known: no anomaly had a place in these runs"
    )
    table.append(f"{'all':<{width}}  {total.injected:8}  {total.seen:4}  {share}")
    for miss in found.misses:
        table.append(f"missed {miss.class_name}: {miss.run}, {miss.injection.where()}: {miss.injection.change}")
        table.append(f"       the judge said {miss.verdict}: {'; '.join(miss.instead) or 'nothing of it'}")
    return table


class _Board:
    """A line now and then on stderr: how far it is, and how it stands."""

    def __init__(self) -> None:
        self._said = 0.0
        self._seen = 0

    def update(self, run: str, count: int, *, seen: bool) -> None:
        """Take in one outcome."""
        self._seen += seen
        self.say(f"{run}: {count} {'anomaly' if count == 1 else 'anomalies'} judged, {self._seen} seen")

    def say(self, line: str) -> None:
        """Say a line, unless one was said a moment ago."""
        if time.monotonic() - self._said > EVERY_S:
            self._said = time.monotonic()
            echo(line, err=True)
