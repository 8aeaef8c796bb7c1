"""BrokerRegistration: incarnations of brokers, and whether the last one ended cleanly (SPEC 2.2, KIP-966).

The clean-up records of an earlier incarnation come before the registration record: a controller that dies
in between leaves a broker that has to register again, never one that is trusted wrongly.
"""

from enum import Enum
from typing import Final, NamedTuple
from uuid import UUID

from replog.config.endpoints import Endpoint
from replog.controller.fencing import leaving
from replog.controller.policy import Policy
from replog.errors import Error
from replog.metadata import records as r
from replog.metadata.record_versions import METADATA_VERSION
from replog.metadata.state import Broker, BrokerEndpoint, FeatureRange
from replog.types import BrokerEpoch, NodeId
from replog.wire.messages.broker_registration import BrokerRegistrationRequest

CLEAN_SHUTDOWN_DETECTION_LEVEL: Final = 23  # metadata version 4.0-IV1: ELR records and clean-shutdown epochs


class Shutdown(Enum):
    """How the earlier incarnation of a broker ended, as far as the controller knows."""

    CLEAN = "clean"
    UNCLEAN = "unclean"


class Registration(NamedTuple):
    """Outcome: an error, or the records to write and the epoch they give."""

    error: Error
    records: list[r.MetadataRecord]
    epoch: BrokerEpoch
    shutdown: Shutdown | None  # None: the same incarnation amends its registration


def register(
    policy: Policy, request: BrokerRegistrationRequest, *, session_valid: bool, next_offset: int
) -> Registration:
    """Decide on a registration; checks in the order of SPEC 2.2.1.

    session_valid: a heartbeat of the stored registration came within the session timeout.
    next_offset:   where the first of the records will be written.
    """
    existing = policy.image.brokers.get(NodeId(request.broker_id))
    error = _refusal(policy, request, existing, session_valid=session_valid)
    if error is not Error.NONE:
        return Registration(error, [], BrokerEpoch(-1), None)
    if existing and existing.incarnation_id == request.incarnation_id:
        amended = _broker(
            request, existing, existing.epoch, fenced=existing.fenced, stopping=existing.in_controlled_shutdown
        )
        return Registration(Error.NONE, [r.registration_record(amended)], existing.epoch, None)
    shutdown = how_it_ended(policy, existing, request.previous_broker_epoch)
    records: list[r.MetadataRecord] = []
    if existing or policy.image.elr_members.count(NodeId(request.broker_id)):
        records = leaving(policy, NodeId(request.broker_id), eligible_no_more=shutdown is Shutdown.UNCLEAN)
    # SPEC 2.2.3: the epoch is the offset of the registration record, so it is unique and grows.
    offset = r.offset_in_group(
        next_offset,
        index=len(records),
        count=len(records) + 1,
        metadata_version=policy.image.metadata_version,
    )
    epoch = BrokerEpoch(offset)
    records.append(r.registration_record(_broker(request, existing, epoch, fenced=True, stopping=False)))
    return Registration(Error.NONE, records, epoch, shutdown)


def how_it_ended(policy: Policy, existing: Broker | None, previous_broker_epoch: int) -> Shutdown:
    """Compare the epoch in the clean-shutdown file with the registration's (KIP-966).

    Without a stored registration nothing equals (the file may be of another cluster), and
    before the metadata version that brought the epoch every shutdown counts as unclean.
    """
    detectable = policy.image.features.get(METADATA_VERSION, 0) >= CLEAN_SHUTDOWN_DETECTION_LEVEL
    clean = detectable and existing is not None and existing.epoch == previous_broker_epoch
    return Shutdown.CLEAN if clean else Shutdown.UNCLEAN


def _refusal(
    policy: Policy, request: BrokerRegistrationRequest, existing: Broker | None, *, session_valid: bool
) -> Error:
    if request.cluster_id != policy.settings.cluster_id:
        return Error.INCONSISTENT_CLUSTER_ID
    if existing and session_valid and existing.incarnation_id != request.incarnation_id:
        return Error.DUPLICATE_BROKER_REGISTRATION
    if request.is_migrating_zk_broker:
        return Error.BROKER_ID_NOT_REGISTERED
    if request.broker_id < 0 or not all(Endpoint(one.host, one.port).is_usable for one in request.listeners):
        return Error.INVALID_REGISTRATION  # it would be in the metadata log, and every node would try to connect to it
    if not _log_dirs_are_its_own(policy, request):
        return Error.INVALID_REGISTRATION
    return _features_refusal(policy, request)


def _log_dirs_are_its_own(policy: Policy, request: BrokerRegistrationRequest) -> bool:
    dirs = request.log_dirs
    others: set[UUID] = {
        directory
        for broker in policy.image.brokers.values()
        if broker.broker_id != request.broker_id
        for directory in broker.log_dirs
    }
    return bool(dirs) and len(set(dirs)) == len(dirs) and others.isdisjoint(dirs)


def _features_refusal(policy: Policy, request: BrokerRegistrationRequest) -> Error:
    supported = {f.name: (f.min_supported_version, f.max_supported_version) for f in request.features}
    for name, level in sorted(policy.image.features.items()):
        lowest, highest = supported.get(name, (0, 0))
        if name == METADATA_VERSION and name not in supported:
            return Error.INVALID_REGISTRATION
        if not lowest <= level <= highest:
            return Error.UNSUPPORTED_VERSION
    return Error.NONE if METADATA_VERSION in supported else Error.INVALID_REGISTRATION


def _broker(
    request: BrokerRegistrationRequest, existing: Broker | None, epoch: BrokerEpoch, *, fenced: bool, stopping: bool
) -> Broker:
    # What was cordoned stays so until its heartbeats say otherwise: the request has no room for it (KIP-1066).
    cordoned = () if existing is None else existing.cordoned_log_dirs
    return Broker(
        broker_id=NodeId(request.broker_id),
        epoch=epoch,
        incarnation_id=request.incarnation_id,
        endpoints=tuple(
            BrokerEndpoint(name=e.name, host=e.host, port=e.port, security_protocol=e.security_protocol)
            for e in request.listeners
        ),
        features={f.name: FeatureRange(f.min_supported_version, f.max_supported_version) for f in request.features},
        rack=request.rack or None,
        fenced=fenced,
        in_controlled_shutdown=stopping,
        log_dirs=tuple(request.log_dirs),
        cordoned_log_dirs=tuple(directory for directory in request.log_dirs if directory in cordoned),
    )
