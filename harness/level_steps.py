"""Steps of a plan that change releases and the finalized metadata.version: what cannot come about is refused before anything starts.

What is finalized stays so: a release that does not know it cannot come back. What no node knows nobody finalizes.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from replog.metadata.record_versions import HIGHEST
from tribunal.clusters.kafka.releases import release
from tribunal.clusters.spec import ClusterSpec

CHANGE: Final = "change-release"
RAISE: Final = "raise-metadata-version"
LEVELS: Final = frozenset({CHANGE, RAISE})


def level_problem(steps: Sequence[tuple[str, Mapping[str, object]]], spec: ClusterSpec) -> str:
    """Say which of these steps, in their order, cannot come about; empty: all can.

    steps:  kinds of faults with their options.
    """
    finalized, by = spec.formatted_level, 0
    known = release(spec.version).metadata_version  # by some node, at most
    if spec.kafka:
        known = min(known, HIGHEST)  # replog's controllers have to know it, too
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
