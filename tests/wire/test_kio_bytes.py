"""Every message in every version has the bytes that kio gives it, and comes back the same."""

from random import Random

import pytest

from replog.wire.apis import Api
from replog.wire.codec import decode_struct, encode_struct
from tests.wire.kio_values import DATA, all_data, all_messages, as_ours, drawn, kio_bytes, kio_data, kio_type, our_type

EXAMPLES = 6


@pytest.mark.parametrize(
    ("api", "kind", "version"),
    [pytest.param(*message, id=f"{message[0].name}-{message[1]}-v{message[2]}") for message in all_messages()],
)
def test_bytes_are_kios(api: Api, kind: str, version: int):
    theirs, ours = kio_type(api, kind, version), our_type(api, kind)
    random = Random(f"{api}/{kind}/{version}")
    for _ in range(EXAMPLES):
        message = drawn(theirs, random)
        expected = kio_bytes(message)
        same = as_ours(message, ours, version)

        assert encode_struct(same, version) == expected
        assert decode_struct(ours, version, expected) == same
        assert decode_struct(ours, version, memoryview(expected)) == same


@pytest.mark.parametrize(("name", "version"), all_data())
def test_bytes_of_records_are_kios(name: str, version: int):
    random = Random(f"{name}/{version}")
    for _ in range(EXAMPLES):
        message = drawn(kio_data(name, version), random)
        expected = kio_bytes(message)
        same = as_ours(message, DATA[name], version)

        assert encode_struct(same, version) == expected
        assert decode_struct(DATA[name], version, expected) == same
