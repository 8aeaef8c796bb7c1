"""What a simulated cluster can do to itself beyond `tribunal.clusters.api`: every capability of `tribunal.clusters.capabilities`.

Nothing has to be measured here: the simulated world is set to be so, and the proof states it.
"""

import errno
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Final, Literal, Protocol, assert_never

import msgspec

from replog.log.batch import HEADER_BYTES
from tribunal.clusters.api import ClusterError, Link, Proof, TopicPartition
from tribunal.clusters.capabilities import ClockSkew, Damage, DiskTrouble, FrameRule, Rotten, RuleInForce, Shape
from tribunal.clusters.clients.membership import Membership
from tribunal.clusters.frame_rules import Rule
from tribunal.clusters.orders import Order, Orders, elections
from tribunal.clusters.simulated.clients import SimulatedClients
from tribunal.clusters.simulated.network import Host
from tribunal.clusters.simulated.node import SimulatedNode
from tribunal.clusters.simulated.operator import SimulatedOperator
from tribunal.clusters.simulated.process import NS_PER_MS, NS_PER_S
from tribunal.clusters.simulated.replica_logs import BatchMark, ReplicaLog
from tribunal.clusters.simulated.watch import Watch
from tribunal.clusters.simulated.world import Machine, Simulation
from tribunal.clusters.standing_cuts import StandingCuts
from tribunal.results.admin_apis import PREFERRED, AdminApi

PPB_PER_PPM: Final = 1_000
KIB: Final = 1_024
LEADER_EPOCH_BYTES: Final = range(12, 16)  # of a batch: no checksum covers what a leader stamps


class Body(Protocol):
    """What these faults need of their cluster."""

    simulation: Simulation
    nodes: Mapping[int, SimulatedNode]
    clients: SimulatedClients
    watch: Watch
    orders: Orders
    standing_shapes: StandingCuts

    def machine(self, node: int) -> Machine:
        """Return a node's machine."""

    def log_ends(self, node: int) -> dict[str, int]:
        """Return where each log on a node's disk ends."""

    def directory_id(self, node: int) -> str:
        """Return the id that formatting gave a node's log directory, as Kafka's tools write it."""

    def pairs(self, links: Sequence[Link]) -> list[tuple[Host, Host]]:
        """Return the links as machines."""

    def endpoint(self, node: int) -> tuple[str, int]:
        """Return where a node listens."""


