"""What a fault may ask of a cluster: one small protocol for each thing that only some clusters can do to themselves.

Each `Capability` has its protocol in `PROTOCOLS`; all of them are a `FaultTarget` besides, which is what every cluster offers to
every fault. A fault names in its signature what it needs, and the plan that asks a cluster for what it cannot do is refused
before anything starts. A new capability is a name and a protocol here, and the methods of the clusters that have it: a class of
clusters offers what it has the methods for (`offered_by`).
"""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Final, Literal, Protocol

import msgspec

from replog.types import TopicPartition
from tribunal.clusters.spec import ClusterSpec, Settings
from tribunal.clusters.values import ClusterState, CutMode, Link, Proof


class Capability(StrEnum):
    """What a cluster may be able to do to itself."""

    START = "start"
    STOP = "stop"
    KILL = "kill"
    PAUSE = "pause"
    WIPE = "wipe"
    RESTORE_DISK = "restore_disk"
    POWER_FAIL = "power_fail"
    DAMAGE = "damage"
    DAMAGE_FILES = "damage_files"
    ROT = "rot"
    RECONFIGURE = "reconfigure"
    CHANGE_RELEASE = "change_release"
    CHANGE_SYSTEM = "change_system"
    RAISE_METADATA_VERSION = "raise_metadata_version"
    CUT = "cut"
    SHAPE = "shape"
    RESET = "reset"
    HALF_OPEN = "half_open"
    ADD_RULE = "add_rule"
    SET_CLOCK = "set_clock"
    TROUBLE_DISK = "trouble_disk"
    FAIL_DISK = "fail_disk"
    FAIL_DIRECTORY = "fail_directory"
    LOSE_PART = "lose_part"
    TEAR_APPEND = "tear_append"
    MOUNT_DISK = "mount_disk"
    REASSIGN = "reassign"
    SET_TOPIC_CONFIG = "set_topic_config"
    ELECT_PREFERRED = "elect_preferred"
    UNREGISTER = "unregister"
    REMOVE_VOTER = "remove_voter"
    CHANGE_PASSWORD = "change_password"  # noqa: S105 - a name
    RENEW_CERTIFICATE = "renew_certificate"


SECURED: Final = frozenset(
    {Capability.CHANGE_PASSWORD, Capability.RENEW_CERTIFICATE}
)  # of clusters with `spec.security` alone
# Of released software alone, by itself or among nodes of replog.
RELEASED: Final = frozenset({Capability.CHANGE_RELEASE, Capability.CHANGE_SYSTEM, Capability.RAISE_METADATA_VERSION})
# Of described systems alone: what replog makes of such disks and files is tried by refused and torn writes, torn tails, and damage to its logs.
FOREIGN: Final = frozenset({Capability.FAIL_DISK, Capability.LOSE_PART, Capability.DAMAGE_FILES})
OF_SIMULATOR: Final = frozenset(Capability) - SECURED - RELEASED - FOREIGN
# What a node does about bytes that were altered or refused may need an operator, or never end (a log directory that is offline).
OF_DISKS: Final = frozenset(
    {
        Capability.DAMAGE,
        Capability.DAMAGE_FILES,
        Capability.ROT,
        Capability.TROUBLE_DISK,
        Capability.FAIL_DISK,
        Capability.FAIL_DIRECTORY,
        Capability.TEAR_APPEND,
        Capability.MOUNT_DISK,
    }
)
# Of disks that a node may find otherwise than it had written them, when it starts again.
LOSE_BYTES: Final = frozenset({Capability.POWER_FAIL, Capability.LOSE_PART, Capability.WIPE, Capability.RESTORE_DISK})
STARTS: Final = frozenset({Capability.START})  # what a fault asks for behind which a node is started
SystemName = Literal["replog", "apache-kafka"]  # of a node in a cluster of both
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

    DELIVERED = "delivered"
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


HowDamaged = Literal["bit-flip", "zeros", "truncate"]  # one bit, a page of 4,096 bytes, the last third


