"""The password of the load's clients: those that live get another one, those that were closed are left alone."""

import asyncio
from pathlib import Path

from tribunal.clusters.api import GroupSettings, ProducerSettings
from tribunal.clusters.clients.administration import Administration
from tribunal.clusters.clients.confluent import ConfluentClients
from tribunal.clusters.links.answers import ClientAnswers
from tribunal.clusters.secured.run_security import RunSecurity

NOWHERE = ("127.0.0.1", 1)
PRODUCER = ProducerSettings(acks=-1, idempotent=False, delivery_timeout_ms=1_000, request_timeout_ms=500)
GROUP = GroupSettings(group="g", topic="t", isolation="read_uncommitted", session_timeout_ms=6_000)


def clients_of(security: RunSecurity) -> ConfluentClients:
    answers = ClientAnswers(dict, lambda: 0.0)
    administration = Administration(dict, security.administrator)
    return ConfluentClients(
        [NOWHERE], lambda partition: None, answers, administration, list_offsets_version=7, security=security
    )


def test_every_open_client_of_the_load_gets_another_password(tmp_path: Path) -> None:
    async def main() -> None:
        security = RunSecurity(tmp_path)
        clients = clients_of(security)
        living = [
            clients.producer(PRODUCER, "p"),
            clients.consumer("c", "read_committed"),
            clients.group_consumer(GROUP, "m"),
            clients.transactional_producer("x", 10_000, "x"),
        ]

        count = security.load.change("another")
        for client in living:
            await client.close()

        assert count == len(living)
        assert security.load.settings()["sasl.password"] == "another"
        assert security.load.change("a third") == 0

    asyncio.run(main())


def test_an_administrator_keeps_a_password_of_its_own(tmp_path: Path) -> None:
    async def main() -> None:
        security = RunSecurity(tmp_path)
        admin = clients_of(security).admin("a")

        assert security.load.change("another") == 0
        assert security.administrator.access.password != security.load.password
        await admin.close()

    asyncio.run(main())
