"""Transactions a second, started and ended, by many producers at once: ours beside Apache Kafka.

    python bench/transaction_rate.py                          # a table, both
    python bench/transaction_rate.py --seconds 3 --json --only tribunal

One node is controller and broker. Each producer has a transactional id of its own and speaks protocol version 2 (KIP-890):
it writes one record of 100 bytes, which begins a transaction, and ends it; when the answer is there it begins the next.
The same client on the wire (ours, in `--processes` of its own) drives both kinds. Counted are ends that were answered
without an error, after a second of warming up.
"""

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from confluent_kafka.admin import AdminClient, NewTopic

from bench.wire import Wire
from replog.errors import Error
from replog.log.batch import TRANSACTIONAL, NewRecord, build
from replog.wire.apis import Api
from replog.wire.messages import end_txn as et
from replog.wire.messages import find_coordinator as fc
from replog.wire.messages import init_producer_id as ip
from replog.wire.messages import produce as pr
from tribunal.clusters.kafka.jars import kafka_jars
from tribunal.clusters.kafka.side_by_side import ApacheKafka, Ours, SideBySide, Software
from tribunal.clusters.maven_jars import NoJars

TOPIC = "ledger"
PARTITIONS = 8
WARM_UP_S = 1.0
AGAIN = (Error.CONCURRENT_TRANSACTIONS, Error.NOT_ENOUGH_REPLICAS, Error.COORDINATOR_NOT_AVAILABLE)
AGAIN += (Error.NOT_COORDINATOR, Error.COORDINATOR_LOAD_IN_PROGRESS)
VERSIONS = {Api.PRODUCE: 12, Api.END_TXN: 5, Api.INIT_PRODUCER_ID: 4, Api.FIND_COORDINATOR: 4}
SETTINGS = {
    "offsets.topic.replication.factor": 1,
    "transaction.state.log.replication.factor": 1,
    "transaction.state.log.min.isr": 1,
    "transaction.state.log.num.partitions": 8,
    "default.replication.factor": 1,
}


async def producer(endpoint: tuple[str, int], name: str, partition: int, ends: list[float], until: float) -> None:
    """Run one transaction after the other."""
    wire = await Wire.open(endpoint, VERSIONS)
    while True:
        found = await wire.ask(Api.FIND_COORDINATOR, fc.FindCoordinatorRequest(key_type=1, coordinator_keys=[name]))
        if found.coordinators[0].error_code is Error.NONE:
            break
        await asyncio.sleep(0.2)
    while True:
        got = await wire.ask(
            Api.INIT_PRODUCER_ID, ip.InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=60_000)
        )
        if got.error_code is Error.NONE:
            break
        assert got.error_code in AGAIN, got
        await asyncio.sleep(0.1)
    producer_id, epoch, sequence = got.producer_id, got.producer_epoch, 0
    record = [NewRecord(None, b"x" * 100)]
    while time.monotonic() < until:
        batch = build(
            record,
            timestamp_ms=int(time.time() * 1000),
            producer=(producer_id, epoch, sequence),
            attributes=TRANSACTIONAL,
        )
        data = pr.TopicProduceData(name=TOPIC, partition_data=[pr.PartitionProduceData(index=partition, records=batch)])
        body = pr.ProduceRequest(transactional_id=name, acks=-1, timeout_ms=30_000, topic_data=[data])
        while True:
            answer = await wire.ask(Api.PRODUCE, body)
            error = answer.responses[0].partition_responses[0].error_code
            if error is Error.NONE:
                break
            assert error in AGAIN, error
            await asyncio.sleep(0.002)
        end = et.EndTxnRequest(transactional_id=name, producer_id=producer_id, producer_epoch=epoch, committed=True)
        while True:
            ended = await wire.ask(Api.END_TXN, end)
            if ended.error_code is Error.NONE:
                break
            assert ended.error_code in AGAIN, ended
            await asyncio.sleep(0.002)
        sequence = 0 if ended.producer_epoch != epoch else sequence + 1
        producer_id, epoch = ended.producer_id, ended.producer_epoch
        ends.append(time.monotonic())


async def drive(endpoint: tuple[str, int], names: list[str], seconds: float) -> float:
    """Return ends a second of these producers together."""
    ends: list[float] = []
    begin = time.monotonic() + WARM_UP_S + 0.004 * len(names)
    tasks = [producer(endpoint, name, index % PARTITIONS, ends, begin + seconds) for index, name in enumerate(names)]
    await asyncio.gather(*tasks)
    return sum(begin <= end < begin + seconds for end in ends) / seconds


def measure(software: Software, options: argparse.Namespace) -> float:
    """Return transactions a second of one kind of cluster."""
    with (
        tempfile.TemporaryDirectory() as folder,
        SideBySide(software, Path(folder), brokers=1, controllers=0, settings=SETTINGS) as cluster,
    ):
        cluster.up()
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
        for future in admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)]).values():
            future.result(30)
        drivers = [
            subprocess.Popen(
                [
                    *(sys.executable, __file__, "--drive", cluster.bootstrap, str(number)),
                    *("--producers", str(options.producers // options.processes), "--seconds", str(options.seconds)),
                ],
                stdout=subprocess.PIPE,
                text=True,
            )
            for number in range(options.processes)
        ]
        return sum(float(driver.communicate()[0]) for driver in drivers)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--producers", type=int, default=200)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--only", choices=["tribunal", "kafka"])
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--drive", nargs=2, metavar=("BOOTSTRAP", "NUMBER"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.drive:
        host, port = options.drive[0].split(",")[0].rsplit(":", 1)
        names = [f"rate-{options.drive[1]}-{index}" for index in range(options.producers)]
        print(asyncio.run(drive((host, int(port)), names, options.seconds)))
        return
    rates: dict[str, float] = {}
    if options.only != "kafka":
        rates["tribunal"] = measure(Ours(), options)
    if options.only != "tribunal":
        try:
            rates["kafka"] = measure(ApacheKafka(kafka_jars()), options)
        except NoJars as problem:
            print(problem, file=sys.stderr)
    if len(rates) == 2:
        rates["ratio"] = rates["tribunal"] / rates["kafka"]
    print(json.dumps(rates) if options.json else "\n".join(f"{name:10} {rate:12,.2f}" for name, rate in rates.items()))


if __name__ == "__main__":
    main()
