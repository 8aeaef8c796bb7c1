"""Quotas of users and clients (KIP-546): what is set, shown and refused, whose limit holds, and how long who uses more waits."""

import pytest

from replog.broker.quotas import KEPT_MAX, SAMPLE_MS, SAMPLES, Arrivals, Rate, Usage, bytes_at_once
from replog.controller.quota_requests import ANY, DEFAULT, EXACT
from replog.errors import Error
from replog.metadata import records as r
from replog.metadata.client_quotas import (
    CONNECTION_RATE,
    CONSUMER_RATE,
    MUTATION_RATE,
    PRODUCER_RATE,
    REQUEST_PERCENTAGE,
    ClientQuotas,
    Share,
    entity_of,
)
from replog.metadata.image import Image
from replog.wire.messages import alter_client_quotas as alter
from replog.wire.messages import describe_client_quotas as describe
from tests.cases.controllers import Box

Parts = dict[str, str | None]
ALICE: Parts = {"user": "alice"}
APP: Parts = {"client-id": "app"}
DEFAULT_CLIENT: Parts = {"client-id": None}
ADDRESS: Parts = {"ip": "10.0.0.1"}
ANY_ADDRESS: Parts = {"ip": None}


def box() -> Box:
    return Box().features().broker(1).activate()


def change(
    parts: Parts | list[tuple[str, str | None]], key: str, value: float | None
) -> alter.AlterClientQuotasRequestEntryData:
    named = list(parts.items()) if isinstance(parts, dict) else parts
    entity = [alter.AlterClientQuotasRequestEntityData(entity_type=kind, entity_name=name) for kind, name in named]
    return alter.AlterClientQuotasRequestEntryData(
        entity=entity, ops=[alter.OpData(key=key, value=value or 0.0, remove=value is None)]
    )


def altered(asked: Box, *changes: alter.AlterClientQuotasRequestEntryData, validate_only: bool = False) -> list[Error]:
    answer = asked.send(alter.AlterClientQuotasRequest(entries=[*changes], validate_only=validate_only))
    return [one.error_code for one in answer.entries]


def shown(
    asked: Box, *wanted: tuple[str, int, str | None], strict: bool = False
) -> list[tuple[Parts, dict[str, float]]]:
    components = [describe.ComponentData(entity_type=kind, match_type=how, match=name) for kind, how, name in wanted]
    answer = asked.send(describe.DescribeClientQuotasRequest(components=components, strict=strict))
    assert answer.error_code is Error.NONE
    return [
        ({part.entity_type: part.entity_name for part in one.entity}, {it.key: it.value for it in one.values})
        for one in answer.entries
    ]


def test_what_is_set_is_shown_until_it_is_removed() -> None:
    asked = box()

    first = altered(asked, change(ALICE, PRODUCER_RATE, 1024), change(DEFAULT_CLIENT, CONSUMER_RATE, 2048))
    between = shown(asked)
    altered(asked, change(ALICE, PRODUCER_RATE, 4096))
    altered(asked, change(DEFAULT_CLIENT, CONSUMER_RATE, None))

    assert first == [Error.NONE, Error.NONE]
    assert between == [(DEFAULT_CLIENT, {CONSUMER_RATE: 2048.0}), (ALICE, {PRODUCER_RATE: 1024.0})]
    assert shown(asked) == [(ALICE, {PRODUCER_RATE: 4096.0})]


def test_what_is_only_validated_is_not_set() -> None:
    asked = box()

    assert altered(asked, change(ALICE, PRODUCER_RATE, 1024), validate_only=True) == [Error.NONE]
    assert altered(asked, change(ALICE, PRODUCER_RATE, -1), validate_only=True) == [Error.INVALID_REQUEST]
    assert shown(asked) == []


