"""KIP-966, "Metrics": names, types, values, and what resets them; and that a scraper gets them."""

import asyncio

import pytest

from replog.__main__ import ClientWorld
from replog.controller.controller import Controller
from replog.node.controller import ControllerNode
from replog.node.metrics import MetricsServer, exposition, metrics
from replog.wire.apis import Api
from tests.cases.controllers import Box
from tests.cases.partitions import partition
from tests.kips.scenes import a_cluster
from tests.scenarios.three_brokers import active, all_fall, all_return, leads, reaches, run
from tribunal.clusters.capabilities import Fate, FrameRule
from tribunal.clusters.simulated.cluster import SimulatedCluster

NAMES = {
    "kafka_controller_active_controller_count": "gauge",
    "kafka_controller_global_under_min_isr_partition_count": "gauge",
    "kafka_controller_unclean_recovery_partitions_count": "gauge",
    "kafka_controller_manual_leader_election_required_partition_count": "gauge",
    "kafka_controller_unclean_recovery_finished_count": "counter",
    "kafka_controller_electable_leaders": "gauge",
}
LOST = {"replicas": [1, 2, 3], "isr": [], "last_known": [1, 2], "leader": -1}


def values(controller: Controller) -> dict[str, int]:
    return {
        metric.name.removeprefix("kafka_controller_") + labels: value
        for metric in metrics(controller)
        for labels, value in metric.samples
    }


def test_names_and_types() -> None:
    assert {metric.name: metric.type for metric in metrics(Box().controller)} == NAMES


def test_the_text_is_prometheus() -> None:
    box = a_cluster({"replicas": [1, 2, 3], "isr": [1], "elr": [2]})

    lines = exposition(metrics(box.controller)).splitlines()

    assert "# TYPE kafka_controller_global_under_min_isr_partition_count gauge" in lines
    assert "kafka_controller_global_under_min_isr_partition_count 1" in lines
    assert 'kafka_controller_electable_leaders{topic="t",partition="0"} 2' in lines
    assert exposition(metrics(box.controller)).endswith("\n")


@pytest.mark.parametrize(
    ("strategy", "fenced", "recovering", "manual"),
    [
        pytest.param("Balanced", (), 1, 0, id="searching"),
        pytest.param("Balanced", (2,), 1, 0, id="waiting for last known members counts as a live recovery"),
        pytest.param("None", (), 0, 1, id="waiting for an operator"),
    ],
)
def test_partitions_under_recovery(strategy: str, fenced: tuple[int, ...], recovering: int, manual: int) -> None:
    box = Box(min_insync_replicas=2, unclean_recovery_manager=True, session_timeout_ms=10**9).features()
    for broker_id in (1, 2, 3):
        box.broker(broker_id, fenced=broker_id in fenced)
    box.topic(partition(LOST)).config("unclean.recovery.strategy", strategy).activate()

    found = values(box.controller)

    assert found["unclean_recovery_partitions_count"] == recovering
    assert found["manual_leader_election_required_partition_count"] == manual


def test_a_controller_that_does_not_lead_shows_no_recovery() -> None:
    box = a_cluster(LOST, unclean_recovery_manager=True)
    before = values(box.controller)

    box.controller.deactivate()

    after = values(box.controller)
    assert (before["unclean_recovery_partitions_count"], after["unclean_recovery_partitions_count"]) == (1, 0)
    assert (before["active_controller_count"], after["active_controller_count"]) == (1, 0)
    assert after["global_under_min_isr_partition_count"] == 1  # of the image, not of the term


def shown(cluster: SimulatedCluster, node: int) -> str:
    shell = cluster.nodes[node].shell
    assert isinstance(shell, ControllerNode)
    return exposition(metrics(shell.controller))


def test_a_recovery_is_seen_and_a_restart_resets_the_count() -> None:
    """ "It will be set to 0 once the controller restarts." """

    async def scenario(cluster: SimulatedCluster) -> None:
        await all_fall(cluster)
        silence = FrameRule(fate=Fate.DROPPED, api=Api.GET_REPLICA_LOG_INFO, direction="response", source=3)
        silent = cluster.add_rule(silence)
        await all_return(cluster)
        await reaches(cluster, "3 was asked in vain", lambda: silent.hit_count > 0)
        waiting = shown(cluster, cluster.state.quorum_leader)
        cluster.remove_rule(silent)
        await leads(cluster, 3)
        acting = cluster.state.quorum_leader
        done = shown(cluster, acting)
        shell = cluster.nodes[acting].shell
        assert isinstance(shell, ControllerNode)
        assert shell.quorum is not None
        shell.quorum.resign()
        await reaches(cluster, "another leads", lambda: cluster.state.quorum_leader != acting)
        await asyncio.sleep(2)
        after_a_term = shown(cluster, acting)
        await cluster.kill(acting)
        await cluster.start(acting)
        restarted = shown(cluster, acting)

        assert "unclean_recovery_partitions_count 1\n" in waiting
        assert "unclean_recovery_partitions_count 0\n" in done
        assert "unclean_recovery_finished_count 1\n" in done
        assert "unclean_recovery_finished_count 1\n" in after_a_term
        assert "unclean_recovery_finished_count 0\n" in restarted
        assert active(cluster).recovery_counts.unclean_recovery_finished == 0

    run(21, scenario, **{"unclean.recovery.manager.enabled": True})


async def scraped(request: bytes, *, half_closes: bool = False) -> bytes:
    """What a real client on loopback gets for these bytes."""
    server = MetricsServer(ClientWorld(), lambda: "x 1\n")
    port = await server.start("127.0.0.1", 0)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    if half_closes:
        writer.write_eof()
    answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    server.stop()
    return answer


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        pytest.param(b"GET / HTTP/1.0\r\nHost: x\r\n\r\n", b"200", id="root"),
        pytest.param(b"GET /metrics?x=1 HTTP/1.1\r\n\r\n", b"200", id="query"),
        pytest.param(b"GET /secrets HTTP/1.1\r\n\r\n", b"404", id="another path"),
        pytest.param(b"POST /metrics HTTP/1.1\r\n\r\n", b"405", id="another method"),
        pytest.param(b"\x00\x01\r\n\r\n", b"405", id="garbage"),
        pytest.param(b"x" * 8193, b"431", id="endless"),
    ],
)
def test_whatever_a_scraper_says_is_answered_and_closed(request_bytes: bytes, status: bytes) -> None:
    answer = asyncio.run(scraped(request_bytes))

    assert answer[9:12] == status
    assert answer.endswith(b"\r\n\r\nx 1\n" if status == b"200" else b"\r\n\r\n")


def test_who_goes_without_a_word_is_let_go() -> None:
    assert asyncio.run(scraped(b"GET / HTTP/1.0\r\n", half_closes=True)) == b""


def test_a_controller_listens_only_where_it_is_configured_to() -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        assert all(9100 in cluster.machine(node).host.listeners for node in cluster.spec.controller_ids)

    run(22, scenario, **{"tribunal.metrics.port": 9100})
