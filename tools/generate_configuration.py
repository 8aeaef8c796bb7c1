"""Write docs/configuration.md from the settings as the code declares them.

python tools/generate_configuration.py
"""

from math import inf
from pathlib import Path

import msgspec

from replog.config.areas import AREAS
from replog.config.setting import LONG_MAX, Definition, as_text, definitions_of

PAGE = Path(__file__).parent.parent / "docs" / "configuration.md"
HEAD = """# Configuration

A node reads one TOML file: `python -m replog broker --config node.toml`. Scenarios give the same names under `cluster: {settings: ...}`.
`min.insync.replicas = 2` and `"min.insync.replicas" = 2` mean the same. Lists are written with commas, as in Kafka, or as TOML lists.
A name that is not on this page is refused, and so is a value outside of its limits; the message names the setting. Numbers must not
be negative, except where the limits say so.

*Whose* says whether Apache Kafka (or a KIP) has the setting, or it is ours. Defaults are Kafka's unless the description says otherwise.
A setting with a *topic config* is only the default for topics; it can be changed while brokers run, for all of them or one topic
(`kafka-configs.sh`). All others are read once, at the start. `none` in the column *Default* means that the setting must be given.
What Kafka's files may name and replog does nothing with is accepted and shown; it is marked **without effect here**.

This page is made by `python tools/generate_configuration.py` from `replog/config`: change it there.
"""
COLUMNS = ("Name", "Type", "Default", "Limits", "Whose", "Topic config", "What it does")


def page() -> str:
    """Return the whole page."""
    return "\n".join([HEAD, *(section(title, area) for title, area in AREAS.items())])


def section(title: str, area: type[msgspec.Struct]) -> str:
    """Return one area: what its settings have in common, and a line for each."""
    rows = [COLUMNS, ("---",) * len(COLUMNS), *(row(definition) for definition in definitions_of(area))]
    table = "\n".join(f"| {' | '.join(cells)} |" for cells in rows)
    return f"## {title}\n\n{area.__doc__}\n\n{table}\n"


def row(definition: Definition) -> tuple[str, ...]:
    """Return one setting's cells."""
    setting = definition.setting
    return (
        f"`{definition.name}`",
        definition.type.name.lower() + (f", {definition.unit}" if definition.unit else ""),
        default(definition),
        limits(definition),
        "Kafka" if setting.is_kafkas else "ours",
        f"`{setting.topic}`" if setting.topic else "",
        setting.description if setting.has_effect else f"**Without effect here.** {setting.description}",
    )


def default(definition: Definition) -> str:
    """Return the default as it would stand in a file."""
    if definition.default is None:
        return "none"
    if definition.default == LONG_MAX:
        return "unlimited"
    text = as_text(definition.default)
    return f"`{text}`" if text else "empty"


def limits(definition: Definition) -> str:
    """Return which values are accepted, as far as the type leaves it open."""
    if definition.choices:
        return ", ".join(f"`{choice}`" if choice else "empty" for choice in definition.choices)
    lowest, highest = definition.setting.lowest, definition.setting.highest
    if highest == definition.highest != inf:
        return f"{lowest} to {highest}"
    return f"{lowest} or more" if lowest else ""


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
