"""Both systems as `bench/compare_kafka.py --tls` runs them: a client writes by TLS, followers copy by TLS."""

import datetime
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from replog.host.world import RealClock
from tests.e2e.kafka_command import jars_or_skip
from tribunal.clusters.kafka.side_by_side import ApacheKafka, Ours, SideBySide, Software
from tribunal.clusters.secured.authority import Authority

pytestmark = [pytest.mark.e2e, pytest.mark.nightly, pytest.mark.timeout(300)]


@pytest.mark.parametrize("software", [Ours, lambda: ApacheKafka(jars_or_skip(), heap="256m")], ids=["ours", "kafka"])
def test_what_is_written_by_tls_is_on_all_replicas(tmp_path: Path, software: Callable[[], Software]) -> None:
    authority = Authority(
        tmp_path / "authority", datetime.datetime.fromtimestamp(RealClock().wall_ms() / 1000, datetime.UTC)
    )
    settings = {"min.insync.replicas": 2}
    cluster = SideBySide(software(), tmp_path, brokers=2, controllers=0, settings=settings, authority=authority)
    with cluster.up():
        reach = {"bootstrap.servers": cluster.bootstrap_tls, "security.protocol": "ssl", "log_level": 0}
        trusting = {**reach, "ssl.ca.location": str(authority.trust)}
        admin = AdminClient(trusting)
        admin.create_topics([NewTopic("t", 1, 2)])["t"].result(60)
        outcomes: list[object] = []
        producer = Producer({**trusting, "acks": "all"})
        producer.produce("t", b"v", on_delivery=lambda error, _: outcomes.append(error))
        producer.flush(60)

        assert outcomes == [None]
        assert {broker.port for broker in admin.list_topics(timeout=20).brokers.values()} == {
            place.tls_endpoint[1] for place in cluster.places.values()
        }
        with pytest.raises(Exception, match=r"_TRANSPORT|timed out"):  # it does not know who signed
            AdminClient(reach).list_topics(timeout=3)
