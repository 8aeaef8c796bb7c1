"""SASL over TLS between everybody; unmodified clients with PLAIN, and SCRAM credentials that are set while the cluster runs."""

import asyncio
import ssl
from pathlib import Path
from typing import Any

import aiokafka
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)

from replog.client.connection import Connection, ConnectionLost
from replog.config import Endpoint
from replog.config.access import Access
from replog.wire.messages import describe_cluster as dc
from tests.broker.loopback import in_thread, running
from tests.security.certificates import Authority
from tests.security.test_tls_live import TOPIC, secured, write_and_read

LOGINS = (
    'org.apache.kafka.common.security.plain.PlainLoginModule required username="node" password="nodes-own" '
    'user_node="nodes-own" user_admin="admins-own";'
)
MECHANISMS = {"SCRAM-SHA-256": ScramMechanism.SCRAM_SHA_256, "SCRAM-SHA-512": ScramMechanism.SCRAM_SHA_512}


def with_sasl(authority: Authority, **settings: Any) -> dict[str, Any]:
    return secured(
        authority,
        protocol="SASL_SSL",
        ssl__client__auth="none",
        sasl__enabled__mechanisms="PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        sasl__mechanism__inter__broker__protocol="PLAIN",
        sasl__mechanism__controller__protocol="PLAIN",
        sasl__jaas__config=LOGINS,
        **settings,
    )


def login(authority: Authority, bootstrap: str, mechanism: str, user: str, password: str) -> dict[str, Any]:
    return {
        "bootstrap.servers": bootstrap,
        "security.protocol": "sasl_ssl",
        "ssl.ca.location": str(authority.trust),
        "sasl.mechanism": mechanism,
        "sasl.username": user,
        "sasl.password": password,
        "log_level": 0,
    }


def set_password(admin: AdminClient, mechanism: str, user: str, password: str) -> None:
    info = ScramCredentialInfo(MECHANISMS[mechanism], 4096)
    change = UserScramCredentialUpsertion(user, info, password.encode())
    for future in admin.alter_user_scram_credentials([change]).values():
        future.result(20)


def remove_password(admin: AdminClient, mechanism: str, user: str) -> None:
    for future in admin.alter_user_scram_credentials(
        [UserScramCredentialDeletion(user, MECHANISMS[mechanism])]
    ).values():
        future.result(20)


def described(admin: AdminClient) -> dict[str, list[tuple[str, int]]]:
    found = admin.describe_user_scram_credentials().result(20)
    return {
        user: [(one.mechanism.name, one.iterations) for one in known.scram_credential_infos]
        for user, known in found.items()
    }


def topics(settings: dict[str, Any]) -> list[str]:
    return sorted(AdminClient(settings).list_topics(timeout=5).topics)


def wait_for_errors(producer: Producer, errors: list[str]) -> None:
    for _ in range(100):
        producer.poll(0.1)
        if errors:
            return


async def written_by_aiokafka(authority: Authority, bootstrap: str, mechanism: str, user: str, password: str) -> int:
    producer = aiokafka.AIOKafkaProducer(
        bootstrap_servers=bootstrap,
        security_protocol="SASL_SSL",
        ssl_context=ssl.create_default_context(cafile=str(authority.trust)),
        sasl_mechanism=mechanism,
        sasl_plain_username=user,
        sasl_plain_password=password,
    )
    await producer.start()
    try:
        return int((await asyncio.wait_for(producer.send_and_wait(TOPIC, b"w"), 20)).offset)
    finally:
        await producer.stop()


def test_users_log_in_by_passwords_that_are_set_changed_and_removed_while_the_cluster_runs(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "pki")

    async def main() -> None:
        async with running(tmp_path, controllers=1, brokers=2, **with_sasl(authority)) as cluster:
            bootstrap = cluster.bootstrap
            as_admin = login(authority, bootstrap, "PLAIN", "admin", "admins-own")
            admin = AdminClient(as_admin)

            values = await in_thread(write_and_read, as_admin, b"v", 2)
            for mechanism in MECHANISMS:
                await in_thread(set_password, admin, mechanism, "alice", "first")
            known = await in_thread(described, admin)
            seen = [
                await in_thread(topics, login(authority, bootstrap, mechanism, "alice", "first"))
                for mechanism in MECHANISMS
            ]
            offset = await written_by_aiokafka(authority, bootstrap, "SCRAM-SHA-512", "alice", "first")
            await in_thread(set_password, admin, "SCRAM-SHA-256", "alice", "second")
            await in_thread(remove_password, admin, "SCRAM-SHA-512", "alice")
            renewed = await in_thread(topics, login(authority, bootstrap, "SCRAM-SHA-256", "alice", "second"))

            assert values == [b"v"]
            assert known == {"alice": [("SCRAM_SHA_256", 4096), ("SCRAM_SHA_512", 4096)]}
            assert all(TOPIC in names for names in (*seen, renewed))
            assert offset == 1
            for mechanism in MECHANISMS:
                access = Access(has_tls=True, mechanism=mechanism, user="alice", password="first")
                with pytest.raises(ConnectionLost, match="Authentication failed"):
                    await Connection(cluster.worlds[1], Endpoint("127.0.0.1", cluster.ports[1]), "x", access).open()

    asyncio.run(main())


def test_who_has_not_logged_in_gets_no_answer_but_the_versions(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "pki")

    async def main() -> None:
        async with running(tmp_path, controllers=1, brokers=1, **with_sasl(authority)) as cluster:
            for node in cluster.ports:
                address = Endpoint("127.0.0.1", cluster.ports[node])
                outside = Connection(cluster.worlds[node], address, "x", Access(has_tls=True))
                await outside.open()
                inside = Connection(cluster.worlds[node], address, "x", cluster.config(node).broker_access)
                await inside.open()

                assert outside.versions == inside.versions
                assert inside.is_open
                with pytest.raises(ConnectionLost):
                    await outside.send(dc.EXCHANGE, dc.DescribeClusterRequest(), timeout_ms=5000)
                inside.close()

    asyncio.run(main())


def test_a_client_with_a_wrong_password_is_answered_that_it_is_wrong(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "pki")

    async def main() -> None:
        async with running(tmp_path, controllers=1, brokers=1, **with_sasl(authority)) as cluster:
            errors: list[str] = []
            settings = login(authority, cluster.bootstrap, "PLAIN", "admin", "guess")
            settings["error_cb"] = lambda error: errors.append(error.name())
            await in_thread(wait_for_errors, Producer(settings), errors)

            assert "_AUTHENTICATION" in errors

    asyncio.run(main())
