"""Clients in other languages, unmodified, on a secured cluster of ours: they log in by SCRAM over TLS, and do what ACLs permit them."""

import asyncio
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from confluent_kafka.admin import AclOperation, AdminClient, NewTopic, ResourceType

from tests.broker.loopback import in_thread, running
from tests.clients.test_foreign_clients import BUILDERS, HERE, RUN_S, messages
from tests.security.certificates import Authority
from tests.security.test_acls_live import binding, make, with_acls
from tests.security.test_sasl_live import login, set_password

pytestmark = [pytest.mark.e2e, pytest.mark.nightly, pytest.mark.timeout(900)]
COUNT = 12
PASSWORD = "secret"
PERMITTED = (
    binding(ResourceType.TOPIC, "own", AclOperation.READ),
    binding(ResourceType.TOPIC, "own", AclOperation.WRITE),
    binding(ResourceType.GROUP, "own-group", AclOperation.READ),
)


class Program:
    """A client's program, run by a user."""

    def __init__(self, command: list[str], bootstrap: str, trust: Path) -> None:
        self._command = command
        self._bootstrap = bootstrap
        self._trust = trust

    def run(self, what: str, topic: str, *more: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [*self._command, what, self._bootstrap, topic, str(COUNT), *more],
            env=os.environ | {"TEST_USER": "alice", "TEST_PASSWORD": PASSWORD, "TEST_TRUST": str(self._trust)},
            capture_output=True,
            text=True,
            timeout=RUN_S,
            check=False,
        )

    def said(self, what: str, topic: str, *more: str) -> dict[tuple[int, int], str]:
        done = self.run(what, topic, *more)
        assert done.returncode == 0, done.stderr[-2000:]
        return messages(done.stdout.splitlines())


def prepare(admin: AdminClient) -> None:
    for topic in ("own", "foreign"):
        admin.create_topics([NewTopic(topic, 3, 1)])[topic].result(20)
    set_password(admin, "SCRAM-SHA-512", "alice", PASSWORD)
    make(admin, *PERMITTED)


@pytest.mark.parametrize("name", ["kafkajs", "franz"])
def test_a_user_writes_and_reads_what_is_permitted_and_nothing_else(tmp_path: Path, name: str) -> None:
    folder = tmp_path / name
    shutil.copytree(HERE / name, folder)
    command = BUILDERS[name](folder)
    authority = Authority(tmp_path / "pki")
    settings = with_acls(
        authority,
        offsets__topic__replication__factor=1,
    )

    async def main() -> None:
        async with running(tmp_path / "nodes", controllers=1, brokers=1, **settings) as cluster:
            admin = AdminClient(login(authority, cluster.bootstrap, "PLAIN", "admin", "admins-own"))
            await in_thread(prepare, admin)
            program = Program(command, cluster.bootstrap, authority.trust)

            written = await in_thread(program.said, "produce", "own")
            read = await in_thread(program.said, "consume", "own", "own-group")
            foreign = await in_thread(program.run, "produce", "foreign")

            assert len(written) == COUNT
            assert read == written
            assert foreign.returncode != 0
            assert "uthoriz" in foreign.stderr, foreign.stderr[-500:]

    asyncio.run(main())
