"""Write docs/images/screencast.svg: a real session of three commands as an animated drawing, for the README and the site.

python tools/make_screencast.py

Each command is typed, run in an empty folder and shown with all that it printed; long lines go on in the next, as on any screen. Run
folders are named after the time: that alone is replaced, so that the drawing of one commit is always the same. In the end stands the drawing that the report's story has. There is no script in the file; readers who asked their system
for less motion get the verdict as a picture that stands still.
"""

import base64
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final
from xml.sax.saxutils import escape

import msgspec

ROOT = Path(__file__).parent.parent
TARGET = ROOT / "docs" / "images" / "screencast.svg"
COMMANDS: Final = (
    "tribunal run produce-consume --seed 2 --mutant M44 --cluster simulated --engine inline --out demo",
    "tribunal explain demo/*",
    "tribunal report demo/* --figures",
)
RUN: Final = re.compile(r"\d{8}T\d{6}Z")
NAMED: Final = "20260101T000000Z"
COLUMNS: Final = 128
ROWS: Final = 30
CHARACTER: Final = 7.2
LINE: Final = 18
LEFT: Final = 16
TOP: Final = 44
PAUSE_S: Final = 2.5
TYPED_S: Final = 0.035  # a character
READ_S: Final = 0.0075  # a character of what is printed
STEP_S: Final = 0.2  # a line of it
PICTURE_S: Final = 16.0
STYLE: Final = """
svg{background:#12161b}text{font:12px ui-monospace,"SF Mono",Consolas,"Liberation Mono",monospace;fill:#e6eaef;white-space:pre}
.title{fill:#9ca7b3}.command{fill:#79b7f4;font-weight:600}.bad{fill:#ff7b70}.dim{fill:#9ca7b3}.cover,.ground{fill:#12161b}
"""


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """A line of the screen, and when it appears; `typed_s`: how long it takes to be typed, 0 where it is printed."""

    at_s: float
    text: str
    kind: str = ""
    typed_s: float = 0.0


class Session(msgspec.Struct, frozen=True, kw_only=True):
    """What was typed and printed, and the drawing of the report."""

    lines: list[Line]
    picture: bytes
    picture_s: float

    @property
    def end_s(self) -> float:
        """When it begins again."""
        return self.picture_s + PICTURE_S


def recorded(folder: Path) -> Session:
    """Run the commands in an empty folder; return what was to be seen."""
    found: list[Line] = []
    at_s = 1.0
    # Browsers and Java of this machine are out of reach: what is printed must not depend on them.
    environment = {**os.environ, "PATH": str(Path(sys.executable).parent), "NO_COLOR": "1", "COLUMNS": str(COLUMNS)}
    for command in COMMANDS:
        typed_s = round(len(command) * TYPED_S, 2)
        found.append(Line(at_s=round(at_s, 2), text=f"$ {command}", kind="command", typed_s=typed_s))
        at_s += typed_s + 0.8
        done = subprocess.run(
            ["/bin/bash", "-c", f"{command} 2>&1"], cwd=folder, env=environment, capture_output=True, text=True, check=False
        )  # fmt: skip
        if done.returncode not in (0, 1):
            raise SystemExit(f"{command}: exit code {done.returncode}\n{done.stdout}")
        for line in RUN.sub(NAMED, done.stdout).splitlines():
            rows = [line[begin : begin + COLUMNS] for begin in range(0, max(1, len(line)), COLUMNS)]
            found += [Line(at_s=round(at_s, 2), text=row, kind=_kind(line)) for row in rows]
            at_s += STEP_S + READ_S * len(line)
        at_s += PAUSE_S
    (picture,) = folder.glob("demo/*/figures/story.svg")
    return Session(lines=found, picture=picture.read_bytes(), picture_s=round(at_s, 2))


def _kind(line: str) -> str:
    if line.startswith("VIOLATION") or re.match(r" +\d+\.\d{3} s !", line):
        return "bad"
    return "dim" if re.match(r" +\d+\.\d s ", line) else ""


