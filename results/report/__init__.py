"""The report of one run: a self-contained HTML file that works offline, prints, and has no script.

`model` reads the run, `layout` turns it into geometry, the templates only place it. Colours of brokers and of
damage are never used for anything else, and each has a second channel: a printed name, a dot, a hatch, a word.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jinja2

from results.report.layout import LEFT, PLOT, ROW, WIDTH, drawing
from results.report.model import Page, page
from results.verdict import Finding

FINDINGS_SHOWN = 200


def write(run_dir: Path) -> Path:
    """Write report.html beside the run's verdict; return its path."""
    path = Path(run_dir) / "report.html"
    temporary = path.with_suffix(".tmp")
    temporary.write_text(render(page(Path(run_dir))), encoding="utf-8")
    temporary.replace(path)
    return path


def render(content: Page) -> str:
    """Return the page's HTML."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("results.report"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"seconds": _seconds, "acks": _acks, "count": _count}
    return environment.get_template("report.html.j2").render(
        page=content,
        verdict=content.verdict,
        drawing=drawing(content) if content.damage is None else None,
        shown=content.verdict.violations[:FINDINGS_SHOWN],
        permitted=content.verdict.permitted[:FINDINGS_SHOWN],
        notes=[finding for finding in content.verdict.findings if finding.severity == "note"][:FINDINGS_SHOWN],
        facts=_facts(content),
        again=_again(content),
        budget=_budget(content.verdict.findings),
        geometry={"left": LEFT, "plot": PLOT, "width": WIDTH, "row": ROW},
    )


def _seconds(at_ns: int | None) -> str:
    return "" if at_ns is None else f"{at_ns / 1e9:.3f} s"


def _acks(acks: int | None) -> str:
    return {None: "", -1: "all"}.get(acks, str(acks))


def _count(number: int) -> str:
    return f"{number:,}"


def _facts(content: Page) -> list[tuple[str, str]]:
    manifest = content.manifest
    named = ("scenario", "cluster", "mode", "seed", "commit", "python", "platform", "lock_sha256", "recording_hash")
    facts = [("run", content.verdict.run_id), ("judged by", content.verdict.engine)]
    facts += [(name.replace("_", " "), str(manifest[name])) for name in named if name in manifest]
    if manifest.get("mutants"):
        facts.append(("mutants", ", ".join(map(str, manifest["mutants"]))))
    return facts


def _again(content: Page) -> str:
    if "scenario" not in content.manifest:
        return f"tribunal check {content.run_dir}"
    return f"tribunal run --plan {content.run_dir / 'plan.json'}"


def _budget(findings: list[Finding]) -> list[Mapping[str, Any]]:
    """Add findings up by what they are: what had to survive, what might be lost by which rule."""
    rows: dict[tuple[str, str, str, int | None], int] = {}
    for finding in findings:
        key = (finding.severity, finding.kind, finding.rule, finding.acks)
        rows[key] = rows.get(key, 0) + finding.count
    return [
        {"severity": severity, "kind": kind, "rule": rule, "acks": acks, "count": count}
        for (severity, kind, rule, acks), count in rows.items()
    ]
