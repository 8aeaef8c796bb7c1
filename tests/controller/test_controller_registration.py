"""Controllers register with whoever is active, and what they say of themselves is in the log (KIP-919, KIP-853)."""

import asyncio
from pathlib import Path
from typing import Any
from uuid import UUID

from replog.client.connection import Connection
from replog.config import Endpoint, NodeConfig
from replog.errors import Error
from replog.host.world import RealDisk, RealWorld
from replog.log.batch import ControlType, batches, records
from replog.metadata import records as r
from replog.metadata.features import KRAFT_VERSION, SUPPORTED
from replog.node.controller import ControllerNode
from replog.node.first_voters import WhoVotes, format_with_voters
from replog.wire.apis import Api, request_type
from replog.wire.codec import decode_struct
from replog.wire.error_codes import errors_in
from replog.wire.exchange import exchange_of
from replog.wire.messages import update_features as uf
from replog.wire.records.control import KRaftVersionRecord, VotersRecord
from replog.wire.records.metadata import encode_metadata_record
from tests.quorum.quorum_nodes import CLUSTER, free_ports, until
from tests.scenarios.three_brokers import reaches, run
from tribunal.clusters.simulated.cluster import SimulatedCluster

METADATA_LOG = "__cluster_metadata-0/00000000000000000000.log"


def shell_of(cluster: SimulatedCluster, node: int) -> ControllerNode:
    shell = cluster.nodes[node].shell
    assert isinstance(shell, ControllerNode)
    return shell


def registered(cluster: SimulatedCluster, witness: int) -> dict[int, Any]:
    return {
        int(node): record.incarnation_id
        for node, record in shell_of(cluster, witness).controller.image.controllers.items()
    }


def test_every_controller_registers_and_registers_again_in_its_next_incarnation() -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        ids = list(cluster.spec.controller_ids)
        leader = cluster.state.quorum_leader
        victim = next(node for node in ids if node != leader)
        await reaches(cluster, "all are registered", lambda: sorted(registered(cluster, leader)) == ids)
        before = registered(cluster, leader)

        await cluster.kill(victim)
        await cluster.start(victim)
        await reaches(cluster, "its next life is", lambda: registered(cluster, leader)[victim] != before[victim])
        await cluster.kill(leader)
        await cluster.start(leader)
        await reaches(
            cluster,
            "the former leader's next life is, with everybody",
            lambda: all(registered(cluster, node).get(leader, before[leader]) != before[leader] for node in ids),
        )

        after = registered(cluster, victim)
        other = next(node for node in ids if node not in (victim, leader))
        assert after[other] == before[other]
        registration = shell_of(cluster, victim).controller.image.controllers[leader]
        assert {one.name: one.max_supported_version for one in registration.features} == {
            name: levels.highest for name, levels in SUPPORTED.items()
        }
        assert [(one.host, one.port) for one in registration.end_points] == [
            (voter.endpoint.host, voter.endpoint.port)
            for voter in cluster.nodes[leader].config.voters
            if voter.node_id == leader
        ]

    run(919, scenario)


# --- one real controller ----------------------------------------------------------------------------------


def config(folder: Path) -> NodeConfig:
    return NodeConfig(
        {
            "process.roles": "controller",
            "node.id": 101,
            "cluster.id": CLUSTER,
            "listeners": f"127.0.0.1:{free_ports(1)[0]}",
            "controller.quorum.voters": "101@127.0.0.1:9",
            "log.dirs": str(folder),
            "controller.quorum.election.timeout.ms": 50,
        }
    )


VOTER_CHANGES = (Api.ADD_RAFT_VOTER, Api.REMOVE_RAFT_VOTER, Api.UPDATE_RAFT_VOTER)


class Started:
    """A controller that is active, and a connection to it."""

    def __init__(self, folder: Path) -> None:
        settings = config(folder)
        self.world = RealWorld(settings, level="error")
        self.node = ControllerNode(self.world, settings)
        self.connection = Connection(self.world, settings.listener, "test")

    async def __aenter__(self) -> "Started":
        await self.node.start()
        await self.connection.open()
        await until(lambda: self.node.controller.is_active and bool(self.node.controller.image.features))
        return self

    async def __aexit__(self, *_: object) -> None:
        self.connection.close()
        await self.node.stop()
        self.world.close()
        await asyncio.sleep(0.01)  # transports close in the loop's next turns

    async def refusals(self) -> dict[Api, list[Error]]:
        return {
            api: [
                error
                for error in errors_in(
                    await self.connection.send(exchange_of(api), request_type(api)(), timeout_ms=5000)
                )
                if error
            ]
            for api in VOTER_CHANGES
        }


