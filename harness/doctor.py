"""What works on this machine: kinds of cluster, and which faults on each; where not, why, and what helps.

A kind of cluster is asked for its obstacles by really trying (binding its addresses, calling its engine); a fault works
where the kind is able to do what it needs.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from tribunal.clusters.api import Kind
from tribunal.clusters.capabilities import Capability
from tribunal.clusters.obstacles import Obstacle
from tribunal.clusters.spec import MODES, ClusterSpec, Mode
from tribunal.harness.catalog import all_clusters, faults, nearest
from tribunal.harness.plan import refusal
from tribunal.nemesis.api import AnyFault

FILED_MODE: Final = "kraft"  # of clusters that a file describes; none of them has ZooKeeper's


class KindHealth(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of cluster here."""

    kind: str
    works: bool
    place: str  # where its nodes live here, where there is a choice
    obstacles: tuple[Obstacle, ...]


class FaultHealth(msgspec.Struct, frozen=True, kw_only=True):
    """One fault here: where it works, and why not elsewhere (by kind).

    depends_on:  kinds whose clusters a file describes: it works where that file gives what the fault needs.
    """

    fault: str
    works_on: tuple[str, ...]
    depends_on: tuple[str, ...]
    refused: dict[str, str]


class _Examined(msgspec.Struct, frozen=True, kw_only=True):
    """A kind of cluster, and what it answers whatever the fault: each is found out by trying.

    refused:  by mode, why it cannot be what nobody has described; empty: it can.
    """

    kind: Kind
    health: KindHealth
    lacking: Mapping[Capability, str]
    refused: Mapping[Mode, str]

    @property
    def is_of_a_file(self) -> bool:
        """Whether a file of its user says what can be done to it."""
        return self.kind.runs_systems or self.kind.is_there_already


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """All of it."""

    clusters: tuple[KindHealth, ...]
    faults: tuple[FaultHealth, ...]


def examined(fault: str | None = None) -> Health:
    """Try everything; `Unknown` for a fault nobody knows."""
    known = faults()
    if fault is not None and fault.replace("_", "-") not in known:
        raise nearest("fault", fault, known)
    kinds = {name: _examined(name, kind) for name, kind in all_clusters().items()}
    wanted = known if fault is None else {fault.replace("_", "-"): known[fault.replace("_", "-")]}
    return Health(
        clusters=tuple(one.health for one in kinds.values()),
        faults=tuple(_fault(name, one, kinds) for name, one in wanted.items()),
    )


def _examined(name: str, kind: Kind) -> _Examined:
    refused = {mode: kind.refused(ClusterSpec(mode=mode)) for mode in MODES}
    return _Examined(kind=kind, health=_kind(name, kind), lacking=kind.lacking(), refused=refused)


def _kind(name: str, kind: Kind) -> KindHealth:
    found = tuple(kind.obstacles())
    works = not any(obstacle.blocks for obstacle in found)
    return KindHealth(kind=name, works=works, place=kind.places() if works else "", obstacles=found)


def _fault(name: str, fault: AnyFault, kinds: Mapping[str, _Examined]) -> FaultHealth:
    works, depends, refused = [], [], {}
    for kind, known in kinds.items():
        lacking = refusal(fault, known.kind, known.lacking)
        reasons = [known.refused[mode] for mode in fault.modes]
        if lacking:
            refused[kind] = f"cannot {lacking}"
        elif known.is_of_a_file and known.health.works and FILED_MODE in fault.modes:
            depends.append(kind)
        elif all(reasons):  # it has no mode in which there is what the fault strikes
            refused[kind] = reasons[0]
        elif not known.health.works:
            refused[kind] = known.health.obstacles[0].reason
        else:
            works.append(kind)
    return FaultHealth(fault=name, works_on=tuple(works), depends_on=tuple(depends), refused=refused)