@pytest.mark.parametrize("refused", [
    pytest.param(change({}, PRODUCER_RATE, 1), id="no entity"),
    pytest.param(change({"group": "g"}, PRODUCER_RATE, 1), id="a type that nobody obeys"),
    pytest.param(change(ADDRESS, PRODUCER_RATE, 1), id="bytes of an address"),
    pytest.param(change(ADDRESS | ALICE, CONNECTION_RATE, 1), id="an address of a user"),
    pytest.param(change({"ip": "localhost"}, CONNECTION_RATE, 1), id="a host's name"),
    pytest.param(change({"ip": "10.0.0.256"}, CONNECTION_RATE, 1), id="no address"),
    pytest.param(change({"ip": "fe80::1%eth0"}, CONNECTION_RATE, 1), id="an address on one interface"),
    pytest.param(change(ADDRESS, CONNECTION_RATE, 0.5), id="half a connection"),
    pytest.param(change(ADDRESS, CONNECTION_RATE, 2.0**31), id="more connections than an int counts"),
    pytest.param(change(ADDRESS, CONNECTION_RATE, float("nan")), id="no number of connections"),
    pytest.param(change({"user": ""}, PRODUCER_RATE, 1), id="an empty name"),
    pytest.param(change([("user", "a"), ("user", "b")], PRODUCER_RATE, 1), id="two users"),
    pytest.param(change(ALICE, CONNECTION_RATE, 1), id="connections of a user"),
    pytest.param(change(ALICE, REQUEST_PERCENTAGE, 0.0), id="no time at all"),
    pytest.param(change(ALICE, MUTATION_RATE, -0.5), id="a rate below nothing"),
    pytest.param(change(ALICE, PRODUCER_RATE, 0.0), id="nothing at all"),
    pytest.param(change(ALICE, PRODUCER_RATE, 1.5), id="half a byte"),
    pytest.param(change(ALICE, PRODUCER_RATE, float("nan")), id="no number"),
    pytest.param(change(ALICE, PRODUCER_RATE, float("inf")), id="without end"),
])  # fmt: skip
def test_what_cannot_be_obeyed_is_refused_and_its_neighbour_is_set(
    refused: alter.AlterClientQuotasRequestEntryData,
) -> None:
    asked = box()

    assert altered(asked, refused, change(APP, PRODUCER_RATE, 1)) == [Error.INVALID_REQUEST, Error.NONE]
    assert shown(asked) == [(APP, {PRODUCER_RATE: 1.0})]


@pytest.mark.parametrize("key", [REQUEST_PERCENTAGE, MUTATION_RATE])
def test_shares_of_time_and_rates_of_mutations_may_be_fractions(key: str) -> None:
    asked = box()

    assert altered(asked, change(ALICE, key, 0.5)) == [Error.NONE]
    assert shown(asked) == [(ALICE, {key: 0.5})]


def test_limits_of_addresses_are_set_and_shown_however_the_address_is_written() -> None:
    asked = box()

    set_now = altered(asked, change(ANY_ADDRESS, CONNECTION_RATE, 10), change({"ip": "0:0::0001"}, CONNECTION_RATE, 3))

    assert set_now == [Error.NONE, Error.NONE]
    assert shown(asked, ("ip", ANY, None)) == [
        ({"ip": "::1"}, {CONNECTION_RATE: 3.0}),
        (ANY_ADDRESS, {CONNECTION_RATE: 10.0}),
    ]
    assert shown(asked, ("ip", EXACT, "0::1")) == [({"ip": "::1"}, {CONNECTION_RATE: 3.0})]
    assert altered(asked, change({"ip": "::0:1"}, CONNECTION_RATE, None)) == [Error.NONE]
    assert shown(asked) == [(ANY_ADDRESS, {CONNECTION_RATE: 10.0})]


def test_an_address_has_its_own_limit_before_the_default() -> None:
    quotas = ClientQuotas()
    assert quotas.connection_rate("10.0.0.1") is None

    quotas.put(entity_of(ANY_ADDRESS), CONNECTION_RATE, 10.0)
    quotas.put(entity_of(ADDRESS), CONNECTION_RATE, 3.0)

    assert [quotas.connection_rate(host) for host in ("10.0.0.1", "10.0.0.2")] == [3.0, 10.0]


