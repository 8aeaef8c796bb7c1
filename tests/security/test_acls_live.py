"""An authorizer at work: a super user makes ACLs, a user of SCRAM may do what they say, and no more (KIP-966 "ACL")."""

import asyncio
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from replog.client.connection import Connection
from replog.config import Endpoint
from replog.config.access import Access
from replog.controller.authorization import BY_NODES
from replog.errors import Error
from replog.wire.error_codes import errors_in
from replog.wire.exchange import exchange_of
from replog.wire.messages import describe_acls as da
from tests.broker.loopback import in_thread, running
from tests.controller.served_apis import ON_CONTROLLERS
from tests.security.certificates import Authority
from tests.security.test_sasl_live import login, set_password, with_sasl

STANDARD = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
ANY_ACL = AclBindingFilter(
    ResourceType.ANY, None, ResourcePatternType.ANY, None, None, AclOperation.ANY, AclPermissionType.ANY
)


def with_acls(authority: Authority, **settings: Any) -> dict[str, Any]:
    """What nodes are set to that ask ACLs; their own principal and the administrator's are super users."""
    return with_sasl(authority, authorizer__class__name=STANDARD, super__users="User:node;User:admin", **settings)


def binding(
    kind: ResourceType, name: str, operation: AclOperation, *, prefixed: bool = False, deny: bool = False
) -> AclBinding:
    pattern = ResourcePatternType.PREFIXED if prefixed else ResourcePatternType.LITERAL
    permission = AclPermissionType.DENY if deny else AclPermissionType.ALLOW
    return AclBinding(kind, name, pattern, "User:alice", "*", operation, permission)


def make(admin: AdminClient, *bindings: AclBinding) -> None:
    for future in admin.create_acls(list(bindings)).values():
        future.result(20)


def shown(admin: AdminClient) -> int:
    return len(admin.describe_acls(ANY_ACL).result(20))


def removed(admin: AdminClient) -> int:
    return sum(len(future.result(20)) for future in admin.delete_acls([ANY_ACL]).values())


def create(admin: AdminClient, *names: str) -> list[int]:
    """Create topics; return the error codes."""
    codes = []
    for future in admin.create_topics([NewTopic(name, 1, 1) for name in names]).values():
        try:
            future.result(20)
            codes.append(0)
        except KafkaException as problem:
            codes.append(problem.args[0].code())
    return codes


def write(settings: dict[str, Any], name: str) -> int:
    """Produce one record; return the error code."""
    codes: list[int] = []
    producer = Producer(settings | {"message.timeout.ms": 15_000})
    producer.produce(name, b"v", on_delivery=lambda error, _: codes.append(error.code() if error else 0))
    producer.flush(20)
    return codes[0]


def read(settings: dict[str, Any], name: str, group: str) -> bytes:
    """Read one record."""
    consumer = Consumer(settings | {"group.id": group, "enable.auto.commit": False})
    consumer.assign([TopicPartition(name, 0, 0)])
    for _ in range(100):
        message = consumer.poll(0.2)
        if message is not None:
            break
    consumer.close()
    assert message is not None
    assert message.error() is None
    return bytes(message.value())


def test_a_user_may_do_what_acls_say_and_no_more(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "pki")
    settings = with_acls(authority)

    async def main() -> None:
        async with running(tmp_path, controllers=1, brokers=2, **settings) as cluster:
            bootstrap = cluster.bootstrap
            admin = AdminClient(login(authority, bootstrap, "PLAIN", "admin", "admins-own"))
            as_alice = login(authority, bootstrap, "SCRAM-SHA-256", "alice", "secret")
            alice = AdminClient(as_alice)
            await in_thread(set_password, admin, "SCRAM-SHA-256", "alice", "secret")
            assert await in_thread(create, admin, "orders", "secrets") == [0, 0]

            before = await in_thread(lambda: sorted(alice.list_topics(timeout=10).topics))
            unwritten = await in_thread(write, as_alice, "orders")
            await in_thread(
                make,
                admin,
                binding(ResourceType.TOPIC, "or", AclOperation.ALL, prefixed=True),
                binding(ResourceType.TOPIC, "orders-denied", AclOperation.WRITE, deny=True),
                binding(ResourceType.GROUP, "g", AclOperation.READ),
            )
            count = await in_thread(shown, admin)
            after = await in_thread(lambda: sorted(alice.list_topics(timeout=10).topics))
            written = await in_thread(write, as_alice, "orders")
            values = await in_thread(read, as_alice, "orders", "g")
            hidden = await in_thread(lambda: alice.list_topics("secrets", timeout=10).topics["secrets"].error)
            made = await in_thread(create, alice, "orders-denied", "others")
            denied = await in_thread(write, as_alice, "orders-denied")
            access = Access(has_tls=True, mechanism="SCRAM-SHA-256", user="alice", password="secret")
            by_hand = Connection(cluster.worlds[1], Endpoint("127.0.0.1", cluster.ports[1]), "x", access)
            await by_hand.open()
            anything = da.DescribeAclsRequest(
                resource_type_filter=1,
                resource_name_filter=None,
                pattern_type_filter=1,
                principal_filter=None,
                host_filter=None,
                operation=1,
                permission_type=1,
            )
            refused = await by_hand.send(da.EXCHANGE, anything, timeout_ms=5000)
            by_hand.close()
            gone = await in_thread(removed, admin)

            assert before == []
            assert unwritten == denied == KafkaError.TOPIC_AUTHORIZATION_FAILED
            assert (count, gone) == (3, 3)
            assert after == ["orders"]
            assert (written, values) == (0, b"v")
            assert hidden.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
            assert made == [0, KafkaError.TOPIC_AUTHORIZATION_FAILED]
            assert (refused.error_code, refused.resources) == (Error.CLUSTER_AUTHORIZATION_FAILED, [])

    asyncio.run(main())


def test_what_nodes_ask_of_each_other_is_refused_to_users(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "pki")
    settings = with_sasl(authority, authorizer__class__name=STANDARD, super__users="User:node")
    among_nodes = [api for api, served in sorted(ON_CONTROLLERS.items()) if served.questions == BY_NODES]

    async def main() -> None:
        async with running(tmp_path, controllers=1, brokers=1, **settings) as cluster:
            access = Access(has_tls=True, mechanism="PLAIN", user="admin", password="admins-own")
            user = Connection(cluster.worlds[101], Endpoint("127.0.0.1", cluster.ports[101]), "x", access)
            await user.open()
            answers = {}
            for api in among_nodes:
                exchange = exchange_of(api)
                answer = await user.send(exchange, exchange.request(), timeout_ms=5000)
                answers[api] = list(errors_in(answer))
            user.close()

            assert len(answers) > 8
            assert all(errors == [Error.CLUSTER_AUTHORIZATION_FAILED] for errors in answers.values()), answers

    asyncio.run(main())
