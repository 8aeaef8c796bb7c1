"""What a user sees while a run goes on: one live screen on a terminal, plain lines otherwise."""

import sys
from contextlib import suppress
from typing import Final, Protocol, Self

import msgspec
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from tribunal.harness.terminal import echo, plain

PHASES: Final = ("start", "warm-up", "faults", "heal", "quiesce", "final-read", "collect", "check")
FAULTS_SHOWN: Final = 6
PLAIN_EVERY_MS: Final = 10_000


class Status(msgspec.Struct, kw_only=True):
    """What is known right now."""

    title: str
    phase: str = ""
    done: list[str] = []
    elapsed_ms: int = 0
    faults: list[str] = []
    cluster: str = ""
    load: str = ""


class Progress(Protocol):
    """Shows a run's progress."""

    def __enter__(self) -> Self:
        """Begin to show."""

    def __exit__(self, *error: object) -> None:
        """End."""

    def phase(self, name: str, elapsed_ms: int) -> None:
        """Begin a phase."""

    def say(self, line: str) -> None:
        """Show one thing that happened."""

    def update(self, elapsed_ms: int, cluster: str, load: str) -> None:
        """Show how it stands."""

    def lasts(self, elapsed_ms: int, line: str) -> None:
        """Show how something stands that takes long."""


class Plain:
    """A line for each phase and each fault, on stderr: stdout belongs to the verdict.

    A reader that went away (`2>&1 | head`) ends the lines, not the run.
    """

    def __init__(self, title: str) -> None:
        self._title = title
        self._elapsed_ms = 0
        self._last_ms = -PLAIN_EVERY_MS

    def __enter__(self) -> Self:
        self.say(self._title)
        return self

    def __exit__(self, *error: object) -> None:
        with suppress(BrokenPipeError):
            sys.stderr.flush()

    def phase(self, name: str, elapsed_ms: int) -> None:
        """Begin a phase."""
        # The judge has no clock of the run's; time does not go back for that.
        self._elapsed_ms = max(self._elapsed_ms, elapsed_ms)
        self.say(f"{self._elapsed_ms / 1000:6.1f} s  {name}")

    def say(self, line: str) -> None:
        """Show one thing that happened."""
        with suppress(BrokenPipeError):
            echo(line, err=True)

    def update(self, elapsed_ms: int, cluster: str, load: str) -> None:
        """Say nothing: lines are for what happened."""

    def lasts(self, elapsed_ms: int, line: str) -> None:
        """Show how something stands, now and then."""
        if elapsed_ms - self._last_ms >= PLAIN_EVERY_MS:
            self._last_ms = elapsed_ms
            self.say(f"{elapsed_ms / 1000:6.1f} s    {line}")


class Silent:
    """Nothing: for one run of many."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        """End."""

    def phase(self, name: str, elapsed_ms: int) -> None:
        """Say nothing."""

    def say(self, line: str) -> None:
        """Say nothing."""

    def update(self, elapsed_ms: int, cluster: str, load: str) -> None:
        """Say nothing."""

    def lasts(self, elapsed_ms: int, line: str) -> None:
        """Say nothing."""


class Screen:
    """A few lines that stay in place and change."""

    def __init__(self, title: str) -> None:
        self._status = Status(title=plain(title))
        self._live = Live(
            console=Console(stderr=True), refresh_per_second=4, transient=True, get_renderable=self._lines
        )

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._live.stop()

    def phase(self, name: str, elapsed_ms: int) -> None:
        """Begin a phase."""
        if self._status.phase:
            self._status.done.append(self._status.phase)
        self._status.phase, self._status.elapsed_ms = name, max(self._status.elapsed_ms, elapsed_ms)

    def say(self, line: str) -> None:
        """Show one thing that happened."""
        self._status.faults.append(plain(line))

    def update(self, elapsed_ms: int, cluster: str, load: str) -> None:
        """Show how it stands."""
        self._status.elapsed_ms, self._status.cluster, self._status.load = elapsed_ms, plain(cluster), plain(load)

    def lasts(self, elapsed_ms: int, line: str) -> None:
        """Show how something stands, in the cluster's place: there is none yet."""
        self.update(elapsed_ms, line, "")

    def _lines(self) -> Group:
        status = self._status
        marks = dict.fromkeys(status.done, "✓") | {status.phase: "▶"}
        phases = "  ".join(f"{name} {marks.get(name, '·')}" for name in PHASES)
        lines = [Text(f"{status.title}   {status.elapsed_ms / 1000:.1f} s", style="bold"), Text(f"phase    {phases}")]
        lines += [Text(_said(line)) for line in status.faults[-FAULTS_SHOWN:]]
        lines += [Text(f"cluster  {status.cluster}"), Text(f"load     {status.load}")]
        return Group(*lines)


def _said(line: str) -> str:
    """Return a line with what it is: what has no time of the run, as that Spark is starting, is no fault."""
    words = line.lstrip()
    return f"fault    {line}" if words[:1].isdecimal() else f"         {words}"


def shown_on(title: str, *, quiet: bool) -> Progress:
    """Return the fitting display."""
    if sys.stderr.isatty() and not quiet:
        return Screen(title)
    return Plain(title)