def test_voters_stay_those_of_the_configuration_until_kraft_version_is_1(tmp_path: Path) -> None:
    """A log of a release before KIP-853; then the feature is finalized."""

    async def main() -> None:
        async with Started(tmp_path) as old:
            assert old.node.quorum is not None
            record = r.FeatureLevelRecord(name=KRAFT_VERSION, feature_level=0)
            old.node.quorum.append([encode_metadata_record(record)])
        async with Started(tmp_path) as started:
            assert not started.node.controller.image.features.get(KRAFT_VERSION)
            before = await started.refusals()
            update = uf.FeatureUpdateKey(feature=KRAFT_VERSION, max_version_level=1, upgrade_type=1)
            raised = await started.connection.send(
                exchange_of(Api.UPDATE_FEATURES), uf.UpdateFeaturesRequest(feature_updates=[update]), timeout_ms=5000
            )
            after = await started.refusals()

        assert before == {api: [Error.UNSUPPORTED_VERSION] for api in VOTER_CHANGES}
        assert raised.error_code is Error.NONE
        assert all(Error.UNSUPPORTED_VERSION not in errors for errors in after.values()), after

    asyncio.run(main())


def test_voters_that_the_log_names_can_be_changed_whatever_is_finalized(tmp_path: Path) -> None:
    """Apache Kafka's controllers finalize no kraft.version in the metadata: the log of the quorum has it."""
    settings, standalone = config(tmp_path), WhoVotes(standalone=Endpoint("127.0.0.1", 9))
    format_with_voters(RealDisk(), settings, lambda: UUID(int=1), standalone, now_ms=0, ignore_formatted=False)

    async def main() -> None:
        async with Started(tmp_path) as old:
            assert old.node.quorum is not None
            record = r.FeatureLevelRecord(name=KRAFT_VERSION, feature_level=0)
            old.node.quorum.append([encode_metadata_record(record)])
        async with Started(tmp_path) as started:
            assert not started.node.controller.image.features.get(KRAFT_VERSION)
            refusals = await started.refusals()

        assert all(errors and Error.UNSUPPORTED_VERSION not in errors for errors in refusals.values()), refusals

    asyncio.run(main())


def metadata_log_of_three() -> bytes:
    """The log of a leader that knows all voters, and so has written who they are, and of a registered controller."""
    contents: list[bytes] = []

    async def scenario(cluster: SimulatedCluster) -> None:
        node = cluster.nodes[cluster.state.quorum_leader]
        member = shell_of(cluster, node.node).quorum
        assert member is not None
        await reaches(cluster, "directories are known", lambda: member.voter_directories_known)
        await reaches(cluster, "a controller is registered", lambda: bool(registered(cluster, node.node)))
        contents.append(node.machine.disk.read_file(f"{node.config.metadata_log_dir}/{METADATA_LOG}"))

    run(853, scenario)
    return contents[0]


def test_the_voters_in_the_log_name_endpoints_and_versions() -> None:
    """Three voters: the first set in the log comes with kraft.version, as a snapshot's does."""
    content = memoryview(metadata_log_of_three())

    found = {
        int.from_bytes(record.key[2:4]): record.value or b""
        for header in batches(content, "log")
        for record in (records(content, header) if header.is_control else ())
        if record.key is not None
    }

    voters = decode_struct(VotersRecord, 0, found[ControlType.KRAFT_VOTERS]).voters
    assert decode_struct(KRaftVersionRecord, 0, found[ControlType.KRAFT_VERSION]).kraft_version == 1
    assert [voter.voter_id for voter in voters] == [101, 102, 103]
    assert all(voter.endpoints[0].name == "CONTROLLER" and voter.endpoints[0].port for voter in voters)
    assert {voter.kraft_version_feature.max_supported_version for voter in voters} == {SUPPORTED[KRAFT_VERSION].highest}
