"""What each table of a recording holds, for who opens a report's list of files; docs/recording-format.md has all of it."""

from collections.abc import Mapping
from typing import Final

HOLDS: Final[Mapping[str, str]] = {
    "admin": "what operators, workloads and faults asked for",
    "commits": "positions of groups: committed and fetched",
    "dumps": "which replicas' logs were read from disk in the end",
    "faults": "what was injected, with its proof and that of its end",
    "logs": "records of the replicas' final logs",
    "metadata": "committed metadata records",
    "nodes": "starts, ends and registrations of nodes",
    "operations": "calls on objects",
    "phases": "when each part of the run began and ended",
    "polls": "each poll and its answer",
    "probes": "rare states that nodes counted",
    "reads": "each record that a consumer received",
    "requests": "requests between nodes",
    "sends": "each record that was sent, and its answer",
    "txns": "transactions",
    "waits": "who waited for a processor",
    "watermarks": "high watermarks and log ends as observed",
}