def drawn(session: Session) -> str:
    """Return the drawing."""
    width, height = round(2 * LEFT + COLUMNS * CHARACTER), TOP + ROWS * LINE + 12
    still = next(place for place, line in enumerate(session.lines) if line.text.startswith("VIOLATION"))
    rules, marks = [STYLE], []
    for place, line in enumerate(session.lines):
        y = TOP + LINE * (place + 1)
        rules.append(_appears(f"l{place}", line.at_s, session.end_s))
        kind = f' class="{line.kind}"' if line.kind else ""
        marks.append(f'<g class="l{place}"><text x="{LEFT}" y="{y}"{kind}>{escape(line.text)}</text>')
        if line.typed_s:
            rules.append(_typed(f"t{place}", line, session.end_s))
            marks.append(f'<rect class="cover t{place}" x="{LEFT}" y="{y - 13}" width="{width}" height="{LINE}"/>')
        marks.append("</g>")
    rules += [
        _scrolled(session),
        # Without motion: the verdict and what stands around it.
        f"#screen{{transform:translateY({-_up(min(len(session.lines), still + ROWS - 6))}px)}}.cover{{opacity:0}}#picture{{opacity:0}}",
        _appears("picture", session.picture_s, session.end_s, selector="#picture", still=0),
        "@media (prefers-reduced-motion:reduce){*{animation:none!important}}",
    ]
    picture = base64.b64encode(session.picture).decode()
    typed = "; ".join(COMMANDS)
    return "\n".join((
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img" aria-labelledby="what how">',
        '<title id="what">A session of tribunal: a known bug is switched on, found, explained and drawn</title>',
        f'<desc id="how">Three commands and what they printed: {escape(typed)}. In the end the story of the first lost record as the report draws it.</desc>',
        f"<style>{''.join(rules)}</style>",
        f'<clipPath id="window"><rect x="0" y="{TOP + 4}" width="{width}" height="{ROWS * LINE + 6}"/></clipPath>',
        f'<rect width="{width}" height="{height}" class="ground"/>',
        f'<text x="{LEFT}" y="24" class="title">a real session, {session.end_s:.0f} seconds; made by tools/make_screencast.py</text>',
        f'<g clip-path="url(#window)"><g id="screen">{"".join(marks)}</g></g>',
        f'<g id="picture"><rect x="0" y="{TOP - 10}" width="{width}" height="{height}" fill="#fff"/>',
        f'<image x="{LEFT}" y="{TOP}" width="{width - 2 * LEFT}" height="{height - TOP - 12}" href="data:image/svg+xml;base64,{picture}"/></g>',
        "</svg>\n",
    ))  # fmt: skip


def _share(at_s: float, end_s: float) -> str:
    return f"{100 * at_s / end_s:.3f}%"


def _appears(name: str, at_s: float, end_s: float, selector: str = "", still: int = 1) -> str:
    hidden = f"@keyframes {name}{{0%{{opacity:0}}{_share(at_s, end_s)}{{opacity:1}}100%{{opacity:1}}}}"
    return f"{hidden}{selector or f'.{name}'}{{opacity:{still};animation:{name} {end_s:.2f}s step-end infinite}}\n"


def _typed(name: str, line: Line, end_s: float) -> str:
    """Move what covers a command aside, a character at a time."""
    count = len(line.text)
    aside = f"transform:translateX({count * CHARACTER:.1f}px)"
    begin, done = _share(line.at_s, end_s), _share(line.at_s + line.typed_s, end_s)
    moved = f"0%,{begin}{{opacity:1;transform:translateX({2 * CHARACTER:.1f}px);animation-timing-function:steps({count - 2},end)}}"
    gone = f"{done},100%{{opacity:1;{aside}}}"
    return f"@keyframes {name}{{{moved}{gone}}}.{name}{{animation:{name} {end_s:.2f}s infinite}}\n"


def _up(lines: int) -> int:
    """Return how far the screen has moved when so many lines were printed."""
    return max(0, lines - ROWS) * LINE


def _scrolled(session: Session) -> str:
    steps = {
        _share(line.at_s, session.end_s): _up(place + 1) for place, line in enumerate(session.lines) if _up(place + 1)
    }
    moved = "".join(f"{share}{{transform:translateY(-{up}px)}}" for share, up in steps.items())
    last = max(steps.values(), default=0)
    frames = f"@keyframes scroll{{0%{{transform:translateY(0)}}{moved}100%{{transform:translateY(-{last}px)}}}}"
    return f"{frames}#screen{{animation:scroll {session.end_s:.2f}s step-end infinite}}\n"


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="screencast-") as empty:
        TARGET.write_text(drawn(recorded(Path(empty))), encoding="utf-8")
