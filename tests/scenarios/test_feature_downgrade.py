"""ELR off, down a metadata version, everything restarted on old record versions, and up again (KIP-966, SPEC 2.13)."""

import asyncio

from replog.errors import Error
from replog.metadata.image import Image
from replog.node.broker import Broker
from replog.node.controller import ControllerNode
from replog.wire.apis import Api
from replog.wire.messages import update_features as uf
from tests.scenarios.three_brokers import (
    all_return,
    ask,
    isr_is,
    partition_of,
    produce,
    reaches,
    run,
)
from tribunal.clusters.simulated.cluster import SimulatedCluster

ELR, METADATA = "eligible.leader.replicas.version", "metadata.version"
UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE = 1, 2, 3


async def update(cluster: SimulatedCluster, feature: str, level: int, upgrade_type: int) -> Error:
    key = uf.FeatureUpdateKey(feature=feature, max_version_level=level, upgrade_type=upgrade_type)
    answer = await ask(cluster, Api.UPDATE_FEATURES, uf.UpdateFeaturesRequest(feature_updates=[key]))
    return Error(answer.error_code)


def images(cluster: SimulatedCluster) -> list[Image]:
    """The images of all nodes that run."""
    found = []
    for node in cluster.spec.node_ids:
        shell = cluster.nodes[node].shell
        if cluster.alive(node) and isinstance(shell, Broker):
            found.append(shell.plane.metadata.image)
        elif cluster.alive(node) and isinstance(shell, ControllerNode):
            found.append(shell.controller.image)
    return found


async def nodes_agree(cluster: SimulatedCluster) -> None:
    """All images are the same, as records."""

    def alike() -> bool:
        first, *others = [list(image.snapshot()) for image in images(cluster)]
        return all(other == first for other in others)

    await reaches(cluster, "all images are alike", alike)


async def restart_everything(cluster: SimulatedCluster) -> None:
    running = [node for node in cluster.spec.node_ids if cluster.alive(node)]
    for node in running:
        await cluster.kill(node)
    for node in cluster.spec.controller_ids:
        await cluster.start(node)
    for node in cluster.spec.broker_ids:
        await cluster.start(node)


async def lose_1_and_2(cluster: SimulatedCluster) -> None:
    await cluster.kill(1)
    await isr_is(cluster, [2, 3])
    await cluster.kill(2)
    await isr_is(cluster, [3])


def test_down_and_up_again() -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        await produce(cluster, -1, 10)
        await lose_1_and_2(cluster)
        assert partition_of(cluster).elr == (2,)

        assert await update(cluster, METADATA, 22, UNSAFE_DOWNGRADE) is Error.INVALID_UPDATE_VERSION
        assert await update(cluster, ELR, 0, SAFE_DOWNGRADE) is Error.NONE
        assert partition_of(cluster).elr == (2,)  # ignored at once, removed with the next change
        assert await update(cluster, METADATA, 22, UNSAFE_DOWNGRADE) is Error.NONE
        assert partition_of(cluster).elr == ()
        await nodes_agree(cluster)

        await restart_everything(cluster)
        await isr_is(cluster, [1, 2, 3])
        await lose_1_and_2(cluster)
        await asyncio.sleep(2)
        assert partition_of(cluster).elr == ()
        await nodes_agree(cluster)
        await all_return(cluster, 1, 2)
        await isr_is(cluster, [1, 2, 3])
        await produce(cluster, -1, 10)

        assert await update(cluster, METADATA, 25, UPGRADE) is Error.NONE
        assert await update(cluster, ELR, 1, UPGRADE) is Error.NONE
        await restart_everything(cluster)
        await isr_is(cluster, [1, 2, 3])
        await lose_1_and_2(cluster)
        assert partition_of(cluster).elr == (2,)
        await nodes_agree(cluster)
        await all_return(cluster, 1, 2)
        await isr_is(cluster, [1, 2, 3])

    records = run(1, scenario)

    assert [records[node] for node in (1, 2, 3)] == [20, 20, 20]
