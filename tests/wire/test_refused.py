"""Requests that no listener offers, and what brokers of Apache Kafka 4.3.1 answer on which the features are off.

refused_by_kafka.txt has the answers that one gave to these very requests: bytes from the correlation id on, by `share.version=0` and
`streams.version=0`. Telemetry is not among them, since such a broker cannot be kept from answering it.
"""

from importlib import import_module
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from replog.node.net.refused import refusal_of
from replog.wire.apis import REFUSED_APIS, Api
from replog.wire.codec import LENGTH, encode_response

ANSWERS = [line.split() for line in (Path(__file__).parent / "refused_by_kafka.txt").read_text().splitlines()]
OF_CLIENTS = (Api.GET_TELEMETRY_SUBSCRIPTIONS, Api.PUSH_TELEMETRY)
GROUPS = ["g1", "g2"]


def a_request(api: Api) -> Any:
    module = import_module(f"replog.wire.messages.{api.name.lower()}")
    request = module.EXCHANGE.request
    if "group_ids" in request.__struct_fields__:
        return request(group_ids=GROUPS)
    if api is Api.DESCRIBE_SHARE_GROUP_OFFSETS:
        of_group = module.DescribeShareGroupOffsetsRequestGroup
        return request(groups=[of_group(group_id=group, topics=None) for group in GROUPS])
    if "STATE" in api.name:
        of_topic = next(vars(module)[name] for name in vars(module) if name.endswith(("StateData", "SummaryData")))
        partitions = [module.PartitionData(partition=0), module.PartitionData(partition=1)]
        return request(group_id="g1", topics=[of_topic(topic_id=UUID(int=5), partitions=partitions)])
    return request(group_id="g1")


@pytest.mark.parametrize(("api", "version", "answer"), [(Api[api], int(v), answer) for api, v, answer in ANSWERS],
                         ids=[f"{api} {v}" for api, v, _ in ANSWERS])  # fmt: skip
def test_it_is_refused_in_the_very_bytes_of_kafka(api: Api, version: int, answer: str):
    frame = encode_response(api, version, 7, refusal_of(api, a_request(api)))

    assert frame[LENGTH.size :].hex() == answer


def test_there_is_an_answer_of_kafkas_to_each_but_telemetry():
    refused = {(api, v) for api, versions in REFUSED_APIS.items() for v in range(versions.first, versions.last + 1)}

    assert {(Api[api], int(v)) for api, v, _ in ANSWERS} == {one for one in refused if one[0] not in OF_CLIENTS}
