"""Finalizes a feature of a running cluster, as `kafka-features upgrade` does, over a socket of its own."""

import socket
from struct import Struct

from replog.errors import Error
from replog.wire.apis import Api
from replog.wire.codec import decode_response, encode_request
from replog.wire.exchange import exchange_of
from replog.wire.messages import update_features as uf

LENGTH = Struct(">i")
VERSION = 1


def finalize(bootstrap: str, feature: str, level: int) -> None:
    """Raise a feature's level; every broker knows it soon."""
    host, port = bootstrap.split(",")[0].rsplit(":", 1)
    key = uf.FeatureUpdateKey(feature=feature, max_version_level=level, upgrade_type=1)
    body = uf.UpdateFeaturesRequest(timeout_ms=10_000, feature_updates=[key])
    with socket.create_connection((host, int(port)), 10) as connection:
        connection.settimeout(20)
        connection.sendall(encode_request(Api.UPDATE_FEATURES, VERSION, 1, "tests", body))
        with connection.makefile("rb") as stream:
            frame = stream.read(LENGTH.unpack(stream.read(LENGTH.size))[0])
    _, answer = decode_response(exchange_of(Api.UPDATE_FEATURES), VERSION, frame)
    assert answer.error_code is Error.NONE, answer
    assert all(result.error_code is Error.NONE for result in answer.results), answer
