"""Steps of a plan that change releases and the finalized metadata.version: what cannot come about is refused before anything starts.

What is finalized stays so: a release that does not know it cannot come back. What no node knows nobody finalizes.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from tribunal.clusters.kafka.releases import release

CHANGE: Final = "change-release"
RAISE: Final = "raise-metadata-version"
LEVELS: Final = frozenset({CHANGE, RAISE})


def level_problem(steps: Sequence[tuple[str, Mapping[str, object]]], first: str) -> str:
    """Say which of these steps, in their order, cannot come about; empty: all can.

    steps:  kinds of faults with their options.
    first:  the release that the cluster is formatted with; empty: the newest.
    """
    formatted = release(first)
    finalized, by = formatted.metadata_version, 0
    known = formatted.metadata_version  # by some node, at most
    for number, (kind, options) in enumerate(steps, start=1):
        if kind not in LEVELS:
            continue
        wanted = release(str(options.get("to", "")))
        level = wanted.metadata_version
        if kind == CHANGE:
            if level < finalized and by:
                return (
                    f"step {number} ({CHANGE}): Apache Kafka {wanted.name} does not know metadata.version {finalized}, which"
                    f" step {by} finalizes: there is no way back"
                )
            known = max(known, level)
        elif options.get("expect", "done") == "done":
            if level > known:
                return (
                    f"step {number} ({RAISE}): no node knows metadata.version {level} of {wanted.name} by then:"
                    f" {CHANGE} before it, or expect: refused"
                )
            if level > finalized:
                finalized, by = level, number
    return ""
