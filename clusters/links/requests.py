"""What nodes said to each other, as the relays saw it: the recording's table `requests`.

Recorded are the messages between nodes that steer the cluster, and any message at all whose fate a rule decided. What
flows all the time (fetches, produces, metadata) is left out unless it met a rule: it would be most of the recording.
"""

from collections.abc import Callable
from typing import Final

from replog.wire.apis import Api
from tribunal.clusters.api import CLIENTS, RequestSeen
from tribunal.clusters.links.frames import UNKNOWN, Head

FLOWING: Final = frozenset({Api.FETCH, Api.PRODUCE, Api.METADATA, Api.API_VERSIONS})
NAMES: Final = {int(api): api.name.lower() for api in Api}
KEPT_MAX: Final = 200_000  # between two looks of the collector


class RequestLog:
    """Gathers messages until somebody takes them."""

    def __init__(self, now_ns: Callable[[], int]) -> None:
        self._now_ns = now_ns
        self._seen: list[RequestSeen] = []

    def note(self, head: Head, fate: str) -> None:
        """Take note of a message."""
        between_nodes = CLIENTS not in (head.source, head.target)
        steers = between_nodes and head.api not in FLOWING
        if head.api == UNKNOWN or not (steers or head.rule is not None) or len(self._seen) >= KEPT_MAX:
            return
        self._seen.append(
            RequestSeen(
                source=head.source,
                target=head.target,
                api_key=head.api,
                api_version=head.version,
                correlation_id=head.correlation_id,
                direction="request" if head.is_request else "response",
                fate=fate,
                at_ns=self._now_ns(),
                summary=NAMES.get(head.api, str(head.api)),
            )
        )

    def drain(self) -> list[RequestSeen]:
        """Return what came since the last call."""
        seen, self._seen = self._seen, []
        return seen