class FileDamage(msgspec.Struct, frozen=True, kw_only=True):
    """What happens to some files of a dead node.

    files:  a pattern of paths below its data folder, as of `pathlib` (`wal/*.log`, `**/*`).
    most:   how many of those that match and hold something; which ones, and which bytes, comes from the seed.
    """

    files: str
    how: HowDamaged
    most: int
    seed: int


class Rotten(msgspec.Struct, frozen=True, kw_only=True):
    """A bit that turned over in a record of a closed segment.

    begin, base_offset:  of the batch: where it stands in the file, and its first offset.
    byte, was:           which byte of the file it is, and what it was.
    """

    path: str
    begin: int
    base_offset: int
    byte: int
    was: int


class ClockSkew(msgspec.Struct, frozen=True, kw_only=True):
    """How a node's clock differs from the machine's: wall time jumps, both clocks go too fast or too slow."""

    offset_ms: int = 0
    drift_ppm: int = 0


class DiskTrouble(msgspec.Struct, frozen=True, kw_only=True):
    """How a running node's disk misbehaves."""

    writes: Literal["fine", "full", "read-only"] = "fine"
    fsync_delay_ms: int = 0


Failing = Literal["nothing", "writes", "reads", "syncs"]  # which requests a disk answers with EIO
PartKept = Literal[
    "torn", "reordered", "nothing"
]  # of what was not synced: each file's first bytes, some pages, or no byte


class PartLost(msgspec.Struct, frozen=True, kw_only=True):
    """A loss of power that does not take all that was not synced.

    files:  a pattern of paths below the node's data folder: of files that match a part had reached the disk, of others all of it. One that does
            not mean all of them (`**/*`) leaves the names: the journal was written, and data were not.
    kept:   which part; seed: of the chance that decides it.
    """

    files: str
    kept: PartKept
    seed: int


class FaultTarget(Protocol):
    """What every cluster offers to every fault: to look at it, and to expect what will happen."""

    @property
    def spec(self) -> ClusterSpec:
        """What was asked for."""

    @property
    def state(self) -> ClusterState:
        """The committed metadata, as far as known."""

    @property
    def capabilities(self) -> frozenset[Capability]:
        """What this cluster can do to itself."""

    def message_count(self, api: int, direction: Literal["request", "response"]) -> int:
        """Return how many messages of an API were sent until now, of those that do not flow all the time."""

    def last_message(self, api: int, direction: Literal["request", "response"]) -> tuple[int, ...]:
        """Return who sent the last message of an API, and to whom, of those that do not flow all the time; empty: there was none."""

    async def something_happens(self, timeout_ms: int) -> None:
        """Return when a message was sent or metadata were committed, or after this time at the latest."""

    def now_ns(self) -> int:
        """Return the run's clock."""

    def alive(self, node: int) -> bool:
        """Return whether the node's process exists."""

    def failures(self) -> list[str]:
        """Return which nodes failed without a fault: one line each, with the last log lines."""

    def excuse(self, node: int, why: str | None) -> None:
        """Expect (or no longer expect) the node to end by itself: its end is then no failure of the run."""


# --- nodes ---------------------------------------------------------------------------------


class CanStart(FaultTarget, Protocol):
    """Starts nodes."""

    async def start(self, node: int) -> None:
        """Start a node that is down; return when it accepts connections. `ClusterError` with its last log lines."""


class CanStop(FaultTarget, Protocol):
    """Stops nodes in good order."""

    async def stop(self, node: int) -> None:
        """Ask a node to end in good order and wait for it."""


class CanKill(FaultTarget, Protocol):
    """Kills nodes."""

    async def kill(self, node: int) -> Proof:
        """Kill -9; prove that the process is gone and its port refuses."""


class CanPause(FaultTarget, Protocol):
    """Stops the execution of nodes."""

    async def pause(self, node: int) -> Proof:
        """Stop a node's execution; prove it."""

    async def resume(self, node: int) -> Proof:
        """Let a paused node go on; prove it."""


class CanWipe(FaultTarget, Protocol):
    """Gives nodes new disks."""

    async def wipe(self, node: int) -> Proof:
        """Empty the disk of a node that is down, formatted again; `log_end_offsets_before`; prove that no log is left."""


