"""What a cluster with relays can do to its links besides cutting them; shared by every kind that has relays.

Each fault proves itself: a slow, lossy or narrow link by timed probes, a reset or a half-open connection by what
became of the sockets, a rule by the messages it met (which only the fault that set it can wait for).
"""

import asyncio
from collections.abc import Sequence
from typing import Final

import msgspec

from tribunal.clusters.api import Link, Proof
from tribunal.clusters.capabilities import FrameRule, RuleInForce, Shape
from tribunal.clusters.frame_rules import Rule
from tribunal.clusters.links.probing import Channel
from tribunal.clusters.links.relay import Relay, Side
from tribunal.clusters.links.relays import Links

SAMPLES: Final = 5
SAMPLE_WAIT_MS: Final = 4_000
LONG_MS: Final = 2_000  # one sample is enough of a delay that no scheduler makes
PROBE_BYTES: Final = 40
LOSS_WAIT_MS: Final = 4_000
TOLERANCE: Final = 0.8  # of the delay that a shape should bring
BURST_TOLERANCE: Final = 0.6  # of what a bandwidth should bring on the average: its first packets may go at once


class Timed(msgspec.Struct, frozen=True, kw_only=True):
    """Round trips over one pair of links; -1: no answer."""

    link: str
    target: int
    least_ms: float
    mean_ms: float
    most_ms: float


