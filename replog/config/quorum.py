"""How controllers elect a leader and keep the metadata log."""

from typing import Annotated

import msgspec

from replog.config.setting import Long, kafka, without_effect


class QuorumConfig(msgspec.Struct, frozen=True, kw_only=True):
    """How controllers elect a leader and keep the metadata log."""

    voters: Annotated[
        tuple[str, ...],
        kafka(
            "controller.quorum.voters",
            "The first voters, as `id@host:port`. Required where `controller.quorum.bootstrap.servers` is missing, "
            "except in ZooKeeper mode.",
        ),
    ] = ()
    bootstrap_servers: Annotated[
        tuple[str, ...],
        kafka(
            "controller.quorum.bootstrap.servers",
            "Where controllers are asked who leads, as `host:port` (KIP-853). Without `controller.quorum.voters` only "
            "the metadata log says who votes: controllers are formatted with the first voters.",
        ),
    ] = ()
    election_timeout_ms: Annotated[
        int,
        kafka(
            "controller.quorum.election.timeout.ms",
            "A candidate that has no majority after this long starts another election.",
        ),
    ] = 1000
    fetch_timeout_ms: Annotated[
        int,
        kafka(
            "controller.quorum.fetch.timeout.ms",
            "A voter that could not fetch from the leader for this long stands for election.",
        ),
    ] = 2000
    election_backoff_ms_max: Annotated[
        int, kafka("controller.quorum.election.backoff.max.ms", "The longest wait after a lost election.")
    ] = 1000
    request_timeout_ms: Annotated[
        int, kafka("controller.quorum.request.timeout.ms", "How long the answer of another voter is waited for.")
    ] = 2000
    retry_backoff_ms: Annotated[
        int, kafka("controller.quorum.retry.backoff.ms", "The wait before a failed request is repeated.")
    ] = 20
    append_linger_ms: Annotated[
        int, without_effect("controller.quorum.append.linger.ms", "The leader appends at once.")
    ] = 25
    bytes_between_snapshots_max: Annotated[
        Long,
        kafka(
            "metadata.log.max.record.bytes.between.snapshots",
            "A snapshot is taken when the metadata log has grown by this much.",
            lowest=1,
        ),
    ] = 20 * 1024 * 1024
    idle_interval_ms_max: Annotated[
        int,
        kafka(
            "metadata.max.idle.interval.ms",
            "The active controller writes a no-op record when it has written nothing for this long; 0: never.",
        ),
    ] = 500
