"""What ACLs allow, which of them a filter means, and that the index finds what a search of all would find."""

from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from replog.config import NodeConfig
from replog.controller.authorization import CLUSTER, SOME_TOPIC, Operation, Peer, Resource, group, topic
from replog.metadata import records as r
from replog.metadata.acl_index import AclIndex
from replog.metadata.image import Image
from replog.metadata.records import acl_record
from replog.node.api.standard_authorizer import StandardAuthorizer
from replog.security.acls import Acl, AclFilter, AclOperation, PatternType, Permission, ResourceType
from tests.config.test_configuration import BROKER

ALICE = "User:alice"
R, W, ALL, DESCRIBE, ALTER_CONFIGS = (
    *(AclOperation.READ, AclOperation.WRITE, AclOperation.ALL),
    *(AclOperation.DESCRIBE, AclOperation.ALTER_CONFIGS),
)


def acl(
    operation: AclOperation,
    name: str = "orders",
    *,
    deny: bool = False,
    prefixed: bool = False,
    principal: str = ALICE,
    host: str = "*",
    kind: ResourceType = ResourceType.TOPIC,
) -> Acl:
    return Acl(
        resource_type=kind,
        resource_name=name,
        pattern_type=PatternType.PREFIXED if prefixed else PatternType.LITERAL,
        principal=principal,
        host=host,
        operation=operation,
        permission=Permission.DENY if deny else Permission.ALLOW,
    )


def an_image(*acls: Acl) -> Image:
    image = Image()
    for number, one in enumerate(acls):
        image.replay(acl_record(UUID(int=number + 1), one), number)
    return image


def an_authorizer(image: Image, **changes: object) -> StandardAuthorizer:
    named = {name.replace("_", "."): value for name, value in changes.items()}
    return StandardAuthorizer(NodeConfig(BROKER | named).security, lambda: image)


@pytest.mark.parametrize(
    ("acls", "operation", "resource", "allowed"),
    [
        pytest.param([], Operation.READ, topic("orders"), False, id="no entry"),
        pytest.param([acl(R)], Operation.READ, topic("orders"), True, id="by name"),
        pytest.param([acl(R)], Operation.READ, topic("orders2"), False, id="another name"),
        pytest.param([acl(R)], Operation.WRITE, topic("orders"), False, id="another operation"),
        pytest.param([acl(R)], Operation.READ, group("orders"), False, id="another kind"),
        pytest.param([acl(R)], Operation.DESCRIBE, topic("orders"), True, id="read implies describe"),
        pytest.param([acl(W)], Operation.DESCRIBE, topic("orders"), True, id="write implies describe"),
        pytest.param([acl(DESCRIBE)], Operation.READ, topic("orders"), False, id="describe implies nothing"),
        pytest.param([acl(ALTER_CONFIGS)], Operation.DESCRIBE_CONFIGS, topic("orders"), True, id="configs"),
        pytest.param([acl(ALL)], Operation.DELETE, topic("orders"), True, id="all operations"),
        pytest.param([acl(R, "*")], Operation.READ, topic("orders"), True, id="all names"),
        pytest.param([acl(R, "ord", prefixed=True)], Operation.READ, topic("orders"), True, id="prefix"),
        pytest.param([acl(R, "ord")], Operation.READ, topic("orders"), False, id="no prefix"),
        pytest.param([acl(R, "*", prefixed=True)], Operation.READ, topic("orders"), False, id="a star as prefix"),
        pytest.param([acl(R, principal="User:*")], Operation.READ, topic("orders"), True, id="everybody"),
        pytest.param([acl(R, principal="User:bob")], Operation.READ, topic("orders"), False, id="somebody else"),
        pytest.param([acl(R, host="10.0.0.1")], Operation.READ, topic("orders"), True, id="the address"),
        pytest.param([acl(R, host="10.0.0.2")], Operation.READ, topic("orders"), False, id="another address"),
        pytest.param([acl(ALL), acl(R, deny=True)], Operation.READ, topic("orders"), False, id="deny first"),
        pytest.param(
            [acl(R), acl(ALL, "o", deny=True, prefixed=True)],
            Operation.READ,
            topic("orders"),
            False,
            id="deny by prefix",
        ),
        pytest.param(
            [acl(ALL), acl(R, deny=True)], Operation.DESCRIBE, topic("orders"), True, id="deny implies nothing"
        ),
        pytest.param(
            [acl(ALL), acl(R, deny=True, principal="User:bob")],
            Operation.READ,
            topic("orders"),
            True,
            id="denied to bob",
        ),
        pytest.param(
            [acl(AclOperation.CLUSTER_ACTION, CLUSTER.name, kind=ResourceType.CLUSTER)],
            Operation.CLUSTER_ACTION,
            CLUSTER,
            True,
            id="cluster",
        ),
    ],
)
def test_entries_allow_what_kafkas_do(acls: list[Acl], operation: Operation, resource: Resource, allowed: bool) -> None:
    authorizer = an_authorizer(an_image(*acls))

    assert authorizer.may(Peer(ALICE, "10.0.0.1"), operation, resource) == allowed


