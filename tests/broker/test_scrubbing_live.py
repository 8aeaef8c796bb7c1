"""On real files and sockets: a bit that turns over in a closed segment of a broker that runs is put back from the other one."""

import asyncio
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from replog.node.broker import Broker
from tests.broker.loopback import in_thread, running


def filled(bootstrap: str) -> None:
    """Write 40 batches of one record to a topic of two replicas."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic("t", 1, 2)])["t"].result(20)
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all"})
    for number in range(40):
        producer.produce("t", b"%040d" % number, partition=0)
        assert producer.flush(20) == 0


def test_a_flipped_bit_of_a_leader_and_of_a_follower_is_put_back(tmp_path: Path) -> None:
    async def story() -> None:
        async with running(
            tmp_path, controllers=1, brokers=2, log__segment__bytes=600, log__scrub__bytes__per__second=1_000_000
        ) as cluster:
            await in_thread(filled, cluster.bootstrap)
            for node in (1, 2):
                path = tmp_path / f"node-{node}" / "t-0" / f"{0:020d}.log"
                whole = path.read_bytes()
                with path.open("r+b") as file:
                    file.seek(70)
                    file.write(bytes([whole[70] ^ 4]))
                broker = cluster.nodes[node]
                assert isinstance(broker, Broker)
                async with asyncio.timeout(20):
                    while not broker.plane.scrubbing.repaired_count:  # noqa: ASYNC110
                        await asyncio.sleep(0.05)
                assert path.read_bytes() == whole

    asyncio.run(story())