def test_an_address_may_connect_at_its_rate_and_who_is_refused_uses_nothing_up() -> None:
    arrivals, limit = Arrivals(), 2.0

    at_once = [arrivals.admit("10.0.0.1", limit, 0) for _ in range(100)]
    later = [arrivals.admit("10.0.0.1", limit, SAMPLES * SAMPLE_MS + at) for at in range(100)]

    assert at_once == [True] * 20 + [False] * 80  # of a window of 10 s
    assert later == [True] * 20 + [False] * 80
    assert arrivals.admit("10.0.0.2", limit, 0)


def test_addresses_that_are_remembered_are_bounded() -> None:
    arrivals = Arrivals()

    for number in range(KEPT_MAX + 5):
        assert arrivals.admit(str(number), 1.0, 0)

    assert len(arrivals._rates) == KEPT_MAX


def test_who_takes_more_time_than_his_share_waits_a_second_at_most() -> None:
    usage, share = Usage(), Share("alice", "", 10.0)  # of a hundred, so 100 ms in a second

    assert usage.use_time(share, 900_000_000, 0) == 0
    assert usage.use_time(share, 150_000_000, 0) == 500  # 50 ms too much in a window of 10 s
    assert usage.use_time(share, 5_000_000_000, 0) == 1000
    assert usage.use_time(Share("bob", "", 10.0), 900_000_000, 0) == 0


@pytest.mark.parametrize("limit", [5e-324, 1e-300, 1e-9])
def test_who_is_limited_to_next_to_nothing_waits_for_as_long_as_can_be_said(limit: float) -> None:
    usage = Usage()

    assert usage.use_time(Share("alice", "", limit), 1_000_000, 0) == 1000
    assert usage.use(PRODUCER_RATE, Share("alice", "", limit), 1000, 0) == 2**31 - 1


def test_an_entity_that_is_named_twice_is_not_altered() -> None:
    asked = box()

    assert altered(asked, change(ALICE, PRODUCER_RATE, 1), change(ALICE, CONSUMER_RATE, 1)) == (
        [Error.INVALID_REQUEST] * 2
    )
    assert shown(asked) == []


@pytest.mark.parametrize(("wanted", "strict", "expected"), [
    pytest.param([], False, [APP, APP | ALICE, DEFAULT_CLIENT, ALICE], id="all"),
    pytest.param([("user", EXACT, "alice")], False, [APP | ALICE, ALICE], id="of a user"),
    pytest.param([("user", EXACT, "alice")], True, [ALICE], id="of a user and nothing else"),
    pytest.param([("client-id", DEFAULT, None)], False, [DEFAULT_CLIENT], id="the default"),
    pytest.param([("client-id", ANY, None)], True, [APP, DEFAULT_CLIENT], id="any client"),
    pytest.param([("ip", ANY, None)], False, [], id="of a type that there is not"),
])  # fmt: skip
def test_a_filter_shows_what_fits(
    wanted: list[tuple[str, int, str | None]], strict: bool, expected: list[Parts]
) -> None:
    asked = box()
    altered(asked, *(change(one, PRODUCER_RATE, 1) for one in (ALICE, APP, DEFAULT_CLIENT, APP | ALICE)))

    assert [parts for parts, _ in shown(asked, *wanted, strict=strict)] == expected


@pytest.mark.parametrize("components", [
    pytest.param([("user", EXACT, None)], id="exact without a name"),
    pytest.param([("user", DEFAULT, "alice")], id="the default with a name"),
    pytest.param([("user", 7, None)], id="an unknown match"),
    pytest.param([("", ANY, None)], id="no type"),
    pytest.param([("user", ANY, None), ("user", ANY, None)], id="a type twice"),
])  # fmt: skip
def test_a_filter_that_says_nothing_is_refused(components: list[tuple[str, int, str | None]]) -> None:
    parts = [describe.ComponentData(entity_type=kind, match_type=how, match=name) for kind, how, name in components]

    answer = box().send(describe.DescribeClientQuotasRequest(components=parts))

    assert (answer.error_code, answer.entries) == (Error.INVALID_REQUEST, None)


