"""When brokers count as alive, and whom the controller lets lead."""

from typing import Annotated, Literal

import msgspec

from replog.config.setting import INT_MAX, Long, kafka, ours


class ControllerConfig(msgspec.Struct, frozen=True, kw_only=True):
    """When brokers count as alive, and whom the controller lets lead."""

    session_timeout_ms: Annotated[
        int, kafka("broker.session.timeout.ms", "A broker that has sent no heartbeat for this long is fenced.")
    ] = 9000
    heartbeat_interval_ms: Annotated[
        int, kafka("broker.heartbeat.interval.ms", "How often a broker sends a heartbeat to the controller.")
    ] = 2000
    early_fencing_enable: Annotated[
        bool,
        ours(
            "broker.early.fencing.enable",
            "Whether a broker is fenced before its session is over when the connection of its heartbeats is lost and its address "
            "refuses a new one: its process has died.",
        ),
    ] = False
    controlled_shutdown_timeout_ms: Annotated[
        int,
        ours(
            "controlled.shutdown.timeout.ms",
            "How long a broker that is asked to stop waits for others to lead its partitions.",
        ),
    ] = 30000
    registration_timeout_ms: Annotated[
        int,
        kafka(
            "initial.broker.registration.timeout.ms",
            "A broker that has not registered this long after its start gives up.",
        ),
    ] = 60000
    leader_imbalance_check_interval_seconds: Annotated[
        Long,
        kafka(
            "leader.imbalance.check.interval.seconds",
            "How often partitions are checked for leaders that are not the preferred ones.",
            lowest=1,
        ),
    ] = 300
    leader_rebalance_enable: Annotated[
        bool, kafka("auto.leader.rebalance.enable", "Whether leadership is given back to preferred leaders.")
    ] = True
    unclean_election_interval_ms: Annotated[
        Long,
        kafka(
            "unclean.leader.election.interval.ms",
            "How often leaderless partitions are checked for which an unclean leader is allowed.",
            lowest=1,
        ),
    ] = 300000
    unclean_election_enable: Annotated[
        bool,
        kafka(
            "unclean.leader.election.enable",
            "Whether a replica that may lack acknowledged records may lead when no other can.",
            topic="unclean.leader.election.enable",
        ),
    ] = False
    unclean_recovery_timeout_ms: Annotated[
        Long,
        kafka(
            "unclean.recovery.timeout.ms",
            "How long the recovery manager waits for replicas to report their log ends (KIP-966).",
        ),
    ] = 300000
    unclean_recovery_strategy: Annotated[
        Literal["Aggressive", "Balanced", "None"],
        kafka(
            "unclean.recovery.strategy",
            "How far the recovery manager goes for availability when all who surely hold the data are gone (KIP-966).",
            topic="unclean.recovery.strategy",
        ),
    ] = "Balanced"
    unclean_recovery_manager_enabled: Annotated[
        bool,
        kafka(
            "unclean.recovery.manager.enabled",
            "Whether replicas are asked for their log ends before an unclean leader is chosen (KIP-966).",
        ),
    ] = False
    partition_creation_rate: Annotated[
        int,
        ours(
            "tribunal.partition.creation.rate",
            "When so many partitions were created in a second, whoever wants more is answered THROTTLING_QUOTA_EXCEEDED "
            "until that is made up for, as by Kafka's quota `controller_mutation_rate` (KIP-599).",
            lowest=1,
        ),
    ] = INT_MAX
    eligible_leader_replicas_enable: Annotated[
        bool,
        ours(
            "eligible.leader.replicas.enable",
            "Whether a new cluster keeps eligible leader replicas (KIP-966); "
            "Apache Kafka has the feature `eligible.leader.replicas.version` instead.",
        ),
    ] = True
