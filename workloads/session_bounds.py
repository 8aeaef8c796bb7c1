"""Which sessions of group members the nodes grant: shorter or longer ones are refused, and nobody ever joins. How long members nap that outlive theirs."""

import math
from random import Random
from typing import Final

from tribunal.clusters.spec import Settings

LEAST: Final = ("group.min.session.timeout.ms", 6_000)
MOST: Final = ("group.max.session.timeout.ms", 1_800_000)
"""Names of settings and their defaults, Kafka's and ours."""
NAP: Final = (1.1, 2.5)
"""How many sessions a nap lasts, at least and at most."""


def nap_s(session_timeout_ms: int, random: Random) -> float:
    """Draw how long a member naps: for longer than its session."""
    return random.uniform(*NAP) * session_timeout_ms / 1000


def longest_nap_ms(session_timeout_ms: int) -> int:
    """Return how long one may go on that has begun when the workload is asked to stop."""
    return math.ceil(NAP[1] * session_timeout_ms)


def refused_session(session_timeout_ms: int, settings: Settings) -> str | None:
    """Say why nodes with these settings refuse a session; None: they grant it."""
    least, most = (int(str(settings.get(name, default))) for name, default in (LEAST, MOST))
    if session_timeout_ms < least:
        return f"session_timeout_ms {session_timeout_ms} is below {LEAST[0]} {least}: set cluster.settings.{LEAST[0]}"
    if session_timeout_ms > most:
        return f"session_timeout_ms {session_timeout_ms} is above {MOST[0]} {most}: set cluster.settings.{MOST[0]}"
    return None
