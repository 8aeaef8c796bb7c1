"""Which sessions of group members the nodes grant: shorter or longer ones are refused, and nobody ever joins."""

from typing import Final

from tribunal.clusters.spec import Settings

LEAST: Final = ("group.min.session.timeout.ms", 6_000)
MOST: Final = ("group.max.session.timeout.ms", 1_800_000)
"""Names of settings and their defaults, Kafka's and ours."""


def refused_session(session_timeout_ms: int, settings: Settings) -> str | None:
    """Say why nodes with these settings refuse a session; None: they grant it."""
    least, most = (int(str(settings.get(name, default))) for name, default in (LEAST, MOST))
    if session_timeout_ms < least:
        return f"session_timeout_ms {session_timeout_ms} is below {LEAST[0]} {least}: set cluster.settings.{LEAST[0]}"
    if session_timeout_ms > most:
        return f"session_timeout_ms {session_timeout_ms} is above {MOST[0]} {most}: set cluster.settings.{MOST[0]}"
    return None
