"""What a fault is: an async context manager. Enter injects, leave heals; both are proven. Read this first.

A fault is one module of `tribunal.nemesis.faults`; the module's name is its name on the command line. It exports one value,
`FAULT = Fault(options=Options, inject=inject)`:

- `Options`: a msgspec Struct of what a scenario may say about it (unknown words are refused at plan time),
- `inject(cluster, node, options)`: an async context manager that disturbs one node and yields an `Effect`. Its first parameter is
  annotated with what it asks of the cluster, a protocol of `tribunal.clusters.capabilities` or one made of several: it can
  call nothing else, and a plan for a cluster that does not have all of it is refused.

Verb and target are apart: which node is meant is decided by a `Target` (`tribunal.nemesis.targets`), resolved at the
moment of injection and recorded. When the fault is entered, `effect.proof` says how it took effect; when it is left,
`effect.heal` says how it healed. What can only be seen while the fault lasts (a session expired, an ISR changed)
is waited for before healing. A fault whose proof does not hold makes a run INCONCLUSIVE, so a proof is never polite.
What several faults share lies beside this page; nothing in `tribunal.nemesis.faults` is anything but a fault.
"""

import inspect
import typing
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager
from contextvars import ContextVar
from functools import cache
from typing import Final, Generic, Protocol, TypeVar, cast

import msgspec

from replog.types import METADATA_TOPIC
from tribunal.clusters.api import ClusterError, FaultTarget, Proof, TopicPartition, Unsettled, until
from tribunal.clusters.capabilities import Capability, asked_by
from tribunal.clusters.spec import MODES, ClusterSpec, Mode

__all__ = ["AsyncGenerator", "ClusterError", "FaultTarget", "Proof"]


class Loss(msgspec.Struct, frozen=True, kw_only=True):
    """These records are gone from this node's disk (docs/verdicts.md, proven loss).

    topic_id:    where it is known.
    end_offset:  where the log had ended; None: unknown.
    begin_ns:    the disk was still whole; end_ns: it was not any more. None: some time while the fault lasted.
    unseen_end_offset:  the batch at `from_offset`, which ends here, was damaged in bytes that no checksum covers: recovery cannot find it,
                        and the node may keep it for ever. None: recovery finds the damage.
    """

    node: int
    topic: str
    topic_id: str | None = None
    partition: int
    from_offset: int
    end_offset: int | None = None
    begin_ns: int | None = None
    end_ns: int | None = None
    unseen_end_offset: int | None = None


class LogEnds(msgspec.Struct):
    """Where a disk's logs ended, by partition: the facts that a proof has of something done to a disk.

    unseen_end_offsets:  of partitions whose damage no checksum covers: where the damaged batch ends.
    """

    log_end_offsets_before: dict[str, int] = {}
    log_end_offsets_after: dict[str, int] = {}
    unseen_end_offsets: dict[str, int] = {}


_PROVEN: Final[ContextVar[list[Loss] | None]] = ContextVar("proven", default=None)


@contextmanager
def losses_proven() -> Iterator[list[Loss]]:
    """Collect what is proven to be lost meanwhile, also in tasks that are begun meanwhile.

    A fault tells of its losses when it is entered. What ends it before that (a node that does not start again, Ctrl-C) takes back no loss.
    """
    proven: list[Loss] = []
    token = _PROVEN.set(proven)
    try:
        yield proven
    finally:
        _PROVEN.reset(token)


def proven_losses(cluster: FaultTarget, node: int, proof: Proof, begin_ns: int) -> list[Loss]:
    """Return what a disk has lost by now, from the log ends that a proof names before and after; whoever collects losses has them, too.

    begin_ns:  when the disk was still whole.
    """
    now_ns, topic_ids = cluster.now_ns(), cluster.state.topic_ids
    ends = msgspec.convert(proof.facts, LogEnds)
    found = []
    for name, end in sorted(ends.log_end_offsets_before.items()):
        topic, _, partition = name.rpartition("-")
        left = ends.log_end_offsets_after.get(name, 0)
        if left < end and topic != METADATA_TOPIC:
            loss = Loss(
                node=node,
                topic=topic,
                topic_id=topic_ids.get(topic),
                partition=int(partition),
                from_offset=left,
                end_offset=end,
                begin_ns=begin_ns,
                end_ns=now_ns,
                unseen_end_offset=ends.unseen_end_offsets.get(name),
            )
            found.append(loss)
    collected = _PROVEN.get()
    if collected is not None:
        collected += found
    return found


