"""End a node and start it within its session time-out, several times; nobody may mistake one incarnation for another (KIP-380).

With `late`, a request of the process that ends first waits, and arrives when the last one is registered: a message of a former life. That
one arrived is a part of the proof: most late messages die with their connection, or arrive before anybody has come after their sender.
"""

from contextlib import asynccontextmanager
from typing import Annotated, Final, Protocol

import msgspec

from tribunal.clusters.capabilities import CanHinderMessages, Fate, FrameRule, RuleInForce
from tribunal.clusters.spec import ClusterSpec
from tribunal.nemesis.api import AsyncGenerator, Effect, Fault, Proof, back_in_service, came_true, incarnation
from tribunal.nemesis.bounce import BounceTarget, How, bounced
from tribunal.nemesis.messages import APIS, MEET_TIMEOUT_MS, not_sent_in


class LateTarget(BounceTarget, CanHinderMessages, Protocol):
    """A cluster whose nodes are bounced, and their messages held."""


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How it ends, and how often; late: the API of the request that outlives the first process."""

    how: How = "stop"
    times: Annotated[int, msgspec.Meta(ge=1)] = 2
    late: str | None = None

    def __post_init__(self) -> None:
        """Refuse an API that nobody knows."""
        if self.late is not None and APIS.get(self.late) is None:
            raise ValueError(f"late {self.late!r} is none of: {', '.join(name for name in APIS if name != 'any')}")


@asynccontextmanager
async def inject(cluster: LateTarget, node: int, options: Options) -> AsyncGenerator[Effect]:
    """Inject: each time its process ended and another began at once. Heal: a new incarnation, in its ISRs again."""
    former = incarnation(cluster, node)
    held = None if options.late is None else await _held(cluster, node, APIS[options.late])
    try:
        effect = Effect(node, await bounced(cluster, node, options.how))
        for number in range(1, options.times):
            effect.add_proof(f"again_{number}", await bounced(cluster, node, options.how))
        yield effect
        back = await back_in_service(cluster, node, former)
    except Exception:
        if held is not None:
            cluster.remove_rule(held)  # nobody else does, and the run goes on to its end
        raise
    if held is not None:
        waited = held.held_count
        cluster.remove_rule(held)
        effect.add_proof(
            "late", Proof(holds=back.holds and waited > 0, facts={"api": options.late, "messages": waited})
        )
        back = await back_in_service(cluster, node, former)
    effect.heal = back


async def _held(cluster: LateTarget, node: int, api: int | None) -> RuleInForce:
    """Hold one request of the node, and wait until there is one."""
    rule = FrameRule(fate=Fate.HELD, api=api, source=node, limit=1, overtaking=True)
    in_force = cluster.add_rule(rule)
    await came_true(
        lambda: in_force.held_count > 0, timeout_ms=MEET_TIMEOUT_MS, what="a request that will be late", cluster=cluster
    )
    return in_force


def _refused(options: Options, spec: ClusterSpec) -> str:
    return "" if options.late is None else not_sent_in(spec.mode, options.late)


FAULT: Final = Fault(options=Options, inject=inject, refused=_refused)
