"""Which links lie between which nodes: the geometry of partitions, as pure functions.

Where a partition has to prefer somebody, it is the node that the fault's target named: the others follow in the order of
their ids, so that the same target gives the same partition.
"""

from collections.abc import Iterable, Sequence
from typing import Literal

from tribunal.clusters.api import CLIENTS, Link
from tribunal.clusters.spec import ClusterSpec

Others = Literal["all", "nodes", "brokers", "controllers", "clients"]
Direction = Literal["both", "in", "out"]


def links_of(spec: ClusterSpec, node: int, others: Others, direction: Direction = "both") -> list[Link]:
    """Return the links between a node and others: first those that lead out."""
    ids: dict[Others, tuple[int, ...]] = {
        "all": (*spec.broker_ids, *spec.controller_ids, CLIENTS),
        "nodes": spec.node_ids,
        "brokers": spec.broker_ids,
        "controllers": spec.controller_ids,
        "clients": (CLIENTS,),
    }
    pairs = [other for other in ids[others] if other != node]
    outward = [Link(node, other) for other in pairs if direction != "in"]
    inward = [Link(other, node) for other in pairs if direction != "out"]
    return outward + inward


def from_ensemble(spec: ClusterSpec, node: int) -> list[Link]:
    """Return the links from ZooKeeper's servers to a broker."""
    return [Link(server, node) for server in spec.controller_ids]


def from_target(nodes: Sequence[int], target: int) -> list[int]:
    """Return the nodes in a circle beginning with the target, or as they are if it is not among them."""
    if target not in nodes:
        return list(nodes)
    start = list(nodes).index(target)
    return [*nodes[start:], *nodes[:start]]


def mixed(spec: ClusterSpec, target: int) -> list[int]:
    """Return all nodes, brokers and controllers taking turns, the target's kind first."""
    kinds = [from_target(spec.broker_ids, target), from_target(spec.controller_ids, target)]
    if target in spec.controller_ids:
        kinds.reverse()
    longest = max(map(len, kinds))
    return [kind[index] for index in range(longest) for kind in kinds if index < len(kind)]


def halves(spec: ClusterSpec, target: int) -> tuple[list[int], list[int]]:
    """Return two halves, the target in the smaller one; brokers and controllers are halved each for themselves."""
    small: list[int] = []
    large: list[int] = []
    for kind in (spec.broker_ids, spec.controller_ids):
        nodes = from_target(kind, target)
        small += nodes[: len(nodes) // 2]
        large += nodes[len(nodes) // 2 :]
    return small, large


def between(some: Iterable[int], others: Sequence[int]) -> list[Link]:
    """Return the links between two groups, both ways."""
    return [link for one in some for other in others if one != other for link in (Link(one, other), Link(other, one))]


def bridge(spec: ClusterSpec, target: int) -> list[Link]:
    """Return the links to cut so that two halves of the others see each other only through the target.

    Of an odd number of brokers the first half is the larger one, of controllers the second: neither half is empty.
    """
    brokers = [node for node in from_target(spec.broker_ids, target) if node != target]
    controllers = [node for node in from_target(spec.controller_ids, target) if node != target]
    first, second = (len(brokers) + 1) // 2, len(controllers) // 2
    return between([*brokers[:first], *controllers[:second]], [*brokers[first:], *controllers[second:]])


def majorities_ring(spec: ClusterSpec, target: int) -> list[Link]:
    """Return the links to cut so that every node is reached by a majority, and no two by the same one."""
    circle = mixed(spec, target)
    others = len(circle) // 2  # besides itself: a majority
    cut: list[Link] = []
    for index, node in enumerate(circle):
        reached = {circle[(index + step) % len(circle)] for step in range(others + 1)}
        cut += [Link(other, node) for other in circle if other not in reached]
    return cut
