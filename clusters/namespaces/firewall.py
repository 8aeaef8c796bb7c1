"""What hinders packets between namespaces: nftables in the hub for drop, refusal and loss, a tc class for bandwidth.

Packets are known by the pair of addresses they travel between. Counters say how many a rule has met: that is the proof
that packets really vanish. Each change is one nft transaction (2 to 5 ms), so a partition of many pairs begins at one instant.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, Protocol

import msgspec

from tribunal.clusters.api import CutMode, Link
from tribunal.clusters.capabilities import Shape

TABLE: Final = "tribunal"
LOSS_PARTS: Final = 1_000
UNHINDERED: Final = "1:ffff"
# A set for each way to be cut, its elements with counters; losses are rules of their own, by comment.
RULESET: Final = """
table ip %s {
  set held {
    type ipv4_addr . ipv4_addr
    counter
  }
  set refused {
    type ipv4_addr . ipv4_addr
    counter
  }
  chain lossy {
  }
  chain between {
%s    ip saddr . ip daddr @held drop
    %s
    ip saddr . ip daddr @refused ip protocol tcp reject with tcp reset
    ip saddr . ip daddr @refused drop
    jump lossy
  }
%s}
"""
HOOK: Final = """  chain at_%s {
    type filter hook %s priority 0; policy accept;
    jump between
  }
"""
# Where packets are refused by one end and not between both, the other end of a link that is refused both ways has to hear of it.
RESETS_GO_ON: Final = "tcp flags & rst == rst accept"
# Where a machine has other things to do, rules are for some ports alone, at either end of a connection.
OTHER_PORTS_GO_ON: Final = """    meta l4proto != { tcp, udp } accept
    th sport != { %s } th dport != { %s } accept
"""
SETS: Final[Mapping[CutMode, str]] = {CutMode.HOLD: "held", CutMode.RESET: "refused"}


class Places(Protocol):
    """Where commands are run, by name: `Namespaces`, or networks of containers."""

    def run(self, argv: Sequence[str], *, stdin: str = "", name: str = "hub") -> str:
        """Run a command there; return its output, `ClusterError` with what it complained of."""

    async def run_aside(self, argv: Sequence[str], *, stdin: str = "", name: str = "hub") -> str:
        """Run it without holding up the event loop."""


class Cuts:
    """The rules of one place that stop packets; a `links.packet_filter.CutFilter`.

    at:     the name of the place.
    hooks:  where packets meet the rules: between two networks (`forward`), or in a node's own (`input`, `output`).
    table:  the name of the table that has the rules, where others have tables of theirs.
    ports:  whose packets alone are meant; none: all.
    """

    name = "nftables"

    def __init__(
        self,
        spaces: Places,
        address: Callable[[int], str],
        *,
        at: str = "hub",
        hooks: Sequence[str] = ("forward",),
        table: str = TABLE,
        ports: Sequence[int] = (),
    ) -> None:
        self._spaces = spaces
        self._address = address
        self._at = at
        self._hooks = hooks
        self._name = table
        self._table = f"ip {table}"
        self._ports = ports
        self._cuts: dict[Link, CutMode] = {}

    def open(self) -> None:
        """Put the empty rules in place."""
        resets = "" if self._hooks == ("forward",) else RESETS_GO_ON
        hooks = "".join(HOOK % (hook, hook) for hook in self._hooks)
        ports = ", ".join(map(str, self._ports))
        others = OTHER_PORTS_GO_ON % (ports, ports) if ports else ""
        self._spaces.run(["nft", "-f", "-"], stdin=RULESET % (self._name, others, resets, hooks), name=self._at)

    def _pair(self, link: Link) -> str:
        return f"{self._address(link.source)} . {self._address(link.target)}"

    def stops(self, mode: CutMode) -> bool:
        """Leave bytes that are to be lost for good to the relay: TCP would send them again."""
        return mode is not CutMode.DROP

    async def cut(self, links: Iterable[Link], mode: CutMode) -> None:
        """Stop packets of these links from now on, all at one instant."""
        fresh = [link for link in links if self._cuts.get(link) is not mode]
        lines = [self._removal(link) for link in fresh if link in self._cuts]
        if fresh:
            lines.append(f"add element {self._table} {SETS[mode]} {{ {', '.join(map(self._pair, fresh))} }}")
        self._cuts |= dict.fromkeys(fresh, mode)
        await self._commit(lines)

    async def mend(self, links: Iterable[Link]) -> None:
        """Let packets pass again."""
        known = [link for link in links if link in self._cuts]
        lines = [self._removal(link) for link in known]
        for link in known:
            del self._cuts[link]
        await self._commit(lines)

    def _removal(self, link: Link) -> str:
        return f"delete element {self._table} {SETS[self._cuts[link]]} {{ {self._pair(link)} }}"

    def is_cut(self, link: Link) -> bool:
        """Return whether the link's packets are stopped."""
        return link in self._cuts

    async def stopped(self, links: Sequence[Link]) -> dict[str, int]:
        """Return how many packets of these links were stopped since they were cut."""
        counts: dict[str, int] = {}
        for name in {SETS[self._cuts[link]] for link in links}:
            listed = await self._spaces.run_aside(
                ["nft", "-j", "list", "set", *self._table.split(), name], name=self._at
            )
            counts |= _stopped_packets(listed)
        return {str(link): counts.get(self._pair(link), 0) for link in links}

    async def _commit(self, lines: Sequence[str]) -> None:
        if lines:
            await self._spaces.run_aside(["nft", "-f", "-"], stdin="\n".join(lines) + "\n", name=self._at)


