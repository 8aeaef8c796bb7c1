"""The table of faults and kinds of cluster, as tests fill it: one file of rows, and a page made of it."""

import json
import os
from pathlib import Path

PAGE = Path(os.environ.get("TRIBUNAL_MATRIX", Path(__file__).parents[2] / "runs" / "fault-matrix.md"))


def write_row(kind, fault, *, took_effect, healed, took_s, words=""):
    """Add one result, and write the page anew."""
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    rows = PAGE.with_suffix(".jsonl")
    with rows.open("a") as file:
        file.write(json.dumps({"kind": kind, "fault": fault, "took_effect": took_effect, "healed": healed, "s": round(took_s, 1),
                               "words": words}) + "\n")  # fmt: skip
    PAGE.write_text(page([json.loads(line) for line in rows.read_text().splitlines()]))


def page(rows):
    """Return the table as Markdown: the last result of each pair counts."""
    last = {(row["fault"], row["kind"]): row for row in rows}
    kinds = sorted({kind for _, kind in last})
    lines = [
        "# Faults by kind of cluster",
        "",
        "Injected, proven to bite, healed, proven healed; seconds of all of it.",
        "",
    ]
    lines += [f"| fault | {' | '.join(kinds)} |", f"|---|{'---|' * len(kinds)}"]
    for fault in sorted({fault for fault, _ in last}):
        lines.append(f"| {fault} | {' | '.join(_cell(last.get((fault, kind))) for kind in kinds)} |")
    return "\n".join(lines) + "\n"


def _cell(row):
    if row is None:
        return "–"
    mark = "✓" if row["took_effect"] and row["healed"] else "✗ no effect" if not row["took_effect"] else "✗ not healed"
    return f"{mark} {row['s']} s {row['words']}".strip()