class Effect:
    """What a fault did: filled in as it goes."""

    def __init__(self, node: int, proof: Proof) -> None:
        self.node = node
        self.proof = proof
        self.heal: Proof | None = None
        self.crossed = False  # a message waited over an event in somebody's life, and was let go on
        self.losses: list[Loss] = []  # what disks provably lost, each time that they did

    def add_proof(self, name: str, proof: Proof) -> None:
        """Add a further thing that must hold for the fault to have taken effect."""
        self.proof = joined(self.proof, name, proof)

    def add_heal(self, name: str, proof: Proof) -> None:
        """Add a further thing that must hold for the fault to have healed."""
        self.heal = joined(self.heal or Proof(holds=True, facts={}), name, proof)


Aimed = Callable[
    [FaultTarget], AbstractAsyncContextManager[Effect]
]  # a fault that has its node and its options already
Asked = TypeVar("Asked", bound=FaultTarget)
Options = TypeVar("Options", bound=msgspec.Struct)


class Fault(msgspec.Struct, Generic[Asked, Options], frozen=True, kw_only=True):
    """One fault: what may be said of it, how it is injected, and by that what it needs.

    modes:     in which modes of a cluster there is what it disturbs.
    refused:   says of its options why they are for another cluster: another mode, another release; empty: they are not.
    releases:  says of its options which releases nodes come to run by it.
    struck:    says whose disks it may change, of a target: others than the target's, too, where it hurts several nodes.
    may_use:   what it does besides where a cluster can.
    """

    options: type[Options]
    inject: Callable[[Asked, int, Options], AbstractAsyncContextManager[Effect]]
    modes: tuple[Mode, ...] = MODES
    refused: Callable[[Options, ClusterSpec], str] = lambda _, __: ""
    releases: Callable[[Options], tuple[str, ...]] = lambda _: ()
    struck: Callable[[ClusterSpec, int], Sequence[int]] = lambda _, node: (node,)
    may_use: frozenset[Capability] = frozenset()

    def __post_init__(self) -> None:
        """Refuse a fault that does not say what it needs, or names a mode that is none."""
        _needs(self.inject)
        if not self.modes or not set(self.modes) <= set(MODES):
            raise ValueError(f"modes are {' and '.join(MODES)}, not {self.modes}")

    @property
    def name(self) -> str:
        """Its name on the command line: that of its module."""
        return self.inject.__module__.rpartition(".")[2].replace("_", "-")

    @property
    def needs(self) -> frozenset[Capability]:
        """What a cluster has to be able to do for it."""
        return _needs(self.inject)

    def refused_by(self, spec: ClusterSpec, given: Mapping[str, object]) -> str:
        """Say why its options, as a plan has them, are for another cluster; empty: they are not."""
        return self.refused(msgspec.convert(given, self.options), spec)

    def releases_by(self, given: Mapping[str, object]) -> tuple[str, ...]:
        """Say which releases nodes come to run by it, with options as a plan has them."""
        return self.releases(msgspec.convert(given, self.options))

    def aimed(self, node: int, options: Options) -> Aimed:
        """Return it with its node and options; who enters it has looked whether the cluster has what it needs."""
        return lambda cluster: self.inject(cast("Asked", cluster), node, options)

    def planned(self, node: int, given: Mapping[str, object]) -> Aimed:
        """Return it with its node and with options as a plan has them."""
        return self.aimed(node, msgspec.convert(given, self.options))


class AnyFault(Protocol):
    """A fault, whatever it asks and whatever its options are."""

    @property
    def name(self) -> str:
        """Its name on the command line."""

    @property
    def options(self) -> type[msgspec.Struct]:
        """What a scenario may say about it."""

    @property
    def needs(self) -> frozenset[Capability]:
        """What a cluster has to be able to do for it."""

    @property
    def modes(self) -> tuple[Mode, ...]:
        """In which modes of a cluster there is what it disturbs."""

    @property
    def struck(self) -> Callable[[ClusterSpec, int], Sequence[int]]:
        """Whose disks it may change, of a target."""

    @property
    def may_use(self) -> frozenset[Capability]:
        """What it does besides where a cluster can."""

    def refused_by(self, spec: ClusterSpec, given: Mapping[str, object]) -> str:
        """Say why its options, as a plan has them, are for another cluster; empty: they are not."""

    def releases_by(self, given: Mapping[str, object]) -> tuple[str, ...]:
        """Say which releases nodes come to run by it, with options as a plan has them."""

    def planned(self, node: int, given: Mapping[str, object]) -> Aimed:
        """Return it with its node and with options as a plan has them."""


@cache
def _needs(inject: Callable[..., object]) -> frozenset[Capability]:
    """Return what the annotation of a fault's first parameter asks of a cluster."""
    first = next(iter(inspect.signature(inject).parameters), "")
    asked = typing.get_type_hints(inject).get(first)
    if not isinstance(asked, type) or FaultTarget not in asked.__mro__:
        raise TypeError(f"{inject.__qualname__}: annotate its first parameter with what it asks of a cluster")
    return asked_by(asked)


