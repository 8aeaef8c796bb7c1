"""A controller that lost its disk is removed from the voters and added back, by requests to a broker (KIP-853)."""

from typing import Any
from uuid import UUID

from replog.errors import Error
from replog.node.controller import ControllerNode
from replog.types import METADATA_TOPIC
from replog.wire.apis import Api
from replog.wire.messages import add_raft_voter as add
from replog.wire.messages import describe_quorum as dq
from replog.wire.messages import remove_raft_voter as remove
from tests.scenarios.three_brokers import ask, produce, reaches, run
from tribunal.clusters.simulated.cluster import SimulatedCluster


async def voters_of(cluster: SimulatedCluster) -> dict[int, UUID]:
    partition = dq.DescribeQuorumRequestPartitionData(partition_index=0)
    topic = dq.DescribeQuorumRequestTopicData(topic_name=METADATA_TOPIC, partitions=[partition])
    answer = await ask(cluster, Api.DESCRIBE_QUORUM, dq.DescribeQuorumRequest(topics=[topic]))
    return {state.replica_id: state.replica_directory_id for state in answer.topics[0].partitions[0].current_voters}


def test_a_wiped_controller_comes_back_to_vote() -> None:
    """Whole nodes: kafka-metadata-quorum remove-controller and add-controller, asked of a broker."""

    async def scenario(cluster: SimulatedCluster) -> None:
        def member(node: int) -> Any:
            shell = cluster.nodes[node].shell
            assert isinstance(shell, ControllerNode)
            return shell.quorum

        victim = next(node for node in cluster.spec.controller_ids if node != cluster.state.quorum_leader)
        await reaches(
            cluster, "directories are known", lambda: member(cluster.state.quorum_leader).voter_directories_known
        )
        before = await voters_of(cluster)
        await cluster.kill(victim)
        await cluster.wipe(victim)
        await cluster.start(victim)
        await produce(cluster, -1, 5)
        assert not member(victim).is_voter

        removal = remove.RemoveRaftVoterRequest(
            cluster_id=cluster.cluster_id, voter_id=victim, voter_directory_id=before[victim]
        )
        removed = await ask(cluster, Api.REMOVE_RAFT_VOTER, removal)
        assert removed.error_code is Error.NONE, removed.error_message
        assert victim not in await voters_of(cluster)
        addition = add.AddRaftVoterRequest(
            cluster_id=cluster.cluster_id,
            timeout_ms=10_000,
            voter_id=victim,
            voter_directory_id=cluster.nodes[victim].directory_id,
            listeners=[add.Listener(name="CONTROLLER", host=cluster.machine(victim).host.address, port=9092)],
        )
        added = await ask(cluster, Api.ADD_RAFT_VOTER, addition)

        assert added.error_code is Error.NONE, added.error_message
        assert (await voters_of(cluster))[victim] == cluster.nodes[victim].directory_id
        await reaches(cluster, "it votes", lambda: member(victim).is_voter)
        third = next(n for n in cluster.spec.controller_ids if n not in (victim, cluster.state.quorum_leader))
        await cluster.kill(third)
        await produce(cluster, -1, 5)

    run(31, scenario)
