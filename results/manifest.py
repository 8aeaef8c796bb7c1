"""manifest.json: what a run was made with, and what it recorded. It is written last: a run without it was cut off."""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from tribunal.results.described import Described
from tribunal.results.heal import Unhealed
from tribunal.results.not_started import NotStarted

KRAFT: Final = "kraft"
LEADER_RECOVERY: Final = (
    "leader.recovery"  # whether a leader that was elected uncleanly ends what its log leaves open (KIP-704)
)
MEMBERS_UNCHECKED: Final = (
    "isr.members.unchecked"  # leaders write the ISR without asking whether who joins is registered
)
LATEST_UNGUARDED: Final = "latest.offset.unguarded"  # a new leader answers ListOffsets by a high watermark that has not caught up (before KIP-207)
PRODUCER_EXPIRATION: Final = (
    "producer.id.expiration.ms",
    86_400_000,
)  # how long a silent producer is remembered; by default
REQUEST_TIMEOUT: Final = (
    "request.timeout.ms",
    0,
)  # for how long a broker waits for another one's answer; nobody knows where it is not recorded
OF_SYSTEMS: Final = "system"  # the kind of cluster that a system.toml describes
PROMISED: Final = "promises."  # what a described system promises, among the settings: `promises.consistency`
Setting = bool | int | float | str | Sequence[str] | None
STARTS_AFTER: Final = (
    f"{PROMISED}starts_after."  # whether a node starts again after a fault: `promises.starts_after.kill`
)
LOST_MS: Final = f"{PROMISED}lost_ms."  # what may be lost, by the fault that takes it: `promises.lost_ms.kill`

ONE_LOST: Final = (
    f"{PROMISED}one_lost."  # whether a fault may take what one node alone acknowledged: `promises.one_lost.kill`
)
LEASE_MS: Final = f"{PROMISED}lease_ms"  # after how long whoever acquired a lock may have lost it


def integer(settings: Mapping[str, Setting], name: str, otherwise: int) -> int:
    """Return a setting that is an integer, also where it was given as text; `otherwise` where it is not given."""
    value = settings.get(name)
    return int(value) if isinstance(value, int | float | str) else otherwise


class Made(msgspec.Struct, frozen=True, kw_only=True):
    """What only the harness knows of a run; what it does not say is None.

    place:       where its nodes ran, where there is a choice.
    settings:    what every node was started with, by Kafka's names, or what a described system promises; None: unknown, and the strictest reading holds.
    failure:     why the run ended early, in words; `failure_kind` is the name of the exception.
    promised:    tables that its workloads fill whatever happens, besides those of every run.
    least_load:  acknowledgements that the phase `faults` must have of each acks level.
    unhealed:    what was seen when full service did not come about after the last fault; None: it did, or nobody looked.
    not_started: nodes of a described system that did not come to serve when they were started after a fault.
    described:   what a described system was made of; None: it is none, or an earlier version recorded the run.
    """

    seed: int | None = None
    scenario: str | None = None
    cluster: str | None = None
    mode: str | None = None
    place: str | None = None
    mutants: tuple[str, ...] = ()
    commit: str | None = None
    lock_sha256: str | None = None
    settings: dict[str, Setting] | None = None
    interrupted: bool = False
    failure: str | None = None
    failure_kind: str | None = None
    promised: tuple[str, ...] = ()
    least_load: int | None = None
    unhealed: Unhealed | None = None
    not_started: tuple[NotStarted, ...] = ()
    described: Described | None = None


class TableFacts(msgspec.Struct, frozen=True, kw_only=True):
    """A table's rows and files, and the sha256 over names and bytes of the files."""

    rows: int
    files: int
    sha256: str


class FileFacts(msgspec.Struct, frozen=True, kw_only=True):
    """A file's rows and the sha256 of its bytes; `path`: in the run's folder; `damage`: why it cannot be read."""

    path: str
    rows: int = 0
    sha256: str = ""
    damage: str | None = None


class Manifest(Made, frozen=True, kw_only=True):
    """What the harness knows, and what the recorder adds; a table that is not named is not part of the recording."""

    schema_version: int
    run_id: str
    python: str | None = None
    platform: str | None = None
    tables: dict[str, TableFacts]
    recording_hash: str | None = None

    @property
    def runs_described_system(self) -> bool:
        """Whether its nodes are of a system that a file describes, a log or not (docs/your-system.md)."""
        return self.cluster == OF_SYSTEMS

    @property
    def made(self) -> Made:
        """What the harness knew, for a recording that is made of this one."""
        return Made(**{name: getattr(self, name) for name in Made.__struct_fields__})


class Version(msgspec.Struct, frozen=True):
    """What a manifest of any version says of itself."""

    schema_version: int | str | None = None
