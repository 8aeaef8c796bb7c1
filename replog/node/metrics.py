"""The metrics that KIP-966 names, as Prometheus text on `tribunal.metrics.port` of a controller.

Names are the text's with `_` for `.`. Every controller shows what follows from its image; what only the active one knows
(recoveries) is 0 elsewhere. The text is made when it is asked for: nothing is counted twice, and nobody who does not ask
pays. One GET a connection, as little of HTTP as a scraper needs.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple, cast

from replog.controller.controller import Controller
from replog.controller.recoveries import Counts
from replog.node.replication.scrubbing import Scrubbing
from replog.ports import Journal, Listener, World

PATHS: Final = (b"/", b"/metrics")
REQUEST_BYTES_MAX: Final = 8192
IDLE_MS: Final = 10_000
END_OF_REQUEST: Final = b"\r\n\r\n"


class Metric(NamedTuple):
    """A family of samples: labels (or none) and values."""

    name: str
    type: str
    help: str
    samples: list[tuple[str, int]]


def metrics(controller: Controller) -> Iterator[Metric]:
    """Yield what KIP-966, "Metrics", and its metric of electable leaders ask for."""
    counts = controller.recovery_counts if controller.is_active else Counts(0, 0, 0)
    yield _gauge("active_controller_count", "1 where this controller is the active one.", int(controller.is_active))
    yield _gauge(
        "global_under_min_isr_partition_count",
        "Partitions with an ISR smaller than min ISR.",
        controller.policy.global_under_min_isr_partition_count(),
    )
    yield _gauge(
        "unclean_recovery_partitions_count",
        "Partitions under unclean recovery, those that wait for last known ELR members included.",
        counts.unclean_recovery_partitions,
    )
    yield _gauge(
        "manual_leader_election_required_partition_count",
        "Leaderless partitions that wait for an operator.",
        counts.manual_leader_election_required,
    )
    yield Metric(
        "kafka_controller_unclean_recovery_finished_count",
        "counter",
        "Unclean recoveries done since this controller started.",
        [("", controller.recoveries_finished)],
    )
    yield Metric(
        "kafka_controller_electable_leaders",
        "gauge",
        "Replicas that could lead a partition without loss: ISR and ELR together.",
        [
            (f'{{topic="{topic.name}",partition="{index}"}}', partition.electable_leaders)
            for _, topic in sorted(controller.image.topics_by_name.items())
            for index, partition in topic.partitions.items()
        ],
    )


def _gauge(name: str, words: str, value: int) -> Metric:
    return Metric(f"kafka_controller_{name}", "gauge", words, [("", value)])


def node_metrics(journal: Journal) -> Iterator[Metric]:
    """Yield what every node counts."""
    yield Metric(
        "tribunal_unforeseen_errors_total",
        "counter",
        "Errors that cost a request or a connection, and that nobody foresaw; the log has the first of each kind.",
        [("", journal.unforeseen_count)],
    )


def scrub_metrics(scrubbing: Scrubbing) -> Iterator[Metric]:
    """Yield what a broker's look at its cold segments found."""
    for name, words, value in (
        ("scrubbed_bytes", "Bytes of closed segments that were read again and checked.", scrubbing.checked_bytes),
        ("scrub_damages", "Places in closed segments that were found damaged.", scrubbing.damaged_count),
        ("scrub_repaired_batches", "Batches put back from another replica.", scrubbing.repaired_count),
    ):
        yield Metric(f"tribunal_{name}_total", "counter", words, [("", value)])
    words = "Places that are damaged now, and for which nobody in the ISR had anything to put there."
    yield Metric("tribunal_scrub_unrepaired", "gauge", words, [("", scrubbing.unrepaired_count)])


def exposition(families: Iterable[Metric]) -> str:
    """Return metrics in Prometheus' text format, version 0.0.4."""
    lines: list[str] = []
    for metric in families:
        lines += [f"# HELP {metric.name} {metric.help}", f"# TYPE {metric.name} {metric.type}"]
        lines += [f"{metric.name}{labels} {value}" for labels, value in metric.samples]
    return "\n".join(lines) + "\n"


class MetricsServer:
    """Answers scrapers."""

    def __init__(self, world: World, text: Callable[[], str]) -> None:
        self._world = world
        self._text = text
        self._listener: Listener | None = None

    async def start(self, host: str, port: int) -> int:
        """Listen; return the port. `OSError` when the address is taken."""
        self._listener = await self._world.network.listen(host, port, lambda: _Scrape(self._text))
        return self._listener.port

    def stop(self) -> None:
        """Accept no more."""
        if self._listener is not None:
            self._listener.close()


class _Scrape(asyncio.Protocol):
    """One request and its answer."""

    def __init__(self, text: Callable[[], str]) -> None:
        self._text = text
        self._request = bytearray()
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._timer = asyncio.get_running_loop().call_later(IDLE_MS / 1000, transport.close)

    def data_received(self, data: bytes) -> None:
        self._request += data
        if END_OF_REQUEST in self._request:
            self._answer()
        elif len(self._request) > REQUEST_BYTES_MAX:
            self._reply("431 Request Header Fields Too Large", "")

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _answer(self) -> None:
        words = bytes(self._request.partition(b"\r\n")[0]).split(b" ")
        if len(words) != 3 or words[0] != b"GET":
            self._reply("405 Method Not Allowed", "")
        elif words[1].partition(b"?")[0] not in PATHS:
            self._reply("404 Not Found", "")
        else:
            self._reply("200 OK", self._text())

    def _reply(self, status: str, text: str) -> None:
        assert self._transport is not None
        body = text.encode()
        head = (
            f"HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n"
            f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        )
        self._request.clear()
        self._transport.write(head.encode() + body)
        self._transport.close()
