"""A counterexample of this world as a scenario: each step has a time, and what the step needs is a fault that lasts so long.

What is late is held: a leader's metadata by its fetches to the controllers, a follower's records by its fetches, a proposal by its
AlterPartition. The first leader is `leader(p0)`, any other broker `follower(p0)`: with two replicas that says it exactly, with more
the draw of a seed has a part in it.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from replog.types import NodeId
from tribunal.clusters.spec import ClusterSpec
from tribunal.harness.explore.partition import events as e
from tribunal.harness.explore.partition.broker import Proposed, Seen

PROFILE: Final = "ci"
SPEC: Final = ClusterSpec(profile=PROFILE)
LAG_MS: Final = SPEC.timeout_ms("replica.lag.time.max.ms") * 8 // 5  # found at the next of its own looks
SESSION_MS: Final = SPEC.timeout_ms("broker.session.timeout.ms") * 5 // 4
STEP_MS: Final = 300
AFTER_MS: Final = 4_000


class Moment(NamedTuple):
    """A state of the way."""

    seen: Mapping[NodeId, Seen]
    unread: Mapping[NodeId, int]  # batches of metadata
    under_way: Mapping[int, e.Message]


class Hurt(msgspec.Struct, frozen=True, kw_only=True):
    """A fault of the scenario."""

    start_ms: int
    end_ms: int
    fault: str
    options: str = ""


def scenario(way: Sequence[Moment], steps: Sequence[e.Step], settings: e.Settings, words: str) -> str:
    """Return the scenario's text; `way` has one state more than there are steps."""
    times = [0]
    for step in steps:
        times.append(times[-1] + _lasts_ms(step))
    hurts = sorted(
        [
            *_acts(way, steps, times),
            *_late_metadata(way, times),
            *_lagging(way, steps, times),
            *_late_proposals(way, steps, times),
        ],
        key=lambda hurt: hurt.start_ms,
    )
    lines, before_ms = [], 0
    for index, hurt in enumerate(hurts):
        after = f", after: {hurt.start_ms - before_ms}ms" + (", meanwhile: true" if index else "")
        lines.append(f"  - {{{hurt.fault}{hurt.options}, for: {hurt.end_ms - hurt.start_ms}ms{after}}}")
        before_ms = hurt.start_ms
    return "\n".join(
        [
            "scenario: explored",
            f"about: '{words.replace(chr(39), '')[:160]}'",
            f"cluster: {{brokers: 3, controllers: 3, replication_factor: {settings.brokers}, "
            f"min_insync_replicas: {settings.min_isr}, profile: {PROFILE}}}",
            "workload: {name: produce-consume, partitions: 1, rate: 100, readers: 1}",
            f"time: {(times[-1] + 2 * AFTER_MS) // 1000}s",
            "steps:",
            *lines,
            "",
        ]
    )


def _lasts_ms(step: e.Step) -> int:
    match step:
        case e.Lag():
            return LAG_MS
        case e.Expire():
            return SESSION_MS
        case _:
            return STEP_MS


def _target(node: NodeId) -> str:
    return "leader(p0)" if node == 1 else "follower(p0)"


def _acts(way: Sequence[Moment], steps: Sequence[e.Step], times: Sequence[int]) -> Iterator[Hurt]:
    """Yield what is done to the world: crashes, brokers cut off from the controllers, the operator's act."""
    end_ms = times[-1] + AFTER_MS
    for index, step in enumerate(steps):
        start_ms = times[index]
        match step:
            case e.Crash(node=node):
                back = [times[at] for at in range(index, len(steps)) if steps[at] == e.Restart(node)]
                fault = "power-loss" if step.loses_tail else "kill"
                yield Hurt(start_ms=start_ms, end_ms=back[0] if back else end_ms, fault=f"{fault}: {_target(node)}")
            case e.Expire(node=node) if way[index].seen[node].alive:
                yield Hurt(
                    start_ms=start_ms, end_ms=end_ms, fault=f"isolate: {_target(node)}", options=", from: controllers"
                )
            case e.Raise(value=value):
                yield Hurt(
                    start_ms=start_ms, end_ms=end_ms, fault="change-min-isr: controller 101", options=f", to: {value}"
                )
            case _:
                pass


def _late_metadata(way: Sequence[Moment], times: Sequence[int]) -> Iterator[Hurt]:
    """Yield leaders whose metadata lag: from before the first batch that they do not read until they do, or end."""
    for node in way[0].seen:
        late = [index for index, moment in enumerate(way) if moment.seen[node].leads and moment.unread[node]]
        if late:
            start_ms, end_ms = max(0, times[late[0] - 1] - STEP_MS), times[late[-1]] + AFTER_MS
            yield Hurt(
                start_ms=start_ms, end_ms=end_ms, fault=f"hold-messages: {_target(node)}", options=", api: fetch"
            )


def _lagging(way: Sequence[Moment], steps: Sequence[e.Step], times: Sequence[int]) -> Iterator[Hurt]:
    """Yield followers that a leader finds lagging: they do not fetch from before until they do."""
    for index, step in enumerate(steps):
        if not isinstance(step, e.Lag):
            continue
        moment = way[index]
        for node, one in moment.seen.items():
            if not one.alive or one.source != step.node or len(one.stored) == len(moment.seen[step.node].stored):
                continue
            fetches = (e.Ask(node, at_once=True), e.Ask(node, at_once=False))
            again = [times[at] for at in range(index, len(steps)) if steps[at] in fetches]
            end_ms = again[0] if again else times[-1] + AFTER_MS // 2
            yield Hurt(
                start_ms=times[index], end_ms=end_ms, fault=f"hold-messages: {_target(node)}", options=", api: fetch"
            )


def _late_proposals(way: Sequence[Moment], steps: Sequence[e.Step], times: Sequence[int]) -> Iterator[Hurt]:
    """Yield proposals that something else overtakes."""
    for index, step in enumerate(steps):
        if not isinstance(step, e.Deliver):
            continue
        message = way[index].under_way[step.message]
        sent = next(at for at, moment in enumerate(way) if step.message in moment.under_way)
        if isinstance(message, Proposed) and sent < index:
            yield Hurt(
                start_ms=times[sent - 1],
                end_ms=times[index],
                fault=f"hold-messages: {_target(message.sender)}",
                options=", api: alter-partition",
            )