def test_super_users_may_everything_and_everybody_what_has_no_entry_where_it_is_so_configured() -> None:
    image = an_image(acl(ALL, deny=True, principal="User:*"), acl(R, "sec", prefixed=True, principal="User:bob"))
    authorizer = an_authorizer(image, super_users="User:root; User:CN=node,O=x", allow_everyone_if_no_acl_found=True)
    alice = Peer(ALICE, "h")

    assert authorizer.may(Peer("User:CN=node,O=x", "h"), Operation.WRITE, topic("orders"))
    assert not authorizer.may(alice, Operation.READ, topic("orders"))
    assert authorizer.may(alice, Operation.READ, topic("free"))
    assert not authorizer.may(alice, Operation.READ, topic("secret"))


def test_an_answer_is_remembered_until_the_entries_change() -> None:
    image = an_image(acl(R))
    authorizer = an_authorizer(image)
    alice = Peer(ALICE, "h")
    before = authorizer.may(alice, Operation.READ, topic("orders"))
    image.replay(acl_record(UUID(int=9), acl(R, deny=True)), 9)

    assert before
    assert not authorizer.may(alice, Operation.READ, topic("orders"))


@pytest.mark.parametrize(
    ("acls", "allowed"),
    [
        pytest.param([], False, id="no entry"),
        pytest.param([acl(W, "new-", prefixed=True)], True, id="a prefix of what is not there yet"),
        pytest.param([acl(W, "new")], True, id="a name"),
        pytest.param([acl(W, "*")], True, id="all names"),
        pytest.param([acl(R, "*")], False, id="another operation"),
        pytest.param([acl(W, kind=ResourceType.GROUP)], False, id="another kind"),
        pytest.param([acl(W, principal="User:bob")], False, id="somebody else"),
        pytest.param([acl(W, "*"), acl(W, "a", deny=True)], True, id="one name is denied"),
        pytest.param([acl(W, "a"), acl(W, "a", deny=True)], False, id="the name is denied"),
        pytest.param([acl(W, "ab"), acl(ALL, "a", deny=True, prefixed=True)], False, id="its prefix is denied"),
        pytest.param([acl(W, "a", prefixed=True), acl(W, "ab", deny=True, prefixed=True)], True, id="some are denied"),
        pytest.param([acl(W, "a", prefixed=True), acl(W, "a", deny=True)], True, id="not the prefix is denied"),
        pytest.param([acl(W, "a"), acl(W, "*", deny=True)], False, id="all are denied"),
        pytest.param([acl(W, "*"), acl(W, "*", deny=True, principal="User:*")], False, id="all are denied to all"),
    ],
)
def test_who_may_write_some_topic_may_be_idempotent(acls: list[Acl], allowed: bool) -> None:
    authorizer = an_authorizer(an_image(*acls))

    assert authorizer.may(Peer(ALICE, "h"), Operation.WRITE, SOME_TOPIC) == allowed


def test_some_topic_may_be_written_where_everybody_may_do_what_no_entry_is_of() -> None:
    alice, free = Peer(ALICE, "h"), {"allow_everyone_if_no_acl_found": True}

    assert an_authorizer(an_image(acl(W, "a", principal="User:bob")), **free).may(alice, Operation.WRITE, SOME_TOPIC)
    denied = acl(ALL, "*", deny=True)
    assert not an_authorizer(an_image(denied), **free).may(alice, Operation.WRITE, SOME_TOPIC)


