"""Exchanges pair the request and the response of one API, for all that is served."""

from importlib import import_module

import pytest

from replog.wire.apis import KNOWN_APIS, Api
from replog.wire.exchange import Exchange
from replog.wire.layout import layout_of


@pytest.mark.parametrize("api", sorted(KNOWN_APIS), ids=lambda api: api.name)
def test_an_exchange_pairs_the_types_of_its_api(api: Api):
    exchange: Exchange = import_module(f"replog.wire.messages.{api.name.lower()}").EXCHANGE
    request, response = layout_of(exchange.request), layout_of(exchange.response)

    assert exchange.api is api
    assert (request.key, request.kind) == (api, "request")
    assert (response.key, response.kind) == (api, "response")
    assert request.versions == response.versions
