"""What nodes said to each other, as relays or the simulated network saw it: the recording's table `requests`.

Recorded are the messages between nodes that steer the cluster, and any message at all whose fate a rule decided. What
flows all the time (fetches, produces, metadata) is left out unless it met a rule: it would be most of the recording.
"""

import json
from collections import Counter
from collections.abc import Callable
from typing import Final

from replog.wire.apis import Api
from tribunal.clusters.api import CLIENTS, RequestSeen
from tribunal.clusters.capabilities import Fate
from tribunal.clusters.frame_rules import UNKNOWN, Message

# Most of all messages; what is no message at all is left out with them.
FLOWING: Final = frozenset({int(Api.FETCH), int(Api.PRODUCE), int(Api.METADATA), int(Api.API_VERSIONS), UNKNOWN})
NAMES: Final = {int(api): api.name.lower() for api in Api}
KEPT_MAX: Final = 200_000  # between two looks of the collector


class RequestLog:
    """Gathers messages until somebody takes them."""

    def __init__(self, now_ns: Callable[[], int]) -> None:
        self._now_ns = now_ns
        self._seen: list[RequestSeen] = []
        self.counts: Counter[tuple[int, bool]] = (
            Counter()
        )  # by API, and whether it is a request; of those that do not flow
        self.ends: dict[tuple[int, bool], tuple[int, ...]] = {}  # likewise: sender and receiver of the last one

    def note(self, message: Message, fate: Fate, *, metadata_offset: int | None = None) -> None:
        """Take note of a message.

        metadata_offset:  how far its sender knows the metadata, where it says so and its bytes were read.
        """
        if message.api not in FLOWING:
            kind = message.api, message.is_request
            self.counts[kind] += 1
            self.ends[kind] = message.source, message.target
        between_nodes = CLIENTS not in (message.source, message.target)
        steers = between_nodes and message.api not in FLOWING
        if not (steers or message.rule is not None) or len(self._seen) >= KEPT_MAX:
            return
        name = NAMES.get(message.api, str(message.api))
        self._seen.append(
            RequestSeen(
                source=message.source,
                target=message.target,
                api_key=message.api,
                api_version=message.version,
                correlation_id=message.correlation_id,
                direction="request" if message.is_request else "response",
                fate=fate.value,
                at_ns=self._now_ns(),
                summary=name if metadata_offset is None else json.dumps({"metadata_offset": metadata_offset}),
            )
        )

    def drain(self) -> list[RequestSeen]:
        """Return what came since the last call."""
        seen, self._seen = self._seen, []
        return seen
