"""Values of control records, and small state files in the same encoding.

Leader changes, snapshot headers and footers, the voter set (KIP-595, KIP-630, KIP-853), the end of a transaction;
the quorum state file and the producer snapshot. Layouts are those of Apache Kafka's message schemas (Apache
License 2.0).
"""

from typing import Annotated, ClassVar
from uuid import UUID

import msgspec

from replog.types import ZERO_UUID
from replog.wire.layout import Layout, Wire


class ControlRecordTypeSchema(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    LAYOUT: ClassVar = Layout(key=-1, kind="data", versions="0-0", flexible="")
    type: Annotated[int, Wire("int16", "0+")] = 0


class EndTxnMarker(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    LAYOUT: ClassVar = Layout(key=-1, kind="data", versions="0-0", flexible="")
    coordinator_epoch: Annotated[int, Wire("int32", "0+")] = 0


class KRaftVersionRecord(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    LAYOUT: ClassVar = Layout(key=-1, kind="data", versions="0-0", flexible="0+")
    version: Annotated[int, Wire("int16", "0+")] = 0
    kraft_version: Annotated[int, Wire("int16", "0+")] = 0


class LeaderChangeMessageVoter(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    voter_id: Annotated[int, Wire("int32", "0+")] = 0
    voter_directory_id: Annotated[UUID, Wire("uuid", "1+")] = ZERO_UUID


class LeaderChangeMessage(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    LAYOUT: ClassVar = Layout(key=-1, kind="data", versions="0-1", flexible="0+")
    version: Annotated[int, Wire("int16", "0+")] = 0
    leader_id: Annotated[int, Wire("int32", "0+")] = 0
    voters: Annotated[list[LeaderChangeMessageVoter], Wire("[]struct", "0+")] = []
    granting_voters: Annotated[list[LeaderChangeMessageVoter], Wire("[]struct", "0+")] = []


class SnapshotFooterRecord(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    LAYOUT: ClassVar = Layout(key=-1, kind="data", versions="0-0", flexible="0+")
    version: Annotated[int, Wire("int16", "0+")] = 0


class SnapshotHeaderRecord(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    LAYOUT: ClassVar = Layout(key=-1, kind="data", versions="0-0", flexible="0+")
    version: Annotated[int, Wire("int16", "0+")] = 0
    last_contained_log_timestamp_ms: Annotated[int, Wire("int64", "0+")] = 0


class Endpoint(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    name: Annotated[str, Wire("string", "0+")] = ""
    host: Annotated[str, Wire("string", "0+")] = ""
    port: Annotated[int, Wire("uint16", "0+")] = 0


class KRaftVersionFeature(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    min_supported_version: Annotated[int, Wire("int16", "0+")] = 0
    max_supported_version: Annotated[int, Wire("int16", "0+")] = 0


class VotersRecordVoter(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    voter_id: Annotated[int, Wire("int32", "0+")] = 0
    voter_directory_id: Annotated[UUID, Wire("uuid", "0+")] = ZERO_UUID
    endpoints: Annotated[list[Endpoint], Wire("[]struct", "0+")] = []
    kraft_version_feature: Annotated[KRaftVersionFeature, Wire("struct", "0+")] = KRaftVersionFeature()


class VotersRecord(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    LAYOUT: ClassVar = Layout(key=-1, kind="data", versions="0-0", flexible="0+")
    version: Annotated[int, Wire("int16", "0+")] = 0
    voters: Annotated[list[VotersRecordVoter], Wire("[]struct", "0+")] = []
