"""Exchanges pair the request and the response that the message modules name, for all that is served."""

from replog.wire import exchanges
from replog.wire.apis import BROKER_APIS, CONTROLLER_APIS, ZOOKEEPER_BROKER_APIS, request_type, response_type
from replog.wire.exchanges import Exchange

KNOWN = [value for value in vars(exchanges).values() if isinstance(value, Exchange)]


def test_an_exchange_pairs_the_types_of_its_api():
    pairs = {one.api: (one.request, one.response) for one in KNOWN}

    assert pairs == {api: (request_type(api), response_type(api)) for api in pairs}


def test_every_served_api_has_an_exchange():
    assert {one.api for one in KNOWN} == {*BROKER_APIS, *CONTROLLER_APIS, *ZOOKEEPER_BROKER_APIS}
