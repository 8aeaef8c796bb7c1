"""What only some clusters can do to themselves, beyond `tribunal.clusters.api`: links that are slow, single messages, disks, clocks.

A cluster that has a capability names the method among its capabilities; a fault names it in `NEEDS`, so that a plan which
asks a cluster for what it cannot do is refused before anything starts. The words are those of `tribunal.clusters.api`.
"""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, Final, Literal, Protocol

import msgspec

from tribunal.clusters.api import Cluster, Link, Proof, TopicPartition

RETRANSMISSION_MS: Final = 200  # Linux' least retransmission time-out: what losing a packet costs a TCP stream


class Shape(msgspec.Struct, frozen=True, kw_only=True):
    """How a link carries bytes; all zero: unhindered.

    loss:         share of the pieces that arrive only by retransmission: a TCP stream loses nothing, it waits.
    bytes_per_s:  what passes at most; 0: no bound.
    """

    delay_ms: int = 0
    jitter_ms: int = 0
    loss: float = 0.0
    bytes_per_s: int = 0


class Fate(StrEnum):
    """What becomes of a message (docs/recording-format.md, requests)."""

    DELAYED = "delayed"
    DROPPED = "dropped"
    HELD = "held"
    DUPLICATED = "duplicated"


class FrameRule(msgspec.Struct, frozen=True, kw_only=True):
    """Which messages are meant, and what becomes of them.

    api:         Kafka's API key; None: any.
    direction:   requests or responses.
    source, target:  between whom the message travels, CLIENTS included; None: anybody.
    limit:       how many messages at most; None: all.
    overtaking:  what is held goes aside and later ones pass it, as if they had gone over another connection.
    """

    fate: Fate
    api: int | None = None
    direction: Literal["request", "response"] = "request"
    source: int | None = None
    target: int | None = None
    delay_ms: int = 0
    limit: int | None = None
    overtaking: bool = False


class RuleInForce(Protocol):
    """A rule that is asked about every message."""

    @property
    def hit_count(self) -> int:
        """How many messages it has decided on."""

    @property
    def held_count(self) -> int:
        """How many wait now."""


class Damage(StrEnum):
    """What can happen to a dead node's log files."""

    TORN_TAIL = "torn-tail"  # the last batch of each log is cut in its middle
    TRUNCATED = "truncated"  # the last segment of each log loses a third of its bytes
    BIT_FLIP = "bit-flip"  # one bit of each log's last segment has turned


class ClockSkew(msgspec.Struct, frozen=True, kw_only=True):
    """How a node's clock differs from the machine's: wall time jumps, both clocks go too fast or too slow."""

    offset_ms: int = 0
    drift_ppm: int = 0


class DiskTrouble(msgspec.Struct, frozen=True, kw_only=True):
    """How a running node's disk misbehaves."""

    writes: Literal["fine", "full", "read-only"] = "fine"
    fsync_delay_ms: int = 0


class Hurtable(Cluster, Protocol):
    """A cluster with every capability; which of them one has is in its capabilities."""

    async def shape(self, links: Sequence[Link], shape: Shape) -> Proof:
        """Make links slow, lossy or narrow, or (with no hindrance) as they were; proven by timed probes."""

    async def reset(self, links: Sequence[Link]) -> Proof:
        """Reset the connections there are, once; new ones are welcome."""

    async def half_open(self, links: Sequence[Link]) -> Proof:
        """Let each link's target forget its connections while the source goes on believing in them."""

    async def close_half_open(self, links: Sequence[Link]) -> Proof:
        """Tell the believers; proven by probes over new connections."""

    def add_rule(self, rule: FrameRule) -> RuleInForce:
        """Ask this rule about every message from now on."""

    def release(self, rule: RuleInForce) -> int:
        """Let go on what the rule holds now; return how many messages."""

    def remove_rule(self, rule: RuleInForce) -> int:
        """Ask it no more, and let go on what it holds; return how many messages."""

    async def power_fail(self, node: int) -> Proof:
        """Kill a node and take from its disk what was not synced; `log_end_offsets_before` and `_after`."""

    async def damage(self, node: int, damage: Damage) -> Proof:
        """Damage the log files of a node that is down; facts as of `power_fail`."""

    async def set_clock(self, node: int, skew: ClockSkew) -> Proof:
        """Move a running node's clock; proven by what the node's clock port then read."""

    async def trouble_disk(self, node: int, trouble: DiskTrouble) -> Proof:
        """Make a running node's disk misbehave; proven by the node's having taken note."""

    async def mount_disk(self, node: int, writes: Literal["full", "read-only"]) -> Proof:
        """Let the kernel refuse a node's writes; proven by a write of one's own. A full disk takes a restart of the node."""

    async def mend_mount(self, node: int) -> Proof:
        """Give a dead node its old disk back, with what it wrote meanwhile; proven by a write."""

    def excuse(self, node: int, why: str | None) -> None:
        """Expect (or no longer expect) the node to end by itself: its end is then no failure of the run."""

    async def reconfigure(self, node: int, settings: Mapping[str, Any]) -> None:
        """Give a node that is down other settings, by Kafka's names; they hold for its later lives."""

    async def reassign(self, partition: TopicPartition, replicas: Sequence[int]) -> None:
        """Ask for these replicas (none: give up a reassignment under way); `ClusterError` when that is refused."""

    async def set_topic_config(self, topic: str, name: str, value: str | None) -> None:
        """Set one of a topic's settings (None: back to the default); `ClusterError` when that is refused."""

    async def elect_preferred(self, partitions: Sequence[TopicPartition]) -> None:
        """Give each partition's lead to its first replica; one that leads already is fine."""

    async def unregister(self, node: int) -> None:
        """Let the controllers forget a broker that is down; `ClusterError` when that is refused."""

    async def voters(self) -> list[int]:
        """Return who votes in the metadata quorum, ascending."""

    async def remove_voter(self, node: int) -> None:
        """Take a controller's vote; it goes on as an observer. `ClusterError` when that is refused."""

    async def add_voter(self, node: int) -> None:
        """Give an observing controller a vote, by the directory that it observes with now."""