def joined(first: Proof, name: str, second: Proof) -> Proof:
    """Return one proof that holds if both do, the second's facts under a name."""
    return Proof(
        holds=first.holds and second.holds,
        facts={**first.facts, name: {"holds": second.holds, **second.facts}},
        undone=first.is_undone and second.is_undone,
    )


async def came_true(
    holds: Callable[[], bool], *, timeout_ms: int, what: str, cluster: FaultTarget | None = None
) -> Proof:
    """Wait for something; the proof says whether and after how long it came about."""
    try:
        took_ms = await until(holds, timeout_ms=timeout_ms, what=what, cluster=cluster)
    except Unsettled:
        return Proof(holds=False, facts={"missing": what, "waited_ms": timeout_ms})
    return Proof(holds=True, facts={"seen": what, "took_ms": took_ms})


def memberships(cluster: FaultTarget, node: int) -> dict[str, bool]:
    """Return for each partition with a replica there whether the node is in its committed ISR."""
    return {
        str(partition): node in state.isr
        for partition, state in cluster.state.partitions.items()
        if node in state.replicas
    }


def fenced(cluster: FaultTarget, node: int) -> bool:
    """Return whether the controllers have given the broker up."""
    broker = cluster.state.brokers.get(node)
    return broker is None or broker.fenced


def is_there(cluster: FaultTarget, partition: TopicPartition, topic_id: str | None) -> bool:
    """Return whether a partition of this topic is there still: an operator may have deleted the topic, and made another one of that name."""
    return partition in cluster.state.partitions and cluster.state.topic_ids.get(partition.topic) == topic_id


async def registered_again(cluster: FaultTarget, node: int, former_incarnation: str | None) -> Proof:
    """Wait until a broker is unfenced; as a new incarnation, where a former one is given."""
    what = "a new incarnation registered and unfenced" if former_incarnation else "unfenced"
    return await _registered(cluster, node, former_incarnation, what)


async def _registered(cluster: FaultTarget, node: int, former_incarnation: str | None, what: str) -> Proof:
    def is_there() -> bool:
        broker = cluster.state.brokers.get(node)
        return broker is not None and not broker.fenced and broker.incarnation != former_incarnation

    return await came_true(is_there, timeout_ms=cluster.spec.recovery_timeout_ms, what=what, cluster=cluster)


async def back_in_service(cluster: FaultTarget, node: int, former_incarnation: str | None) -> Proof:
    """Wait until a broker is unfenced and in all its ISRs; as a new incarnation, where a former one is given. A controller has to be alive."""
    if node in cluster.spec.controller_ids:
        # Another fault that ended it may not have started it again yet.
        alive = await came_true(
            lambda: cluster.alive(node), timeout_ms=cluster.spec.recovery_timeout_ms, what="alive", cluster=cluster
        )
        return Proof(holds=alive.holds, facts={"serves": alive.holds})

    if not cluster.state.partitions:  # a system that is no log: nobody fences its nodes, they are ready or not
        what = "ready again, as a new process" if former_incarnation else "ready again"
        return await _registered(cluster, node, former_incarnation, what)

    registered = await registered_again(cluster, node, former_incarnation)
    in_sync = await came_true(
        lambda: all(memberships(cluster, node).values()),
        timeout_ms=cluster.spec.recovery_timeout_ms,
        what="in the ISR of all its partitions",
        cluster=cluster,
    )
    broker = cluster.state.brokers.get(node)
    epochs = {"broker_epoch": broker.broker_epoch, "incarnation": broker.incarnation} if broker else {}
    # A process that runs again is all that ending it takes back: that it registers is the cluster's part.
    registration = Proof(
        holds=registered.holds, facts={**registered.facts, **epochs}, undone=registered.holds or cluster.alive(node)
    )
    return joined(registration, "isr", _of_service(in_sync))


async def all_back(cluster: FaultTarget) -> Proof:
    """Wait until every broker serves and every ISR is full."""
    whole = await came_true(
        lambda: cluster.state.is_fully_in_sync(cluster.spec),
        timeout_ms=cluster.spec.recovery_timeout_ms,
        what="every broker unfenced, every ISR full",
        cluster=cluster,
    )
    return _of_service(whole)


def _of_service(proof: Proof) -> Proof:
    """Return a proof that only asks for full service: where it does not hold, the fault is undone all the same."""
    return Proof(holds=proof.holds, facts=proof.facts, undone=True)


def incarnation(cluster: FaultTarget, node: int) -> str | None:
    """Return the broker's incarnation now, None for a controller."""
    broker = cluster.state.brokers.get(node)
    return broker.incarnation if broker else None
