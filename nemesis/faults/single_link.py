"""Cut the link between the target and one other node, one way or both; heal by mending it."""

from contextlib import AbstractAsyncContextManager
from typing import Final, Literal

import msgspec

from tribunal.clusters.api import CutMode, Link
from tribunal.clusters.capabilities import CanCutLinks
from tribunal.clusters.spec import ClusterSpec
from tribunal.nemesis.api import ClusterError, Effect, Fault
from tribunal.nemesis.link_groups import from_target
from tribunal.nemesis.partition import partitioned
from tribunal.nemesis.targets import standby_controllers


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """In which direction, and what becomes of the bytes.

    to:  the other node; 0: the next one of the same kind; standby: the next controller that does not lead.
    """

    to: int | Literal["standby"] = 0
    direction: Literal["both", "in", "out"] = "both"
    mode: CutMode = CutMode.HOLD


def inject(cluster: CanCutLinks, node: int, options: Options) -> AbstractAsyncContextManager[Effect]:
    """Cut one pair of nodes."""
    spec = cluster.spec
    if options.to == "standby":
        others = [one for one in from_target(standby_controllers(cluster), node) if one != node]
        if not others:
            raise ClusterError(f"single-link: there is no standby controller besides {node}")
        other = others[0]
    else:
        kind = spec.broker_ids if node in spec.broker_ids else spec.controller_ids
        other = options.to or from_target(kind, node)[1 % len(kind)]
    if other == node or other not in spec.node_ids:
        raise ClusterError(f"single-link: there is no node {other} besides {node}")
    links = [Link(node, other)] if options.direction != "in" else []
    links += [Link(other, node)] if options.direction != "out" else []
    return partitioned(cluster, node, links, options.mode)


def refused(options: Options, spec: ClusterSpec) -> str:
    """Say why there is no such node in a cluster; empty: there is."""
    if options.to in ("standby", 0) or options.to in spec.node_ids:
        return ""
    return f"there is no node {options.to}; nodes of this cluster are {', '.join(map(str, sorted(spec.node_ids)))}"


FAULT: Final = Fault(options=Options, inject=inject, refused=refused)