class SimulatedFaults(Body, Protocol):
    """What can be done to it, for `SimulatedCluster` to inherit."""

    # links

    async def shape(self, links: Sequence[Link], shape: Shape) -> Proof:
        """Make links slow, lossy or narrow, or as they were once nobody else has them so; of several shapes the newest one is in effect."""
        hindered = links
        if shape == Shape():
            hindered = self.standing_shapes.undo(links)
        else:
            self.standing_shapes.add(links)
        ns_per_kib = NS_PER_S * KIB // shape.bytes_per_s if shape.bytes_per_s else 0
        for pair in self.pairs(hindered):
            self.simulation.network.link(*pair).hinder(
                delay_ns=shape.delay_ms * NS_PER_MS,
                jitter_ns=shape.jitter_ms * NS_PER_MS,
                loss_share=shape.loss,
                ns_per_kib=ns_per_kib,
            )
        return Proof(holds=bool(links), facts={"shape": msgspec.to_builtins(shape), "links": list(map(str, links))})

    async def reset(self, links: Sequence[Link]) -> Proof:
        """Reset the connections there are, once."""
        count = sum(self.simulation.network.reset(*pair) for pair in self.pairs(links))
        return Proof(holds=count > 0, facts={"reset": count // 2, "left": 0})

    async def half_open(self, links: Sequence[Link]) -> Proof:
        """Let each link's target forget its connections while the source goes on taking them for open."""
        count = sum(self.simulation.network.half_open(*pair) for pair in self.pairs(links))
        return Proof(holds=count > 0, facts={"forgotten": count, "believed_in": count})

    async def close_half_open(self, links: Sequence[Link]) -> Proof:
        """Reset the ends that are still open."""
        count = sum(self.simulation.network.close_half_open(*pair) for pair in self.pairs(links))
        return Proof(holds=True, facts={"believed_in_until_the_end": count})

    # messages

    def add_rule(self, rule: FrameRule) -> Rule:
        """Ask this rule about every message from now on."""
        return self.simulation.network.frames.add(rule)

    def release(self, rule: RuleInForce) -> int:
        """Let go on what the rule holds now."""
        return self.simulation.network.frames.rules.release(rule)

    def remove_rule(self, rule: RuleInForce) -> int:
        """Ask it no more, and let go on what it holds."""
        return self.simulation.network.frames.rules.remove(rule)

    # disks and clocks

    async def power_fail(self, node: int) -> Proof:
        """Take the power away: silence, and what was not synced is at the mercy of coins."""
        machine = self.machine(node)
        before = self.log_ends(node)
        machine.power_fail()
        self.watch.lost_data(node)
        return Proof(
            holds=not machine.running,
            facts={"log_end_offsets_before": before, "log_end_offsets_after": self.log_ends(node)},
        )

    async def damage(self, node: int, damage: Damage) -> Proof:
        """Damage the log files of a node that is down."""
        machine = self.machine(node)
        if machine.running:
            raise ClusterError(f"node {node} runs: kill it before its disk is damaged")
        machine.power_on()
        before = self.log_ends(node)
        after, unseen = dict(before), dict[str, int]()
        self.watch.damaged(node)
        for partition, log in sorted(self.watch.replicas[node].logs.items()):
            if log.batches and not partition.topic.startswith("__"):
                hit, is_seen = self._harm(machine, log, damage)
                after[str(partition)] = hit.base_offset
                if not is_seen:
                    unseen[str(partition)] = hit.last_offset + 1
                    self.watch.epoch_altered(partition, hit.base_offset)
        return Proof(
            holds=after != before,
            facts={"log_end_offsets_before": before, "log_end_offsets_after": after, "unseen_end_offsets": unseen},
        )

    async def rot(self, node: int) -> Proof:
        """Turn over a bit of a record in a closed segment of each log of a node, whether it runs or not."""
        machine = self.machine(node)
        random = machine.random("damage")
        places: list[Rotten] = []
        self.watch.rotten(node)
        for partition, log in sorted(self.watch.replicas[node].logs.items()):
            closed = [index for index, (path, _) in enumerate(log.ends) if path != log.ends[-1][0]]
            if closed and not partition.topic.startswith("__"):
                index = random.choice(closed)
                path, end = log.ends[index]
                begin = log.ends[index - 1][1] if index and log.ends[index - 1][0] == path else 0
                byte = random.randrange(begin + HEADER_BYTES, end)
                content = machine.disk.content(path)
                assert content is not None
                base_offset = log.batches[index].base_offset
                places.append(Rotten(path=path, begin=begin, base_offset=base_offset, byte=byte, was=content[byte]))
                machine.disk.flip_bit(path, 8 * byte + random.randrange(8))
        is_bitten = len(self.still_rotten(node, places)) == len(places) > 0
        return Proof(holds=is_bitten, facts={"rotten": msgspec.to_builtins(places)})

    def still_rotten(self, node: int, places: Sequence[Rotten]) -> list[Rotten]:
        """Return those whose batch is still there, with another byte than it had."""
        disk = self.machine(node).disk
        return [place for place in places if _is_rotten(disk.content(place.path), place)]

    async def turn_back(self, node: int, places: Sequence[Rotten]) -> Proof:
        """Give the bytes back that they had."""
        disk = self.machine(node).disk
        turned = self.still_rotten(node, places)
        for place in turned:
            content = disk.content(place.path)
            assert content is not None
            for bit in range(8):
                if (content[place.byte] ^ place.was) >> bit & 1:
                    disk.flip_bit(place.path, 8 * place.byte + bit)
        return Proof(
            holds=not self.still_rotten(node, places),
            facts={"turned_back": len(turned), "repaired_or_deleted_by_the_node": len(places) - len(turned)},
        )

    def _harm(self, machine: Machine, log: ReplicaLog, damage: Damage) -> tuple[BatchMark, bool]:
        """Damage one log's last segment; return the first damaged batch, and whether recovery can see the damage."""
        path, end = log.ends[-1]
        first = next(index for index, (other, _) in enumerate(log.ends) if other == path)
        starts = [0, *(position for _, position in log.ends[first:-1])]
        random = machine.random("damage")
        match damage:
            case Damage.TORN_TAIL:
                position = starts[-1] + (end - starts[-1]) // 2
                machine.disk.cut_file(path, position)
            case Damage.TRUNCATED:
                position = end - end // 3
                machine.disk.cut_file(path, position)
            case Damage.BIT_FLIP:
                position = random.randrange(end)
                machine.disk.flip_bit(path, 8 * position + random.randrange(8))
            case _:
                assert_never(damage)
        hit = max(index for index, start in enumerate(starts) if start <= position)
        is_seen = damage is not Damage.BIT_FLIP or position - starts[hit] not in LEADER_EPOCH_BYTES
        return log.batches[first + hit], is_seen

    async def set_clock(self, node: int, skew: ClockSkew) -> Proof:
        """Move a node's clock."""
        machine = self.machine(node)
        machine.set_clock(offset_ms=skew.offset_ms, drift_ppb=skew.drift_ppm * PPB_PER_PPM)
        return Proof(holds=machine.running, facts=msgspec.to_builtins(skew))

    async def trouble_disk(self, node: int, trouble: DiskTrouble) -> Proof:
        """Make a node's disk misbehave, or be well again."""
        disk = self.machine(node).disk
        disk.faults.read_only = trouble.writes == "read-only"
        disk.faults.capacity_bytes = disk.used_bytes if trouble.writes == "full" else None
        disk.faults.tears = False
        disk.faults.sync_delay_ns = trouble.fsync_delay_ms * NS_PER_MS
        return Proof(holds=True, facts=msgspec.to_builtins(trouble))

    async def fail_directory(self, node: int) -> Proof:
        """Let the last of a broker's log directories fail, an append in its midst."""
        directory, disk = self.nodes[node].config.log_dirs[-1], self.machine(node).disk
        disk.break_below(directory, errno.EIO, tears=True)
        return Proof(holds=disk.is_broken(directory), facts={"directory": directory, "answers": "EIO"})

    async def mend_directory(self, node: int) -> Proof:
        """Let it work again, with what it held."""
        directory, disk = self.nodes[node].config.log_dirs[-1], self.machine(node).disk
        disk.mend(directory)
        return Proof(holds=not disk.is_broken(directory), facts={"directory": directory, "answers": "as before"})

    def logs_of_failing_directory(self, node: int) -> Sequence[TopicPartition]:
        """Return whose logs lie in the last of a broker's log directories."""
        replicas = self.watch.replicas[node]
        paths = self.machine(node).disk.files_below(self.nodes[node].config.log_dirs[-1])
        return list(dict.fromkeys(one for one in map(replicas.partition_of, paths) if one is not None))

    async def tear_append(self, node: int, room_bytes: int) -> Proof:
        """Let a disk take so many bytes more, the first part of the append that meets the end among them."""
        disk = self.machine(node).disk
        disk.faults.capacity_bytes = disk.used_bytes + room_bytes
        disk.faults.tears = True
        return Proof(holds=True, facts={"writes": "torn", "room_bytes": room_bytes})

    def excuse(self, node: int, why: str | None) -> None:
        """Expect (or no longer expect) the node to end by itself."""
        self.nodes[node].excuse = why

    async def mount_disk(self, node: int, writes: Literal["full", "read-only"]) -> Proof:
        """Refuse a node's writes; that a kernel would need a mount for it makes no difference here."""
        return await self.trouble_disk(node, DiskTrouble(writes=writes))

    async def mend_mount(self, node: int) -> Proof:
        """Take a node's writes again."""
        return await self.trouble_disk(node, DiskTrouble())

    # requests of an operator

    async def reassign(self, partition: TopicPartition, replicas: Sequence[int]) -> None:
        """Ask for these replicas."""
        order = Order(api=AdminApi.REASSIGN, topic=partition.topic, partition=partition.partition)
        async with self.orders.given(order) as asked, self._operator() as operator:
            await operator.reassign(partition, replicas)
            asked.left_in_doubt = operator.left_in_doubt

    async def set_topic_config(self, topic: str, name: str, value: str | None) -> None:
        """Set one of a topic's settings."""
        order = Order(api=AdminApi.SET_CONFIG, topic=topic, setting=name, value=value)
        async with self.orders.given(order) as asked, self._operator() as operator:
            await operator.set_topic_config(topic, name, value)
            asked.left_in_doubt = operator.left_in_doubt

    async def elect_preferred(self, partitions: Sequence[TopicPartition]) -> None:
        """Give each partition's lead to its first replica."""
        orders = elections(partitions, PREFERRED)
        async with self.orders.given(*orders) as asked, self._operator() as operator:
            await operator.elect_preferred(partitions)
            asked.left_in_doubt = operator.left_in_doubt

    async def unregister(self, node: int) -> None:
        """Let the controllers forget a broker."""
        async with self._operator() as operator:
            await Membership(operator).unregister(node)

    async def voters(self) -> list[int]:
        """Return who votes."""
        async with self._operator() as operator:
            return await Membership(operator).voters()

    async def remove_voter(self, node: int) -> None:
        """Take a controller's vote."""
        async with self._operator() as operator:
            await Membership(operator).remove_voter(node)

    async def add_voter(self, node: int) -> None:
        """Give an observing controller a vote."""
        async with self._operator() as operator:
            await Membership(operator).add_voter(node, self.endpoint(node), self.directory_id(node))

    @asynccontextmanager
    async def _operator(self) -> AsyncGenerator[SimulatedOperator]:
        operator = self.clients.fault_operator("operator")
        try:
            yield operator
        finally:
            await operator.close()


def _is_rotten(content: bytearray | None, place: Rotten) -> bool:
    if content is None or place.byte >= len(content):
        return False
    is_there = int.from_bytes(content[place.begin : place.begin + 8], "big") == place.base_offset
    return is_there and content[place.byte] != place.was
