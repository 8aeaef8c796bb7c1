"""What may stop, lose and slow packets below the relays: nothing, or a firewall that they cross."""

from collections.abc import Sequence
from typing import Protocol

from tribunal.clusters.api import CutMode, Link
from tribunal.clusters.capabilities import Shape


class CutFilter(Protocol):
    """Stops the packets of links."""

    @property
    def name(self) -> str:
        """Who it is, for proofs."""

    def stops(self, mode: CutMode) -> bool:
        """Return whether it can make cuts of this mode; others are the relays', where there are some."""

    def is_cut(self, link: Link) -> bool:
        """Return whether the link's packets are stopped."""

    async def cut(self, links: Sequence[Link], mode: CutMode) -> None:
        """Stop packets of these links from now on."""

    async def mend(self, links: Sequence[Link]) -> None:
        """Let packets pass again."""

    async def stopped(self, links: Sequence[Link]) -> dict[str, int]:
        """Return how many packets of these links, which are cut, were stopped."""


class PacketFilter(CutFilter, Protocol):
    """Hinders packets where the relays only hinder bytes."""

    async def shape(self, links: Sequence[Link], shape: Shape) -> Shape:
        """Do its part of a shape; return the part that is left to the relays."""

    async def lost(self) -> int:
        """Return how many packets the present shapes have lost."""


class NoPacketFilter:
    """Nothing is between the relays and their nodes."""

    name = "relay"

    def stops(self, mode: CutMode) -> bool:
        """Leave every cut to the relays."""
        return False

    def is_cut(self, link: Link) -> bool:
        """Stop nothing."""
        return False

    async def cut(self, links: Sequence[Link], mode: CutMode) -> None:
        """Never asked to: `stops` says so."""
        raise AssertionError(f"nobody here stops packets of {links}")

    async def mend(self, links: Sequence[Link]) -> None:
        """Have nothing to mend."""

    async def stopped(self, links: Sequence[Link]) -> dict[str, int]:
        """Have stopped nothing."""
        return {}

    async def shape(self, links: Sequence[Link], shape: Shape) -> Shape:
        """Leave all of it to the relays."""
        return shape

    async def lost(self) -> int:
        """Have lost nothing."""
        return 0