def test_a_snapshot_has_quotas_and_what_was_not_committed_is_taken_back() -> None:
    image, entity = Image(), entity_of(APP | ALICE)
    image.replay(r.quota_record(entity, PRODUCER_RATE, 5.0), 0)
    again = Image()
    for record in image.snapshot():
        again.replay(record, 0)
    image.undoable = True
    image.replay(r.quota_record(entity, PRODUCER_RATE, None), 1)
    without = image.client_quotas.by_entity.copy()
    image.undo_to(0)

    assert without == {}
    assert image.client_quotas.by_entity == again.client_quotas.by_entity == {entity: {PRODUCER_RATE: 5.0}}


NEAREST_FIRST: list[tuple[Parts, tuple[str, str]]] = [
    ({"user": "alice", "client-id": "app"}, ("alice", "app")),
    ({"user": "alice", "client-id": None}, ("alice", "app")),
    ({"user": "alice"}, ("alice", "")),
    ({"user": None, "client-id": "app"}, ("alice", "app")),
    ({"user": None, "client-id": None}, ("alice", "app")),
    ({"user": None}, ("alice", "")),
    ({"client-id": "app"}, ("", "app")),
    ({"client-id": None}, ("", "app")),
]


@pytest.mark.parametrize("position", range(len(NEAREST_FIRST)))
def test_the_nearest_quota_holds(position: int) -> None:
    """In Kafka's order: user and client, user, client; a name before the default."""
    quotas = ClientQuotas()
    for index, (parts, _) in enumerate(NEAREST_FIRST[position:], start=position):
        quotas.put(entity_of(parts), PRODUCER_RATE, index + 1.0)
    quotas.put(entity_of(NEAREST_FIRST[0][0]), CONSUMER_RATE, 99.0)  # another key's says nothing

    assert quotas.share_of(PRODUCER_RATE, "alice", "app") == Share(*NEAREST_FIRST[position][1], position + 1.0)


def test_others_quotas_hold_for_nobody_else() -> None:
    quotas = ClientQuotas()
    quotas.put(entity_of(ALICE), PRODUCER_RATE, 1.0)

    assert quotas.share_of(PRODUCER_RATE, "bob", "app") is None


def test_who_uses_no_more_than_his_rate_never_waits() -> None:
    rate = Rate()
    for second in range(60):
        rate.add(1000, second * SAMPLE_MS)
        assert rate.delay_ms(1000.0, second * SAMPLE_MS) <= SAMPLE_MS  # Kafka's window may be a sample short


def test_who_uses_more_waits_until_his_rate_is_his_quota() -> None:
    rate = Rate()
    rate.add(30_000, 0)

    assert rate.delay_ms(1000.0, 0) == 20_000  # 30 s worth, over a window of 10 s


def test_what_was_used_long_ago_does_not_count() -> None:
    rate = Rate()
    rate.add(1_000_000, 0)
    rate.add(1, SAMPLES * SAMPLE_MS)

    assert rate.delay_ms(1000.0, SAMPLES * SAMPLE_MS) == 0


def test_a_clock_that_goes_back_lets_nobody_wait_for_ever() -> None:
    rate = Rate()
    rate.add(10_000, 1_000_000)
    rate.add(10_000, 0)

    assert 0 <= rate.delay_ms(1000.0, 0) <= 20_000


def test_who_shares_a_quota_is_counted_together_and_others_apart() -> None:
    usage, alice, bob = Usage(), Share("alice", "", 1000.0), Share("bob", "", 1000.0)

    alone = usage.use(PRODUCER_RATE, alice, 10_000, 0)
    together = usage.use(PRODUCER_RATE, alice, 10_000, 0)

    assert (alone, together) == (0, 10_000)
    assert usage.use(PRODUCER_RATE, bob, 10_000, 0) == usage.use(CONSUMER_RATE, alice, 10_000, 0) == 0


def test_an_answer_fits_the_window() -> None:
    assert bytes_at_once(Share("", "a", 1000.0)) == 10_000
    assert bytes_at_once(Share("", "a", 2.0**62)) == 2**31 - 1
