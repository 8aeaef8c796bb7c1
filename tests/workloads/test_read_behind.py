"""A transaction that is never ended holds back who reads what is committed; what lies behind is read all the same."""

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

from tribunal.clusters.api import TopicPartition, until
from tribunal.clusters.clock import RunClock
from tribunal.clusters.kinds.simulated import launch
from tribunal.clusters.simulated.guard import sealed
from tribunal.clusters.simulated.world import Simulation
from tribunal.clusters.spec import ClusterSpec
from tribunal.workloads.api import Stage
from tribunal.workloads.kinds import transactions
from tribunal.workloads.transactor import Transactor

FIRST, SECOND = (TopicPartition(transactions.TOPIC, number) for number in range(2))
READ_MS = 2_000


class Sink:
    """Takes down who read what in the end, and the ids of transactions."""

    def __init__(self) -> None:
        self.read: dict[int, set[int]] = {}
        self.isolations: dict[int, str] = {}
        self.sent: list[int] = []
        self.ids: Counter[str] = Counter()

    def row(self, table: str, **columns: Any) -> None:
        if table == "polls" and columns["phase"] == "final":
            self.isolations[columns["process"]] = columns["isolation"]
        if table == "reads" and columns["phase"] == "final":
            self.read.setdefault(columns["process"], set()).add((columns["partition"], columns["value"]))
        if table == "txns":
            self.ids[columns["txn_id"]] += 1
        if table == "sends":
            self.sent.append(columns["value"])


class Ended(NamedTuple):
    unread: list[TopicPartition]
    sink: Sink
    took_ms: float


def ended(*, opened: bool) -> Ended:
    """Commit a record in one partition and one in another behind a transaction that is open there, or not; read to the end."""

    async def main(simulation: Simulation) -> Ended:
        cluster = await launch(ClusterSpec(brokers=1, controllers=1), Path("/nonexistent"), RunClock(), "behind")
        sink = Sink()
        stage = Stage(clients=cluster.clients, sink=sink, now_ns=cluster.now_ns)
        chosen = transactions.plan(transactions.Options(partitions=2), simulation.loop.random("load"))
        await transactions.prepare(stage, chosen, 1)
        await until(lambda: SECOND in cluster.state.partitions, timeout_ms=5_000, what="the topic", cluster=cluster)
        if opened:
            stays = Transactor(stage, 1, "stays-open", "transactional", 60_000)
            assert await stays.begin()
            stays.send(SECOND, "key")
            await until(lambda: len(sink.sent) == 1, timeout_ms=5_000, what="an answer", cluster=cluster)
        ends = Transactor(stage, 2, "ends", "transactional", 60_000)
        assert await ends.begin()
        ends.send(FIRST, "key")
        ends.send(SECOND, "key")
        assert (await ends.end(commit=True)).error is None
        began_ns = cluster.now_ns()
        unread = await transactions.read_to_end(stage, chosen, READ_MS)
        return Ended(unread, sink, (cluster.now_ns() - began_ns) / 1e6)

    with sealed(Simulation(7)) as simulation:
        return simulation.run(main(simulation))


def test_without_an_open_transaction_one_reader_who_reads_what_is_committed_comes_to_the_end() -> None:
    found = ended(opened=False)

    assert found.unread == []
    assert found.sink.isolations == {999: "read_committed"}
    assert found.took_ms < READ_MS


def test_behind_an_open_one_another_reads_all_that_is_there_and_only_there() -> None:
    found = ended(opened=True)

    assert found.unread == []
    assert found.sink.isolations == {999: "read_committed", 998: "read_uncommitted"}
    open_, *committed = found.sink.sent
    assert found.sink.read == {999: {(0, committed[0])}, 998: {(1, open_), (1, committed[1])}}


def test_a_process_leaves_its_id_behind_after_so_many_transactions() -> None:
    def ids(**options: int) -> set[str]:
        async def main(simulation: Simulation) -> set[str]:
            cluster = await launch(ClusterSpec(brokers=1, controllers=1), Path("/nonexistent"), RunClock(), "ids")
            sink = Sink()
            stage = Stage(clients=cluster.clients, sink=sink, now_ns=cluster.now_ns)
            wanted = transactions.Options(partitions=1, processes=3, rest_ms=10, **options)
            chosen = transactions.plan(wanted, simulation.loop.random("load"))
            await transactions.prepare(stage, chosen, 1)
            running = asyncio.create_task(transactions.run(stage, chosen))
            await until(
                lambda: sink.ids["processor-3"] >= 4 or len(sink.ids) > 4,
                timeout_ms=20_000,
                what="transactions",
                cluster=cluster,
            )
            stage.stopping.set()
            await running
            return {name for name in sink.ids if name.startswith("processor-3")}

        with sealed(Simulation(7)) as simulation:
            return simulation.run(main(simulation))

    assert ids() == {"processor-3"}
    assert {"processor-3", "processor-3-1"} <= ids(id_transactions=2)