class LinkFaults:
    """Disturbs links through their relays."""

    def __init__(self, links: Links) -> None:
        self.links = links

    # --- slow, lossy, narrow ---------------------------------------------------------------

    async def shape(self, links: Sequence[Link], shape: Shape) -> Proof:
        """Make links slow, lossy or narrow, or as they were; proven by timed probes."""
        if shape == Shape():
            await self.links.set_shape(links, shape)
            after = await self._times(links, PROBE_BYTES)
            answering = [timed for timed in after if timed.least_ms >= 0 or await self.links.speaks(timed.target)]
            return Proof(holds=_answered(answering), facts={"round_trips_after": _facts(after)})
        size = max(PROBE_BYTES, min(shape.bytes_per_s // 8, 30_000))
        before = await self._times(links, size)
        # What is silent before (its node is down or paused, another fault has the link) proves nothing.
        silent = {timed.link for timed in before if timed.least_ms < 0}
        await self.links.set_shape(links, shape)
        lost_before = await self.links.losses(links) if shape.loss else 0
        late_ms = shape.delay_ms + shape.jitter_ms
        after = [timed for timed in await self._times(links, size, late_ms) if timed.link not in silent]
        lost = await self._loss_seen(links, lost_before) if shape.loss else None
        delay_ms = max(shape.delay_ms - shape.jitter_ms, 0)
        expected_ms = delay_ms + (1000 * size // shape.bytes_per_s if shape.bytes_per_s else 0)
        answering = [late for late in after if late.least_ms >= 0]
        slower = all(
            late.least_ms >= TOLERANCE * delay_ms and late.mean_ms >= BURST_TOLERANCE * expected_ms
            for late in answering
        )
        # Where packets are lost TCP backs off for seconds: silence is what the fault does there.
        answered = bool(answering) and (len(answering) == len(after) or shape.loss > 0)
        return Proof(
            holds=answered and slower and lost != 0,
            facts={
                "shape": msgspec.to_builtins(shape),
                "probe_bytes": size,
                "expected_ms": expected_ms,
                "round_trips_before": _facts(before),
                "round_trips_after": _facts(after),
                "lost": lost,
            },
        )

    async def _times(self, links: Sequence[Link], size: int, late_ms: int = 0) -> list[Timed]:
        channels = await self.links.channels(links)
        try:
            return list(await asyncio.gather(*(_timed(channel, size, late_ms) for channel in channels)))
        finally:
            for channel in channels:
                channel.close()

    async def _loss_seen(self, links: Sequence[Link], lost_before: int) -> int:
        """Probe until a piece was late; return how many were: what an earlier fault of these links has lost proves nothing of this one."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + LOSS_WAIT_MS / 1000
        channels = await self.links.channels(links)
        try:
            while (count := max(0, await self.links.losses(links) - lost_before)) == 0:
                if loop.time() > deadline:
                    break
                await asyncio.gather(*(channel.round_trip_ms(PROBE_BYTES, SAMPLE_WAIT_MS) for channel in channels))
        finally:
            for channel in channels:
                channel.close()
        return count

    # --- connections -----------------------------------------------------------------------

    async def reset(self, links: Sequence[Link]) -> Proof:
        """Reset the connections there are, once."""
        wanted = frozenset(links)
        concerned = [relay for relay in self.links.relays if relay.is_over(wanted)]
        for relay in concerned:
            relay.reset()
        left = sum(relay in self.links.relays for relay in concerned)
        return Proof(holds=bool(concerned) and left == 0, facts={"reset": len(concerned), "left": left})

    async def half_open(self, links: Sequence[Link]) -> Proof:
        """Let each link's target forget its connections while the source goes on taking them for open."""
        wanted = frozenset(links)
        left: list[Relay] = []  # not those that another fault has left so
        for relay in list(self.links.relays):
            side = _side_of(relay, wanted)
            if side is not None and relay.far.transport is not None and relay.half_open_side is None:
                relay.leave_half_open(side)
                left.append(relay)
        await asyncio.sleep(0)
        still_open = [relay for relay in left if _takes_for_open(relay)]
        return Proof(holds=bool(still_open), facts={"forgotten": len(left), "believed_in": len(still_open)})

    async def close_half_open(self, links: Sequence[Link]) -> Proof:
        """Reset the ends that are still open."""
        still_open = self._half_open_over(frozenset(links))
        for relay in still_open:
            relay.reset()
        return await self.links.passing(links, {"believed_in_until_the_end": len(still_open)})

    def _half_open_over(self, wanted: frozenset[Link]) -> list[Relay]:
        return [
            relay
            for relay in self.links.relays
            if relay.half_open_side is not None and relay.link(relay.half_open_side) in wanted
        ]

    # --- single messages -------------------------------------------------------------------

    def add_rule(self, rule: FrameRule) -> Rule:
        """Ask this rule about every message from now on."""
        return self.links.rules.add(rule)

    def release(self, rule: RuleInForce) -> int:
        """Let go on what the rule holds now."""
        return self.links.rules.release(rule)

    def remove_rule(self, rule: RuleInForce) -> int:
        """Ask it no more, and let go on what it holds."""
        return self.links.rules.remove(rule)


async def _timed(channel: Channel, size: int, late_ms: int) -> Timed:
    times: list[float] = []
    wait_ms, samples = SAMPLE_WAIT_MS + late_ms, 1 if late_ms > LONG_MS else SAMPLES
    while len(times) < samples and -1.0 not in times:  # one that is silent is not asked again
        took_ms = await channel.round_trip_ms(size, wait_ms)
        times.append(-1.0 if took_ms is None else took_ms)
    return Timed(
        link=str(channel.link),
        target=channel.link.target,
        least_ms=min(times),
        mean_ms=sum(times) / len(times),
        most_ms=max(times),
    )


def _side_of(relay: Relay, wanted: frozenset[Link]) -> Side | None:
    """Return the side towards a wanted link's source."""
    return next((side for side in (relay.near, relay.far) if relay.link(side) in wanted), None)


def _takes_for_open(relay: Relay) -> bool:
    side = relay.half_open_side
    return side is not None and side.transport is not None and not side.ended and not side.transport.is_closing()


def _answered(times: Sequence[Timed]) -> bool:
    return bool(times) and all(timed.least_ms >= 0 for timed in times)


def _facts(times: Sequence[Timed]) -> list[dict[str, object]]:
    return [
        {
            name: round(value, 1) if isinstance(value, float) else value
            for name, value in msgspec.structs.asdict(timed).items()
        }
        for timed in times
    ]
