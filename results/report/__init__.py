"""The report of one run: a self-contained HTML file that works offline, prints, and says everything without script.

`model` reads the run, `story`, `matrix`, `promises` and `groups` say what it means to a reader, `layout` and `sequence`
turn that into geometry, the templates only place it. Colours of brokers and of damage are never used for anything else,
and each has a second channel: a printed name, a dot, a hatch, a word.
"""

import base64
import hashlib
import shlex
from collections.abc import Iterable, Mapping
from importlib import resources
from pathlib import Path

import jinja2
import markupsafe
import msgspec

from tribunal.results.described import Described
from tribunal.results.digits import significant
from tribunal.results.likelihood import read as read_likelihood
from tribunal.results.manifest import Manifest, Setting
from tribunal.results.report import matrix as matrix_of
from tribunal.results.report.figures_of import figure_tables
from tribunal.results.report.first_screen import first_screen, judged
from tribunal.results.report.groups import GROUPS, Group, grouped
from tribunal.results.report.layout import drawing
from tribunal.results.report.likelihood import Curve, curve
from tribunal.results.report.loads import outcomes, phase_rows
from tribunal.results.report.measures import LEFT, PLOT, ROW, WIDTH
from tribunal.results.report.model import Page, page
from tribunal.results.report.overview import NARROW, overview
from tribunal.results.report.proofs import gist
from tribunal.results.report.sequence import WIDTH as SEQUENCE_WIDTH
from tribunal.results.report.sequence import sequence
from tribunal.results.report.window import Window
from tribunal.results.values import record_name
from tribunal.results.verdict import Finding, RunVerdict
from tribunal.results.whole_files import put

MOST_TEXT = 400
FAULTS = 300  # of the table of faults
AVAILABILITY = "availability"  # has a section of its own
BESIDE = (
    "manifest.json", "plan.json", "schedule.jsonl", "simulation.json", "trace.msgpack", "history.jsonl", "import.json", "verdict.json",
)  # fmt: skip
TEMPLATES = {"story": "sequence.svg.j2", "circle": "cycle.svg.j2"}


def write(run_dir: Path, window: Window | None = None) -> Path:
    """Write report.html beside the run's verdict; return its path.

    window:  what the timeline is drawn of, in a file of its own; `BadWindow` where the run was over before it.
    """
    name = "report.html" if window is None else f"report-{window.name.replace(':', '-')}.html"
    return put(Path(run_dir) / name, render(page(Path(run_dir), window)).encode())


def render(content: Page) -> str:
    """Return the page's HTML."""
    return environment().get_template("report.html.j2").render(**_context(content))


def drawings(content: Page) -> tuple[dict[str, str], str]:
    """Return the markup of each drawing that the page has, by name, and the page's style."""
    context = _context(content)
    there = {
        "overview": context["overview"],
        "story": context["sequence"],
        "timeline": context["drawing"],
        "matrix": content.matrix,
        "operations": content.operations,
        "circle": content.cycle,
    }
    found = {
        name: environment().get_template(TEMPLATES.get(name, f"{name}.svg.j2")).render(
            **context, brush=False, operations=content.operations
        )
        for name, known in there.items()
        if known is not None
    }  # fmt: skip
    return found, environment().get_template("report.css").render()


def _context(content: Page) -> dict[str, object]:
    """Return what the templates place."""
    groups = grouped(_by_gravity(content.verdict))
    drawn = drawing(content) if content.damage is None and content.imported is None else None
    figures = {name: one for name, one in content.verdict.figures.items() if name != AVAILABILITY}
    return {
        "page": content,
        "verdict": content.verdict,
        "first": first_screen(content),
        "overview": overview(content),
        "narrow": overview(content, NARROW),
        "judged": judged(content),
        "asked": "calls" if content.is_of_a_system else "sends",
        "figures": list(figure_tables(figures)),
        "load": phase_rows(content.verdict.test),
        "load_outcomes": outcomes(content.verdict.test),
        "drawing": drawn,
        "likelihood": _likelihood(content),
        "events": "[]" if drawn is None else msgspec.json.encode(drawn.events).decode(),
        "sequence": None if content.story is None else sequence(content.story),
        "lanes": None if content.minimal is None or content.minimal.story is None else sequence(content.minimal.story),
        "groups": {severity: _shown(groups, severity) for severity in ("violation", "permitted", "note")},
        "facts": _facts(content),
        "shown_faults": FAULTS,
        "linked": {fault.index for fault in content.verdict.test.faults[:FAULTS]},
        "kept": None if content.minimal is None else content.minimal.kept,
        "minimal_plan": "" if content.minimal is None else shlex.quote(str(content.minimal.path)),
        "settings": _settings(content.manifest),
        "folder": shlex.quote(str(content.run_dir)),
        "beside": [*_beside(content.run_dir)],
        "again": again(content.run_dir, content.manifest),
        "geometry": {
            "left": LEFT,
            "plot": PLOT,
            "width": WIDTH,
            "row": ROW,
            "sequence": SEQUENCE_WIDTH,
            "offsets": matrix_of.OFFSETS,
        },
        **embedded("report.js"),
    }