class CountedName(str):
    """A name that knows how many of its beginnings were made."""

    beginnings = 0

    def __getitem__(self, part: Any) -> str:
        self.beginnings += 1
        return super().__getitem__(part)


def test_a_long_name_costs_no_more_than_there_are_prefixes() -> None:
    index = AclIndex()
    prefixes = [acl(R, name, prefixed=True) for name in ("a", "aa", "ab", "aaaa")]
    for number, one in enumerate(prefixes):
        index.put(UUID(int=number), one)
    index.put(UUID(int=3), None)
    name = CountedName("a" * 30_000)

    assert list(index.of(ResourceType.TOPIC, name)) == prefixes[:2]
    assert name.beginnings == 2


def test_names_without_end_fill_no_memory() -> None:
    authorizer = an_authorizer(an_image(acl(R, "*")))
    for length in (10, 10_000):
        assert authorizer.may(Peer(ALICE, "h"), Operation.READ, topic("a" * length))

    assert authorizer.remembered_count == 1


ENTRIES = [acl(R), acl(W, "ord", prefixed=True), acl(R, "*"), acl(R, "orders", kind=ResourceType.GROUP, deny=True)]


def a_filter(**fields: object) -> AclFilter:
    anything = {"resource_type": 1, "resource_name": None, "pattern_type": 1, "principal": None, "host": None}
    return AclFilter(**{**anything, "operation": 1, "permission": 1, **fields})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("wanted", "meant"),
    [
        pytest.param(a_filter(), [0, 1, 2, 3], id="all"),
        pytest.param(a_filter(resource_type=ResourceType.GROUP), [3], id="kind"),
        pytest.param(a_filter(resource_name="orders"), [0, 3], id="name"),
        pytest.param(a_filter(resource_name="orders", pattern_type=PatternType.MATCH), [0, 1, 2, 3], id="match"),
        pytest.param(a_filter(resource_name="ord", pattern_type=PatternType.PREFIXED), [1], id="prefix"),
        pytest.param(a_filter(operation=W), [1], id="operation"),
        pytest.param(a_filter(permission=Permission.DENY), [3], id="permission"),
        pytest.param(a_filter(principal="User:bob"), [], id="principal"),
    ],
)
def test_a_filter_means_what_kafkas_does(wanted: AclFilter, meant: list[int]) -> None:
    assert [number for number, one in enumerate(ENTRIES) if wanted.means(one)] == meant


NAMES = st.sampled_from(["a", "ab", "abc", "b", "*"])
ACLS = st.builds(acl, st.sampled_from([R, W]), NAMES, prefixed=st.booleans(), deny=st.booleans())


@settings(max_examples=60)
@given(acls=st.lists(ACLS, max_size=8, unique=True), removed=st.integers(0, 7), name=NAMES)
def test_the_index_finds_what_a_search_of_all_finds(acls: list[Acl], removed: int, name: str) -> None:
    index = AclIndex()
    for number, one in enumerate(acls):
        index.put(UUID(int=number), one)
    index.put(UUID(int=removed), None)

    left = [one for number, one in enumerate(acls) if number != removed]
    fit = a_filter(resource_type=ResourceType.TOPIC, resource_name=name, pattern_type=PatternType.MATCH)
    found = list(index.of(ResourceType.TOPIC, name))
    assert {*found} == {one for one in left if fit.means(one)}
    assert len(found) == len({*found})
    assert [index.id_of(one) is not None for one in acls] == [one in left for one in acls]


def test_a_snapshot_has_acls_and_credentials() -> None:
    image = an_image(*ENTRIES)
    image.replay(
        r.UserScramCredentialRecord(
            name="alice", mechanism=1, salt=b"s", stored_key=b"k", server_key=b"k", iterations=4096
        ),
        9,
    )
    again = Image()
    for record in image.snapshot():
        again.replay(record, 9)

    assert again.acls.by_id == image.acls.by_id
    assert again.scram_credentials == image.scram_credentials


def test_what_was_never_committed_is_taken_back() -> None:
    image = an_image(acl(R))
    image.undoable = True
    image.replay(r.RemoveAccessControlEntryRecord(id=UUID(int=1)), 1)
    image.replay(acl_record(UUID(int=2), acl(W)), 2)
    changes = image.acls.changes

    image.undo_to(0)

    assert list(image.acls.by_id.values()) == [acl(R)]
    assert image.acls.changes > changes