class CanRestoreDisks(FaultTarget, Protocol):
    """Copies nodes' disks, and puts a copy back: a snapshot of a machine, or a backup, that somebody restores."""

    async def save_disk(self, node: int) -> None:
        """Copy the disk of a node that is down, instead of an earlier copy."""

    async def restore_disk(self, node: int) -> Proof:
        """Put the copy back while the node is down; `log_end_offsets_before` and `_after`; prove that it is what was copied."""


class CanPowerFail(FaultTarget, Protocol):
    """Takes the power from nodes."""

    async def power_fail(self, node: int) -> Proof:
        """Kill a node and take from its disk what was not synced; `log_end_offsets_before` and `_after`."""


class CanLosePart(FaultTarget, Protocol):
    """Takes the power from nodes while they write."""

    async def lose_part(self, node: int, loss: PartLost) -> Proof:
        """Kill a node and take from its disk what was not synced but for a part; facts as of `power_fail`."""


class CanDamageLogs(FaultTarget, Protocol):
    """Damages files."""

    async def damage(self, node: int, damage: Damage) -> Proof:
        """Damage the log files of a node that is down; facts as of `power_fail`."""


class CanDamageFiles(FaultTarget, Protocol):
    """Damages files that it knows nothing of."""

    async def damage_files(self, node: int, damage: FileDamage) -> Proof:
        """Damage some files of a node that is down; the facts name each, and what is another now; proven by reading them again."""


class CanRot(FaultTarget, Protocol):
    """Lets bits turn over in what nobody has written for long, under running nodes."""

    async def rot(self, node: int) -> Proof:
        """Turn over a bit of a closed segment of each log of the node; the facts name each, as `Rotten`, under `rotten`."""

    def still_rotten(self, node: int, places: Sequence[Rotten]) -> list[Rotten]:
        """Return those that nobody has repaired; what was deleted is none."""

    async def turn_back(self, node: int, places: Sequence[Rotten]) -> Proof:
        """Repair those; proven by their bytes."""


class CanReconfigure(FaultTarget, Protocol):
    """Gives nodes other settings."""

    async def reconfigure(self, node: int, settings: Settings) -> None:
        """Give a node that is down other settings, by Kafka's names; they hold from its next start on."""


class CanChangeRelease(FaultTarget, Protocol):
    """Runs several releases of a system in one cluster."""

    async def fetch_release(self, version: str) -> None:
        """Have a release here; `ClusterError` where that is impossible."""

    async def change_release(self, node: int, version: str) -> Proof:
        """Let a node that is down run another release, which is here, from its next start on; facts `former`, `next`."""

    async def runs_release(self, node: int, version: str) -> Proof:
        """Say whether a running node's process is of that release."""


class CanChangeSystem(FaultTarget, Protocol):
    """Runs two systems in one cluster, and lets nodes go over from one to the other with their log directories."""

    def system_of(self, node: int) -> SystemName:
        """Return the system that a node runs, or runs from its next start on."""

    async def change_system(self, node: int, system: SystemName) -> Proof:
        """Let a node that is down run this system from its next start on; facts `former`, `next`."""

    async def runs_system(self, node: int, system: SystemName) -> Proof:
        """Say whether a running node's process is of that system."""


class CanRaiseMetadataVersion(FaultTarget, Protocol):
    """Finalizes what all of its nodes know."""

    async def metadata_version(self) -> int:
        """Return the finalized level of metadata.version, as some broker knows it; 0: none."""

    async def raise_metadata_version(self, level: int) -> None:
        """Finalize a higher level; `Declined` when the cluster says no."""


# --- links and messages --------------------------------------------------------------------


class CanCutLinks(FaultTarget, Protocol):
    """Cuts links."""

    async def cut(self, links: Sequence[Link], mode: CutMode) -> Proof:
        """Cut links; prove by probes that passed before and no longer do."""

    async def heal(self, links: Sequence[Link]) -> Proof:
        """Undo cuts; prove by probes that pass."""


