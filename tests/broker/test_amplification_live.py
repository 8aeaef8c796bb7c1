"""What a request names again and again adds no more to its answer than it cost to send: of every API that only reads, of brokers and controllers."""

from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import msgspec

from replog.__main__ import ClientWorld
from replog.client.client import Client
from replog.config import Endpoint
from replog.errors import Error
from replog.node.boundary import READS
from replog.types import ZERO_UUID
from replog.wire.apis import BROKER_APIS, CONTROLLER_APIS, Api, request_type
from replog.wire.codec import encode_request, encode_response
from replog.wire.layout import Field, fields_of
from replog.wire.messages import find_coordinator as fc
from replog.wire.messages import init_producer_id as ip
from replog.wire.messages import offset_commit as oc
from tests.broker.test_hostile_live import BROKER, CONTROLLER, Attack, under_attack

COUNT = 300
PARTITIONS = 40
GAIN_MAX = 30  # bytes of the answer for each further byte of the request: an error with its words for a short name
ONES: dict[str, object] = {"bool": True, "float64": 1.0, "bytes": b"", "records": None, "error": 0}
CODES = {"resource_type": 2, "key_type": 0, "resource_types": 2, "endpoint_type": 1, "current_leader_epoch": -1}
Path_ = tuple[str, ...]


class Repeating:
    """Requests in which one list has the same item many times, and every other one item."""

    def __init__(self, version: int, topic_id: UUID, repeated: Path_, count: int, *, asks_for_all: bool) -> None:
        self.version = version
        self.topic_id = topic_id
        self.repeated = repeated
        self.count = count
        self.asks_for_all = asks_for_all  # null for every other list that may be null

    def struct(self, of: type[msgspec.Struct], place: Path_ = ()) -> msgspec.Struct:
        fields = [field for field in fields_of(of, self.version) if field.tag < 0]
        return of(**{field.name: self._field(field, (*place, field.name)) for field in fields})

    def _field(self, field: Field, place: Path_) -> object:
        if not field.is_array:
            return self._value(field, place)
        is_on_the_way = self.repeated[: len(place)] == place
        if self.asks_for_all and field.nullable and not is_on_the_way:
            return None
        return [self._value(field, place)] * (self.count if place == self.repeated else 1)

    def _value(self, field: Field, place: Path_) -> object:
        if field.struct is not None:
            return None if field.nullable and not field.is_array else self.struct(field.struct, place)
        if field.kind == "string":
            return self._text(field)
        if field.kind == "uuid":
            return self.topic_id
        return ONES.get(field.kind, CODES.get(field.name, 0))

    def _text(self, field: Field) -> object:
        if "group" in field.name or field.name == "coordinator_keys":
            return "g"
        if "transactional" in field.name:
            return "x"
        return None if field.nullable and not field.is_array and self.topic_id != ZERO_UUID else "t"


def lists_of(of: type[msgspec.Struct], version: int, place: Path_ = ()) -> Iterator[Path_]:
    for field in fields_of(of, version):
        if field.is_array and field.tag < 0:
            yield (*place, field.name)
        if field.struct is not None:
            yield from lists_of(field.struct, version, (*place, field.name))


def test_what_is_named_again_and_again_adds_no_more_than_it_costs(tmp_path: Path) -> None:
    tried: set[Api] = set()
    gained: list[str] = []

    async def story(attack: Attack) -> None:
        client = Client(ClientWorld(), [Endpoint("127.0.0.1", attack.cluster.ports[BROKER])])
        await client.create_topic("t", partitions=PARTITIONS, replication_factor=1)
        await committed(attack)
        await client.close()
        topic_id = attack.broker.plane.metadata.image.topics_by_name["t"].topic_id
        for node, apis in ((BROKER, BROKER_APIS), (CONTROLLER, CONTROLLER_APIS)):
            for api in sorted(READS & apis.keys()):
                for version in sorted({apis[api].first, apis[api].last}):
                    for place in lists_of(request_type(api), version):
                        for named_by in (ZERO_UUID, topic_id):
                            for asks_for_all in (False, True):
                                sizes = []
                                for count in (1, COUNT):
                                    made = Repeating(version, named_by, place, count, asks_for_all=asks_for_all)
                                    body = made.struct(request_type(api))
                                    answer = await attack.ask(node, api, body, version)
                                    if answer is None:
                                        break
                                    sent = len(encode_request(api, version, 1, "x", body))
                                    sizes.append((sent, len(encode_response(api, version, 1, answer))))
                                if len(sizes) == 2:
                                    tried.add(api)
                                    (sent, got), (sent_again, got_again) = sizes
                                    gain = (got_again - got) / (sent_again - sent)
                                    if gain > GAIN_MAX:
                                        gained.append(f"{api.name} v{version} {'.'.join(place)}: {gain:.0f}")
        await attack.still_serves()

    under_attack(tmp_path, story, offsets__topic__replication__factor=1, offsets__topic__num__partitions=1,
                 transaction__state__log__replication__factor=1, transaction__state__log__num__partitions=1,
                 transaction__state__log__min__isr=1)  # fmt: skip
    assert gained == []
    assert tried >= {Api.METADATA, Api.OFFSET_FETCH, Api.LIST_OFFSETS, Api.DESCRIBE_GROUPS, Api.DESCRIBE_CONFIGS}


async def committed(attack: Attack) -> None:
    """Have a group with long words for each partition, and a transactional id."""
    partitions = [
        oc.OffsetCommitRequestPartition(partition_index=index, committed_offset=0, committed_metadata="w" * 1000)
        for index in range(PARTITIONS)
    ]
    body = oc.OffsetCommitRequest(
        group_id="g",
        generation_id_or_member_epoch=-1,
        topics=[oc.OffsetCommitRequestTopic(name="t", partitions=partitions)],
    )
    for kind, name in ((0, "g"), (1, "x")):  # whoever asks for a coordinator has its topic made
        wanted = fc.FindCoordinatorRequest(key_type=kind, coordinator_keys=[name])
        found = None
        while found is None or found.coordinators[0].error_code is not Error.NONE:
            found = await attack.ask(BROKER, Api.FIND_COORDINATOR, wanted, 4)
    errors = {Error.NOT_COORDINATOR}
    while errors != {Error.NONE}:
        answer = await attack.ask(BROKER, Api.OFFSET_COMMIT, body, 8)
        errors = {one.error_code for one in answer.topics[0].partitions}
    error = Error.NOT_COORDINATOR
    while error is not Error.NONE:
        wanted_id = ip.InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=60_000)
        made = await attack.ask(BROKER, Api.INIT_PRODUCER_ID, wanted_id, 4)
        error = made.error_code
