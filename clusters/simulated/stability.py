"""How calm the quorum is: I15 and I16 of docs/invariants.md as figures, because slowness is no violation.

- *isolated epoch growth*: by how much followers raised their quorum epoch while they were reached by no other voter. With
  pre-votes that is 0 (KIP-996). (A leader that resigns raises its own by one, and who is reached by others learns theirs.)
- *isolated leader*: how long a leader went on leading that reached no majority; 1.5 fetch time-outs are allowed.
- *needless elections*: a leader was replaced although it ran and was cut off from nobody. A voter that comes back with
  an epoch of its own making forces one; late messages may, too, so this figure says something only beside another one.
"""

from collections.abc import Callable, Mapping
from typing import Final

from tribunal.clusters.simulated.committed import Incarnation, QuorumMember
from tribunal.clusters.simulated.loop import SimulatedLoop
from tribunal.clusters.simulated.network import SimulatedNetwork
from tribunal.clusters.simulated.process import NS_PER_MS
from tribunal.clusters.simulated.world import Machine

FIRST_CONTROLLER: Final = 101
RECENTLY_NS: Final = 5_000 * NS_PER_MS


class Isolated:
    """A voter that nobody can talk with, since when, and what it knew then."""

    def __init__(self, since_ns: int, incarnation: int, epoch: int, *, leads: bool, is_deaf: bool) -> None:
        self.since_ns = since_ns
        self.incarnation = incarnation
        self.epoch = epoch
        self.leads = leads
        self.keeps_epoch = is_deaf and not leads


class Stability:
    """Figures of one simulation."""

    def __init__(
        self,
        loop: SimulatedLoop,
        network: SimulatedNetwork,
        machines: Mapping[int, Machine],
        members: Callable[[], Mapping[Incarnation, QuorumMember]],
    ) -> None:
        self.isolated_epoch_growth = 0
        self.isolated_leader_ms = 0
        self.needless_elections = 0
        self._loop = loop
        self._network = network
        self._voters = {node: machine for node, machine in machines.items() if node >= FIRST_CONTROLLER}
        self._quorum_members = members
        self._isolated: dict[int, Isolated] = {}
        self._was_isolated_ns: dict[int, int] = {}
        self._leader: tuple[int, int, int] = (-1, -1, 0)  # node, quorum epoch, incarnation

    def links_changed(self) -> None:
        """Look who can talk with whom now."""
        for node, machine in self._voters.items():
            if not self._is_cut_off(node):
                self._returned(node)
            elif node not in self._isolated:
                member = self._quorum_members().get((node, machine.incarnations))
                if member is not None:
                    self._isolated[node] = Isolated(
                        self._loop.now_ns,
                        machine.incarnations,
                        member.leader[1],
                        leads=member.is_leading,
                        is_deaf=self._receives_nothing(node),
                    )

    def look(self, members: Mapping[Incarnation, QuorumMember]) -> None:
        """Note isolated leaders that have resigned."""
        for node, isolated in self._isolated.items():
            if isolated.leads:
                member = members.get((node, isolated.incarnation))
                isolated.leads = member is not None and member.is_leading
                self._led_until_now(isolated)

    def claimed(self, leader: int, epoch: int) -> None:
        """Take note of a leader."""
        former, former_epoch, incarnation = self._leader
        if leader < 0 or epoch <= former_epoch:
            return
        if former in self._voters and self._was_fine(former, incarnation):
            self.needless_elections += 1
        self._leader = (leader, epoch, self._voters[leader].incarnations if leader in self._voters else 0)

    def _returned(self, node: int) -> None:
        isolated = self._isolated.pop(node, None)
        if isolated is None:
            return
        self._was_isolated_ns[node] = self._loop.now_ns
        member = self._quorum_members().get((node, isolated.incarnation))
        if member is not None and isolated.keeps_epoch:
            self.isolated_epoch_growth += max(0, member.leader[1] - isolated.epoch)
        if isolated.leads:
            self._led_until_now(isolated)

    def _led_until_now(self, isolated: Isolated) -> None:
        led_ms = (self._loop.now_ns - isolated.since_ns) // NS_PER_MS
        self.isolated_leader_ms = max(self.isolated_leader_ms, led_ms)

    def _was_fine(self, node: int, incarnation: int) -> bool:
        machine = self._voters[node]
        if not machine.running or machine.incarnations != incarnation or machine.process is None:
            return False
        last_ns = self._loop.now_ns if node in self._isolated else self._was_isolated_ns.get(node, -RECENTLY_NS)
        return not machine.process.paused and self._loop.now_ns - last_ns >= RECENTLY_NS

    def _receives_nothing(self, node: int) -> bool:
        own = self._voters[node].host
        others = [machine.host for other, machine in self._voters.items() if other != node]
        return all(self._network.link(other, own).cut is not None for other in others)

    def _is_cut_off(self, node: int) -> bool:
        own = self._voters[node].host
        others = [machine.host for other, machine in self._voters.items() if other != node]
        return bool(others) and all(
            self._network.link(own, other).cut is not None or self._network.link(other, own).cut is not None
            for other in others
        )