class CanShapeLinks(FaultTarget, Protocol):
    """Makes links worse without cutting them."""

    async def shape(self, links: Sequence[Link], shape: Shape) -> Proof:
        """Make links slow, lossy or narrow, or (with no hindrance) as they were; proven by timed probes."""


class CanResetLinks(FaultTarget, Protocol):
    """Resets connections."""

    async def reset(self, links: Sequence[Link]) -> Proof:
        """Reset the connections there are, once; new ones are welcome."""


class CanHalfOpenLinks(FaultTarget, Protocol):
    """Leaves connections with one end only."""

    async def half_open(self, links: Sequence[Link]) -> Proof:
        """Let each link's target forget its connections while the source goes on taking them for open."""

    async def close_half_open(self, links: Sequence[Link]) -> Proof:
        """Reset the ends that are still open; proven by probes over new connections."""


class CanHinderMessages(FaultTarget, Protocol):
    """Decides what becomes of single messages."""

    def add_rule(self, rule: FrameRule) -> RuleInForce:
        """Ask this rule about every message from now on."""

    def release(self, rule: RuleInForce) -> int:
        """Let go on what the rule holds now; return how many messages."""

    def remove_rule(self, rule: RuleInForce) -> int:
        """Ask it no more, and let go on what it holds; return how many messages."""


# --- clocks and disks ----------------------------------------------------------------------


class CanSetClock(FaultTarget, Protocol):
    """Moves clocks."""

    async def set_clock(self, node: int, skew: ClockSkew) -> Proof:
        """Move a running node's clock; proven by what the node's clock port then read."""


class CanTroubleDisk(FaultTarget, Protocol):
    """Lets disks misbehave under running nodes."""

    async def trouble_disk(self, node: int, trouble: DiskTrouble) -> Proof:
        """Make a running node's disk misbehave; proven by the node's having taken note."""


class CanFailDisk(FaultTarget, Protocol):
    """Lets disks fail under running nodes."""

    async def fail_disk(self, node: int, failing: Failing) -> Proof:
        """Let a running node's disk answer such requests with EIO, or none any more; proven by those of the node that it refused."""


class CanFailDirectory(FaultTarget, Protocol):
    """Lets one of a broker's several log directories fail."""

    async def fail_directory(self, node: int) -> Proof:
        """Let the last log directory of a running broker answer everything with EIO, an append in its midst; proven by a request of one's own."""

    async def mend_directory(self, node: int) -> Proof:
        """Let it answer again, with what it held."""

    def logs_of_failing_directory(self, node: int) -> Sequence[TopicPartition]:
        """Return whose logs lie in it."""


class CanTearAppends(FaultTarget, Protocol):
    """Lets an append fail in its midst."""

    async def tear_append(self, node: int, room_bytes: int) -> Proof:
        """Let a running node's disk take so many bytes more: the append that meets the end leaves its first part. Mended by `trouble_disk`."""


class CanMountDisk(FaultTarget, Protocol):
    """Lets the kernel refuse writes."""

    async def mount_disk(self, node: int, writes: Literal["full", "read-only"]) -> Proof:
        """Let the kernel refuse a node's writes; proven by a write of one's own. A full disk takes a restart of the node."""

    async def mend_mount(self, node: int) -> Proof:
        """Give a dead node its old disk back, with what it wrote meanwhile; proven by a write."""


# --- what an administrator does ------------------------------------------------------------


class CanReassign(FaultTarget, Protocol):
    """Moves replicas."""

    async def reassign(self, partition: TopicPartition, replicas: Sequence[int]) -> None:
        """Ask for these replicas (none: give up a reassignment under way); `ClusterError` when that is refused."""


class CanConfigureTopics(FaultTarget, Protocol):
    """Changes topics' settings."""

    async def set_topic_config(self, topic: str, name: str, value: str | None) -> None:
        """Set one of a topic's settings (None: back to the default); `ClusterError` when that is refused."""


class CanElectPreferred(FaultTarget, Protocol):
    """Has preferred leaders elected."""

    async def elect_preferred(self, partitions: Sequence[TopicPartition]) -> None:
        """Give each partition's lead to its first replica; one that leads already is fine."""