class Firewall(Cuts):
    """The hub's rules, also for loss and bandwidth; a `links.packet_filter.PacketFilter`."""

    def __init__(self, spaces: Places, address: Callable[[int], str], device: Callable[[int], str]) -> None:
        super().__init__(spaces, address)
        self._device = device  # a node's link at the hub
        self._losses: dict[Link, float] = {}
        self._narrow: dict[int, dict[int, int]] = {}  # target -> source -> bytes per second
        self._shaped: set[int] = set()  # targets whose device has classes

    async def shape(self, links: Sequence[Link], shape: Shape) -> Shape:
        """Lose packets and hold to a bandwidth; delays are the relay's, which is precise to 1 ms."""
        await self.set_loss(links, shape.loss)
        await self.set_bandwidth(links, shape.bytes_per_s)
        return Shape(delay_ms=shape.delay_ms, jitter_ms=shape.jitter_ms)

    async def set_loss(self, links: Iterable[Link], loss: float) -> None:
        """Lose this share of the links' packets; 0: none."""
        for link in links:
            if loss:
                self._losses[link] = loss
            else:
                self._losses.pop(link, None)
        rules = [
            f"add rule {self._table} lossy ip saddr {self._address(link.source)} ip daddr {self._address(link.target)} "
            f"numgen random mod {LOSS_PARTS} < {max(1, round(share * LOSS_PARTS))} counter drop"
            for link, share in self._losses.items()
        ]
        await self._commit([f"flush chain {self._table} lossy", *rules])

    async def lost(self) -> int:
        """Return how many packets the present losses have taken."""
        return _lost_packets(
            await self._spaces.run_aside(["nft", "-j", "list", "chain", *self._table.split(), "lossy"])
        )

    async def set_bandwidth(self, links: Iterable[Link], bytes_per_s: int) -> None:
        """Let the links carry so many bytes a second at most; 0: no bound."""
        touched = set()
        for link in links:
            before = self._narrow.setdefault(link.target, {})
            if bytes_per_s:
                before[link.source] = bytes_per_s
            elif before.pop(link.source, None) is None:
                continue
            touched.add(link.target)
        lines = [line for target in sorted(touched) for line in self._classes(target, self._device(target))]
        if lines:
            await self._spaces.run_aside(["tc", "-batch", "-"], stdin="\n".join(lines) + "\n")

    def _classes(self, target: int, device: str) -> list[str]:
        """Return what replaces the device's classes by those wanted now."""
        narrow = self._narrow[target]
        lines = [f"qdisc del dev {device} root"] if target in self._shaped else []
        if not narrow:
            self._shaped.discard(target)
            return lines
        self._shaped.add(target)
        lines.append(f"qdisc add dev {device} root handle 1: htb default ffff r2q 1000")
        lines.append(f"class add dev {device} parent 1: classid {UNHINDERED} htb rate 10gbit quantum 60000")
        for number, (source, bytes_per_s) in enumerate(sorted(narrow.items()), 1):
            bits, class_id = 8 * bytes_per_s, f"1:{number:x}"
            lines.append(f"class add dev {device} parent 1: classid {class_id} htb rate {bits}bit quantum 3000")
            lines.append(
                f"filter add dev {device} parent 1: protocol ip prio {number} u32 "
                f"match ip src {self._address(source)}/32 flowid {class_id}"
            )
        return lines


# What is read of `nft -j list`: https://manpages.debian.org/libnftables-json, as far as our own rules need it.


class _Counter(msgspec.Struct):
    packets: int


class _Pair(msgspec.Struct):
    concat: tuple[str, str]


class _Element(msgspec.Struct):
    val: _Pair
    counter: _Counter


class _Member(msgspec.Struct):
    elem: _Element


class _Set(msgspec.Struct):
    elem: list[_Member] = []


class _Part(msgspec.Struct):
    """One part of a rule; only a counter is of interest."""

    counter: _Counter | None = None


class _Rule(msgspec.Struct):
    expr: list[_Part] = []


class _Entry(msgspec.Struct):
    """One thing that is listed: a set, a rule, or something else."""

    set: _Set | None = None
    rule: _Rule | None = None


class _Listing(msgspec.Struct):
    nftables: list[_Entry]


def _stopped_packets(listed: str) -> dict[str, int]:
    """Return packets by pair of addresses, from a listed set."""
    sets = [entry.set for entry in msgspec.json.decode(listed, type=_Listing).nftables if entry.set is not None]
    elements = [member.elem for one in sets for member in one.elem]
    return {" . ".join(element.val.concat): element.counter.packets for element in elements}


def _lost_packets(listed: str) -> int:
    """Return how many packets the rules of a listed chain have counted."""
    rules = [entry.rule for entry in msgspec.json.decode(listed, type=_Listing).nftables if entry.rule is not None]
    return sum(part.counter.packets for rule in rules for part in rule.expr if part.counter is not None)
