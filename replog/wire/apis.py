"""Which APIs there are, and which versions of them each listener offers.

Only what is implemented is advertised: a client picks by this table. The numbers 1093 and 1094 are ours (SPEC D8, D9);
Kafka's clients ask for nothing that they do not know.
"""

from enum import IntEnum
from functools import cache
from importlib import import_module
from typing import Final

import msgspec

from replog.wire.layout import VersionRange, layout_of


class Api(IntEnum):
    """Every API by its key; for those of `KNOWN_APIS` the lower-case name is its module in `replog.wire.messages`."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    LEADER_AND_ISR = 4
    STOP_REPLICA = 5
    UPDATE_METADATA = 6
    CONTROLLED_SHUTDOWN = 7
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    WRITE_TXN_MARKERS = 27
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_ACLS = 29
    CREATE_ACLS = 30
    DELETE_ACLS = 31
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    ALTER_REPLICA_LOG_DIRS = 34
    DESCRIBE_LOG_DIRS = 35
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    CREATE_DELEGATION_TOKEN = 38
    RENEW_DELEGATION_TOKEN = 39
    EXPIRE_DELEGATION_TOKEN = 40
    DESCRIBE_DELEGATION_TOKEN = 41
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    DESCRIBE_CLIENT_QUOTAS = 48
    ALTER_CLIENT_QUOTAS = 49
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50
    ALTER_USER_SCRAM_CREDENTIALS = 51
    VOTE = 52
    BEGIN_QUORUM_EPOCH = 53
    END_QUORUM_EPOCH = 54
    DESCRIBE_QUORUM = 55
    ALTER_PARTITION = 56
    UPDATE_FEATURES = 57
    ENVELOPE = 58
    FETCH_SNAPSHOT = 59
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    BROKER_REGISTRATION = 62
    BROKER_HEARTBEAT = 63
    UNREGISTER_BROKER = 64
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66
    ALLOCATE_PRODUCER_IDS = 67
    CONSUMER_GROUP_HEARTBEAT = 68
    CONSUMER_GROUP_DESCRIBE = 69
    CONTROLLER_REGISTRATION = 70
    GET_TELEMETRY_SUBSCRIPTIONS = 71
    PUSH_TELEMETRY = 72
    ASSIGN_REPLICAS_TO_DIRS = 73
    LIST_CONFIG_RESOURCES = 74
    DESCRIBE_TOPIC_PARTITIONS = 75
    SHARE_GROUP_HEARTBEAT = 76
    SHARE_GROUP_DESCRIBE = 77
    SHARE_FETCH = 78
    SHARE_ACKNOWLEDGE = 79
    ADD_RAFT_VOTER = 80
    REMOVE_RAFT_VOTER = 81
    UPDATE_RAFT_VOTER = 82
    INITIALIZE_SHARE_GROUP_STATE = 83
    READ_SHARE_GROUP_STATE = 84
    WRITE_SHARE_GROUP_STATE = 85
    DELETE_SHARE_GROUP_STATE = 86
    READ_SHARE_GROUP_STATE_SUMMARY = 87
    STREAMS_GROUP_HEARTBEAT = 88
    STREAMS_GROUP_DESCRIBE = 89
    DESCRIBE_SHARE_GROUP_OFFSETS = 90
    ALTER_SHARE_GROUP_OFFSETS = 91
    DELETE_SHARE_GROUP_OFFSETS = 92
    GET_REPLICA_LOG_INFO = 1093
    ELECT_DESIGNATED_LEADERS = 1094


def _ranges(table: dict[Api, str]) -> dict[Api, VersionRange]:
    return {api: VersionRange(*map(int, text.split("-"))) for api, text in table.items()}


BROKER_APIS: Final = _ranges(
    {
        # 0-2 are refused, but librdkafka turns compression off where they are not offered (KAFKA-18659, SPEC 6.2.2).
        Api.PRODUCE: "0-13",
        Api.FETCH: "4-18",
        Api.LIST_OFFSETS: "1-11",
        Api.METADATA: "0-13",
        Api.OFFSET_COMMIT: "2-10",
        Api.OFFSET_FETCH: "1-10",
        Api.FIND_COORDINATOR: "0-6",
        Api.JOIN_GROUP: "0-9",
        Api.HEARTBEAT: "0-4",
        Api.LEAVE_GROUP: "0-5",
        Api.SYNC_GROUP: "0-5",
        Api.DESCRIBE_GROUPS: "0-6",
        Api.LIST_GROUPS: "0-5",
        Api.API_VERSIONS: "0-4",
        Api.CREATE_TOPICS: "2-7",
        Api.DELETE_TOPICS: "1-6",
        Api.DELETE_RECORDS: "0-2",
        Api.INIT_PRODUCER_ID: "0-6",
        Api.OFFSET_FOR_LEADER_EPOCH: "2-4",
        Api.ADD_PARTITIONS_TO_TXN: "0-5",
        Api.ADD_OFFSETS_TO_TXN: "0-4",
        Api.END_TXN: "0-5",
        Api.WRITE_TXN_MARKERS: "1-2",
        Api.TXN_OFFSET_COMMIT: "0-5",
        Api.DESCRIBE_CONFIGS: "1-4",
        Api.ALTER_CONFIGS: "0-2",
        Api.ALTER_REPLICA_LOG_DIRS: "1-2",
        Api.DESCRIBE_LOG_DIRS: "1-5",
        Api.CREATE_PARTITIONS: "0-3",
        Api.DELETE_GROUPS: "0-2",
        Api.ELECT_LEADERS: "0-2",
        Api.INCREMENTAL_ALTER_CONFIGS: "0-1",
        Api.ALTER_PARTITION_REASSIGNMENTS: "0-1",
        Api.LIST_PARTITION_REASSIGNMENTS: "0-0",
        Api.OFFSET_DELETE: "0-0",
        Api.DESCRIBE_CLIENT_QUOTAS: "0-1",
        Api.ALTER_CLIENT_QUOTAS: "0-1",
        Api.DESCRIBE_QUORUM: "0-2",
        Api.UPDATE_FEATURES: "0-2",
        Api.DESCRIBE_CLUSTER: "0-2",
        Api.DESCRIBE_PRODUCERS: "0-0",
        Api.UNREGISTER_BROKER: "0-0",
        Api.DESCRIBE_TRANSACTIONS: "0-0",
        Api.LIST_TRANSACTIONS: "0-2",
        Api.CONSUMER_GROUP_HEARTBEAT: "0-1",  # these two: once group.version is finalized
        Api.CONSUMER_GROUP_DESCRIBE: "0-1",
        Api.LIST_CONFIG_RESOURCES: "0-1",
        Api.DESCRIBE_TOPIC_PARTITIONS: "0-0",
        Api.ADD_RAFT_VOTER: "0-1",
        Api.REMOVE_RAFT_VOTER: "0-0",
        Api.GET_REPLICA_LOG_INFO: "0-0",
        Api.ELECT_DESIGNATED_LEADERS: "0-0",
    }
)

CONTROLLER_APIS: Final = _ranges(
    {
        Api.FETCH: "4-18",
        Api.API_VERSIONS: "0-4",
        Api.CREATE_TOPICS: "2-7",
        Api.DELETE_TOPICS: "1-6",
        Api.DESCRIBE_CONFIGS: "1-4",
        Api.ALTER_CONFIGS: "0-2",
        Api.CREATE_PARTITIONS: "0-3",
        Api.ELECT_LEADERS: "0-2",
        Api.INCREMENTAL_ALTER_CONFIGS: "0-1",
        Api.ALTER_PARTITION_REASSIGNMENTS: "0-1",
        Api.LIST_PARTITION_REASSIGNMENTS: "0-0",
        Api.DESCRIBE_CLIENT_QUOTAS: "0-1",
        Api.ALTER_CLIENT_QUOTAS: "0-1",
        Api.VOTE: "0-2",
        Api.BEGIN_QUORUM_EPOCH: "0-1",
        Api.END_QUORUM_EPOCH: "0-1",
        Api.DESCRIBE_QUORUM: "0-2",
        Api.ALTER_PARTITION: "0-3",
        Api.UPDATE_FEATURES: "0-2",
        Api.ENVELOPE: "0-0",
        Api.FETCH_SNAPSHOT: "0-1",
        Api.DESCRIBE_CLUSTER: "0-2",
        Api.BROKER_REGISTRATION: "0-4",
        Api.BROKER_HEARTBEAT: "0-2",
        Api.UNREGISTER_BROKER: "0-0",
        Api.ALLOCATE_PRODUCER_IDS: "0-0",
        Api.CONTROLLER_REGISTRATION: "0-0",
        Api.ASSIGN_REPLICAS_TO_DIRS: "0-0",
        Api.ADD_RAFT_VOTER: "0-1",
        Api.REMOVE_RAFT_VOTER: "0-0",
        Api.UPDATE_RAFT_VOTER: "0-0",
        Api.ELECT_DESIGNATED_LEADERS: "0-0",
    }
)

# What may come to a controller in an envelope: whoever is no broker asks a broker, and that passes it on (KIP-590).
FORWARDABLE: Final = frozenset(
    {
        *(Api.CREATE_TOPICS, Api.DELETE_TOPICS, Api.CREATE_PARTITIONS, Api.ELECT_LEADERS),
        *(Api.ALTER_CONFIGS, Api.INCREMENTAL_ALTER_CONFIGS, Api.UPDATE_FEATURES),
        *(Api.ALTER_PARTITION_REASSIGNMENTS, Api.LIST_PARTITION_REASSIGNMENTS),
        *(Api.CREATE_ACLS, Api.DELETE_ACLS, Api.ALTER_USER_SCRAM_CREDENTIALS, Api.ALTER_CLIENT_QUOTAS),
        *(Api.DESCRIBE_QUORUM, Api.UNREGISTER_BROKER, Api.ADD_RAFT_VOTER, Api.REMOVE_RAFT_VOTER),
        Api.ALLOCATE_PRODUCER_IDS,
    }
)

# Offered only by listeners with SASL, and by nodes that are secured: others have no use for them.
SASL_APIS: Final = _ranges({Api.SASL_HANDSHAKE: "0-1", Api.SASL_AUTHENTICATE: "0-2"})
SECURITY_APIS: Final = _ranges(
    {
        Api.DESCRIBE_ACLS: "1-3",
        Api.CREATE_ACLS: "1-3",
        Api.DELETE_ACLS: "1-3",
        Api.DESCRIBE_USER_SCRAM_CREDENTIALS: "0-0",
        Api.ALTER_USER_SCRAM_CREDENTIALS: "0-0",
    }
)

# Offered by nobody: what clients and brokers of release 4.3 would ask for where it is. Who asks all the same is refused in the words of
# a broker on which the feature of these is off, and stays connected (KIP-714, KIP-932, KIP-1071; `replog/node/net/refused.py`).
REFUSED_APIS: Final = _ranges(
    {
        Api.GET_TELEMETRY_SUBSCRIPTIONS: "0-0",
        Api.PUSH_TELEMETRY: "0-0",
        Api.SHARE_GROUP_HEARTBEAT: "1-1",
        Api.SHARE_GROUP_DESCRIBE: "1-1",
        Api.SHARE_FETCH: "1-2",
        Api.SHARE_ACKNOWLEDGE: "1-2",
        Api.INITIALIZE_SHARE_GROUP_STATE: "0-0",
        Api.READ_SHARE_GROUP_STATE: "0-0",
        Api.WRITE_SHARE_GROUP_STATE: "0-1",
        Api.DELETE_SHARE_GROUP_STATE: "0-0",
        Api.READ_SHARE_GROUP_STATE_SUMMARY: "0-1",
        Api.STREAMS_GROUP_HEARTBEAT: "0-0",
        Api.STREAMS_GROUP_DESCRIBE: "0-0",
        Api.DESCRIBE_SHARE_GROUP_OFFSETS: "0-1",
        Api.ALTER_SHARE_GROUP_OFFSETS: "0-0",
        Api.DELETE_SHARE_GROUP_OFFSETS: "0-0",
    }
)

# Offered only where this feature is finalized at 1 or above (KIP-848).
FEATURE_OF: Final = {Api.CONSUMER_GROUP_HEARTBEAT: "group.version", Api.CONSUMER_GROUP_DESCRIBE: "group.version"}

# What a broker of ZooKeeper mode offers: each may be the controller, and gets control requests (KIP-380, KIP-704).
_KRAFT_ONLY: Final = (
    *(Api.DESCRIBE_CLIENT_QUOTAS, Api.ALTER_CLIENT_QUOTAS),  # they are kept in the metadata log
    Api.DESCRIBE_QUORUM,
    Api.UPDATE_FEATURES,
    Api.UNREGISTER_BROKER,
    Api.CONSUMER_GROUP_HEARTBEAT,  # no features are finalized there
    Api.CONSUMER_GROUP_DESCRIBE,
    Api.ADD_RAFT_VOTER,
    Api.REMOVE_RAFT_VOTER,
    Api.GET_REPLICA_LOG_INFO,
    Api.ELECT_DESIGNATED_LEADERS,
)
ZOOKEEPER_BROKER_APIS: Final[dict[Api, VersionRange]] = {
    **{api: versions for api, versions in BROKER_APIS.items() if api not in _KRAFT_ONLY},
    **_ranges(
        {
            Api.LEADER_AND_ISR: "0-7",
            Api.STOP_REPLICA: "0-4",
            Api.UPDATE_METADATA: "0-8",
            Api.CONTROLLED_SHUTDOWN: "0-3",
            Api.ALTER_PARTITION: "0-1",
            Api.ALLOCATE_PRODUCER_IDS: "0-0",
        }
    ),
}
# Those that can be encoded and decoded; the others are known by name, to say who is not understood.
KNOWN_APIS: Final = frozenset(
    {*BROKER_APIS, *CONTROLLER_APIS, *ZOOKEEPER_BROKER_APIS, *SASL_APIS, *SECURITY_APIS, *REFUSED_APIS}
)


@cache
def request_type(api: Api) -> type[msgspec.Struct]:
    """Return an API's request type."""
    found: type[msgspec.Struct] = import_module(_module(api)).EXCHANGE.request
    return found


@cache
def response_type(api: Api) -> type[msgspec.Struct]:
    """Return an API's response type."""
    found: type[msgspec.Struct] = import_module(_module(api)).EXCHANGE.response
    return found


def is_flexible(api: Api, version: int) -> bool:
    """Return whether this version has compact lengths and tagged fields (KIP-482)."""
    return version in layout_of(request_type(api)).flexible


def known_versions(api: Api) -> VersionRange:
    """Return the versions that can be encoded and decoded, whether offered or not."""
    return layout_of(request_type(api)).versions


def highest_common(api: Api, offered: VersionRange | None) -> int | None:
    """Return the highest version that a peer offers and we know, if there is any."""
    if offered is None:
        return None
    known = known_versions(api)
    best = min(known.last, offered.last)
    return best if best >= max(known.first, offered.first) else None


def api_of(body: msgspec.Struct) -> Api:
    """Return the API that a request or response belongs to."""
    return Api(layout_of(type(body)).key)


def _module(api: Api) -> str:
    return f"replog.wire.messages.{api.name.lower()}"