def _likelihood(content: Page) -> Curve | None:
    if content.window is not None:
        return None  # its moments are spread over the whole run
    found = read_likelihood(content.run_dir)
    return None if found is None else curve(found, content.end_ns)


def environment() -> jinja2.Environment:
    """Return the templates: everything escaped, a name that is missing is an error."""
    found = jinja2.Environment(
        loader=jinja2.PackageLoader("tribunal.results.report"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.filters |= {
        "seconds": _seconds,
        "percent": _percent,
        "acks": _acks,
        "count": _count,
        "short": _short,
        "record": record_name,
        "gist": gist,
        "size": _size,
        "digits": significant,
    }
    return found


def embedded(name: str) -> Mapping[str, str]:
    """Return a script of ours and its hash: the page's policy lets run this text and no other."""
    text = resources.files("tribunal.results.report").joinpath("templates", name).read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return {"script": markupsafe.Markup(text), "script_hash": f"sha256-{digest}"}  # noqa: S704 - a file of ours


def _seconds(at_ns: int | None) -> str:
    return "" if at_ns is None else f"{at_ns / 1e9:.3f} s"


def _size(size_bytes: int) -> str:
    """Return a size in the largest unit of which there is one."""
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if size_bytes >= unit:
            return f"{size_bytes / unit:.1f} {name}"
    return f"{size_bytes} B"


def _percent(asked_ns: int, silent_ns: int) -> str:
    """Return the part of the time of asking that was not silent; nothing but all of it is 100 %."""
    if not asked_ns:
        return ""
    return f"{(asked_ns - silent_ns) * 1000 // asked_ns / 10:.1f} %"


def _acks(acks: int | None) -> str:
    return {None: "", -1: "all"}.get(acks, str(acks))


def _count(number: int) -> str:
    return f"{number:,}"


def _short(text: object) -> str:
    full = str(text)
    return full if len(full) <= MOST_TEXT else f"{full[:MOST_TEXT]} … ({len(full) - MOST_TEXT:,} more characters)"


def _by_gravity(verdict: RunVerdict) -> Iterable[Finding]:
    return sorted(verdict.findings, key=lambda finding: (finding.acknowledged_ns or 0, finding.log_offset or 0))


class Shown(msgspec.Struct, frozen=True):
    """The groups of one severity that the page shows, and how many more there are (below 0: none)."""

    shown: list[Group]
    more: int


def _shown(groups: list[Group], severity: str) -> Shown:
    own = [group for group in groups if group.severity == severity]
    return Shown(own[:GROUPS], len(own) - GROUPS)


def _facts(content: Page) -> list[tuple[str, str]]:
    facts = [("run", content.verdict.run_id), ("judged by", content.verdict.engine)]
    if content.manifest is not None:
        facts += [row for row in _made_with(content.manifest) if row[0] != "mode" or not content.is_of_a_system]
        facts += _described(content.manifest.described)
    if content.simulation:
        facts.append(("simulated", f"{content.simulation.simulated_ns / 1e9:.3f} s"))
        facts.append(("trace hash", content.simulation.trace_hash))
    return facts


def _described(described: Described | None) -> list[tuple[str, str]]:
    """Return what is known of a described system besides its name."""
    if described is None:
        return []
    version = described.version or f"not asked: {described.file} has no command `version`"
    others = "; ".join(f"{one.name} ({one.why})" for one in described.left_out)
    more = f"; {described.more} more" if described.more else ""
    count = len(described.files) - len(described.left_out)
    return [
        ("version of the system", version),
        ("described by", described.file),
        *((f"setting {name}", _setting(value)) for name, value in described.settings.items()),
        ("files with the run", f"{count} in system/{f', without {others}' if others else ''}{more}"),
    ]


def _settings(manifest: Manifest | None) -> list[tuple[str, str]]:
    """Return what nodes were set to, as their files have it."""
    known = {} if manifest is None else manifest.settings or {}
    return [(name, _setting(value)) for name, value in sorted(known.items()) if value is not None]


def _setting(value: Setting) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, str | int | float) else ", ".join(value or ())


def _beside(run_dir: Path) -> Iterable[str]:
    """Yield what lies beside the report, of that which an archive of the run has as well."""
    yield from (name for name in BESIDE if (run_dir / name).is_file())
    if any((run_dir / "logs").glob("*.log")):
        yield "logs/"


def _made_with(manifest: Manifest) -> list[tuple[str, str]]:
    named = {
        "scenario": manifest.scenario,
        "cluster": manifest.cluster,
        "mode": manifest.mode,
        "seed": manifest.seed,
        "commit": manifest.commit,
        "python": manifest.python,
        "platform": manifest.platform,
        "lock sha256": manifest.lock_sha256,
        "recording hash": manifest.recording_hash,
    }
    return [(name, str(value)) for name, value in named.items() if value is not None]


def again(run_dir: Path, manifest: Manifest | None) -> str:
    """Return the line to paste that does the same again."""
    if manifest is None or manifest.scenario is None:
        return f"tribunal check {shlex.quote(str(run_dir))}"
    return f"tribunal run --plan {shlex.quote(str(Path(run_dir) / 'plan.json'))}"
