"""A night's files: nightly.json, a summary of one page in Markdown, junit.xml.

Each is replaced as a whole, and all that says how a night went is removed when one begins: what a killed night leaves
is its own, and says that it has not ended. Whoever runs a night holds a lock in its folder; so a night whose files say
that it is running, and whose lock nobody holds, was killed.
"""

import fcntl
import io
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import resources
from pathlib import Path
from typing import Final

import jinja2
import msgspec

from tribunal.results.digits import significant
from tribunal.results.guards import GUARDS
from tribunal.results.night import Night, NightState, upper_bound
from tribunal.results.night_junit import junit
from tribunal.results.signature import renewed
from tribunal.results.unreadable import UNREADABLE
from tribunal.results.verdict import answered, counted
from tribunal.results.whole_files import put, put_json

NIGHT: Final = "nightly.json"
POWER: Final = "power.json"  # measurements of known bugs: they stay from night to night
SUMMARY: Final = "summary.md"
JUNIT: Final = "junit.xml"
ANNOUNCED: Final = "announced.jsonl"
INDEX: Final = "index.html"
LOCK: Final = ".night"
SUMMARY_LINES: Final = 40
SHOWN: Final = 6
FEW: Final = 3  # of what is the same many times
TREND_SHOWN: Final = 9


class UnderWay(Exception):
    """Another process runs a night in this folder."""


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Hold a folder for a night; `UnderWay` when another process does."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / LOCK).open("wb") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise UnderWay(f"{folder}: a night is under way there") from None
        # Seeds under way that a kill of this process leaves must not go on holding it.
        os.register_at_fork(after_in_child=lock.close)
        yield


def is_held(folder: Path) -> bool:
    """Return whether a process runs a night in this folder."""
    try:
        # Together with others who only look, and where nobody may write: a folder of nights may be read-only.
        with (folder / LOCK).open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    return False


def killed(folder: Path) -> Night | None:
    """Return the night of a folder that was killed: it says that it is running, and no process runs it."""
    try:
        night = load(folder / NIGHT)
    except (OSError, *UNREADABLE):
        return None
    return night if night.state is NightState.RUNNING and not is_held(folder) else None


def forget(folder: Path) -> None:
    """Remove what an earlier night said of itself; its runs stay."""
    for name in (SUMMARY, JUNIT, INDEX, NIGHT, ANNOUNCED, GUARDS):
        (folder / name).unlink(missing_ok=True)


def note_announced(folder: Path, signature: str) -> None:
    """Write down that a signature was announced, at once: a night that is killed now must not say it again when it goes on."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / ANNOUNCED
    former = path.read_bytes() if path.is_file() else b""
    with path.open("ab") as file:  # behind a line that was cut off another one begins
        file.write((b"\n" if former and not former.endswith(b"\n") else b"") + msgspec.json.encode(signature) + b"\n")


def announced(folder: Path) -> list[str]:
    """Return what this night announced; a line that was cut off was announced, perhaps, and counts as not."""
    if not (folder / ANNOUNCED).is_file():
        return []
    return [one for line in (folder / ANNOUNCED).read_bytes().split(b"\n") if (one := _signature(line)) is not None]


def _signature(line: bytes) -> str | None:
    try:
        return msgspec.json.decode(line, type=str)
    except UNREADABLE:
        return None


def save(night: Night, folder: Path) -> None:
    """Write nightly.json, summary.md and junit.xml, each as a whole."""
    folder.mkdir(parents=True, exist_ok=True)
    put(folder / SUMMARY, summary(night).encode())
    written = io.BytesIO()
    junit(night).write(written, pretty=True)
    put(folder / JUNIT, written.getvalue())
    put_json(folder / NIGHT, night)


def load(path: Path) -> Night:
    """Read nightly.json; `msgspec.DecodeError` or `msgspec.ValidationError` when it is none."""
    night = msgspec.json.decode(path.read_bytes(), type=Night)
    # A night of before there were kinds identified the same findings by their sentences.
    night.past = [msgspec.structs.replace(one, signature=renewed(one.signature)) for one in night.past]
    night.found = [msgspec.structs.replace(one, signature=renewed(one.signature)) for one in night.found]
    return night


def summary(night: Night) -> str:
    """Return the night on one page of Markdown, at most 40 lines."""
    template = (
        resources.files("tribunal.results.report").joinpath("templates", "summary.md.j2").read_text(encoding="utf-8")
    )
    environment = jinja2.Environment(  # noqa: S701 - Markdown, and `cell` takes what would be markup
        undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["cell"] = _cell
    environment.filters["counted"] = counted
    environment.filters["digits"] = significant
    written = time.strftime("%H:%M:%S UTC", time.gmtime())
    text = environment.from_string(template).render(
        night=night,
        shown=SHOWN,
        few=FEW,
        bound=_bound(night),
        trend=list(night.trend.items())[:TREND_SHOWN],
        written=written,
    )
    lines = text.splitlines()
    assert len(lines) <= SUMMARY_LINES, f"{len(lines)} lines"
    return text


def _cell(text: object, width: int = 90) -> str:
    """Return text that stays inside one cell of a table and is no markup, whatever a finding says."""
    plain = " ".join(str(text).split())
    plain = plain if len(plain) <= width else f"{plain[:width]}…"
    for mark in ("\\", "|", "`", "<", "[", "*", "_"):
        plain = plain.replace(mark, f"\\{mark}")
    return plain


def _bound(night: Night) -> float:
    """Return the 95 % bound over all simulated runs without a violation, otherwise the worst scenario's."""
    verdicts = night.verdicts
    clean = answered(verdicts)
    if not clean or verdicts["VIOLATION"]:
        return max((swept.bound_95 for swept in night.swept), default=1.0)
    return upper_bound(clean, 0)