class CanUnregister(FaultTarget, Protocol):
    """Has brokers forgotten."""

    async def unregister(self, node: int) -> None:
        """Let the controllers forget a broker that is down; `ClusterError` when that is refused."""


class CanChangeVoters(FaultTarget, Protocol):
    """Changes who votes in the metadata quorum (KIP-853)."""

    async def voters(self) -> list[int]:
        """Return who votes in the metadata quorum, ascending."""

    async def remove_voter(self, node: int) -> None:
        """Take a controller's vote; it goes on as an observer. `ClusterError` when that is refused."""

    async def add_voter(self, node: int) -> None:
        """Give an observing controller a vote, by the directory that it observes with now."""


# --- who may come in -----------------------------------------------------------------------


class ShowsLoad(FaultTarget, Protocol):
    """Knows whether the load goes on."""

    def answered_counts(self) -> Mapping[int, int]:
        """Return how many of the load's produces and fetches were answered without an error, by API key."""


class CanChangePasswords(ShowsLoad, Protocol):
    """Gives the load's clients another password."""

    async def change_password(self) -> Proof:
        """Let the brokers know another password of the load's clients, then these; proven by logins with the old one and the new."""


class CanRenewCertificates(ShowsLoad, Protocol):
    """Gives running nodes other certificates."""

    async def renew_certificate(self, node: int, *, is_expired: bool) -> Proof:
        """Put another certificate into a running node's file; proven by what the node then shows, and who takes that."""


PROTOCOLS: Final[Mapping[Capability, type]] = {
    Capability.START: CanStart,
    Capability.STOP: CanStop,
    Capability.KILL: CanKill,
    Capability.PAUSE: CanPause,
    Capability.WIPE: CanWipe,
    Capability.RESTORE_DISK: CanRestoreDisks,
    Capability.POWER_FAIL: CanPowerFail,
    Capability.DAMAGE: CanDamageLogs,
    Capability.DAMAGE_FILES: CanDamageFiles,
    Capability.ROT: CanRot,
    Capability.RECONFIGURE: CanReconfigure,
    Capability.CHANGE_RELEASE: CanChangeRelease,
    Capability.CHANGE_SYSTEM: CanChangeSystem,
    Capability.RAISE_METADATA_VERSION: CanRaiseMetadataVersion,
    Capability.CUT: CanCutLinks,
    Capability.SHAPE: CanShapeLinks,
    Capability.RESET: CanResetLinks,
    Capability.HALF_OPEN: CanHalfOpenLinks,
    Capability.ADD_RULE: CanHinderMessages,
    Capability.SET_CLOCK: CanSetClock,
    Capability.TROUBLE_DISK: CanTroubleDisk,
    Capability.FAIL_DISK: CanFailDisk,
    Capability.FAIL_DIRECTORY: CanFailDirectory,
    Capability.LOSE_PART: CanLosePart,
    Capability.TEAR_APPEND: CanTearAppends,
    Capability.MOUNT_DISK: CanMountDisk,
    Capability.REASSIGN: CanReassign,
    Capability.SET_TOPIC_CONFIG: CanConfigureTopics,
    Capability.ELECT_PREFERRED: CanElectPreferred,
    Capability.UNREGISTER: CanUnregister,
    Capability.REMOVE_VOTER: CanChangeVoters,
    Capability.CHANGE_PASSWORD: CanChangePasswords,
    Capability.RENEW_CERTIFICATE: CanRenewCertificates,
}


def offered_by(cluster: type) -> frozenset[Capability]:
    """Return the capabilities whose protocols' methods a class of clusters has."""
    methods = set(dir(cluster))
    return frozenset(capability for capability, protocol in PROTOCOLS.items() if _own(protocol) <= methods)


def _own(protocol: type) -> set[str]:
    """Return the methods that a protocol adds to those of every target."""
    return {name for name in dir(protocol) if not name.startswith("_")} - set(dir(FaultTarget))


def asked_by(target: type) -> frozenset[Capability]:
    """Return the capabilities whose protocols a protocol is made of."""
    return frozenset(capability for capability, protocol in PROTOCOLS.items() if protocol in target.__mro__)
