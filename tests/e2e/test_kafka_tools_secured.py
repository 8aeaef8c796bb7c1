"""Apache Kafka's own tools on a secured cluster of ours: kafka-configs sets passwords, kafka-acls rights, console clients log in by SCRAM over TLS."""

import asyncio
from pathlib import Path

import pytest

from tests.broker.loopback import in_thread, running
from tests.e2e.kafka_command import Tools, jars_or_skip
from tests.security.certificates import Authority
from tests.security.test_acls_live import with_acls

pytestmark = [pytest.mark.e2e, pytest.mark.nightly, pytest.mark.timeout(600)]
PACKAGE = "org.apache.kafka.common.security"
MODULES = {"PLAIN": f"{PACKAGE}.plain.PlainLoginModule", "SCRAM-SHA-512": f"{PACKAGE}.scram.ScramLoginModule"}
DENIED = "TopicAuthorizationException"


def client_file(folder: Path, authority: Authority, mechanism: str, user: str, password: str) -> str:
    """Write what Kafka's clients take for `--command-config`."""
    path = folder / f"{user}-{password}.properties"
    words = login_settings(authority, mechanism, user, password) | {
        "default.api.timeout.ms": "100000",
        "request.timeout.ms": "60000",
    }
    path.write_text("".join(f"{name}={value}\n" for name, value in words.items()))
    return str(path)


def login_settings(authority: Authority, mechanism: str, user: str, password: str) -> dict[str, str]:
    """Return how Kafka's clients log in, by their own names."""
    return {
        "security.protocol": "SASL_SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(authority.trust),
        "sasl.mechanism": mechanism,
        "sasl.jaas.config": f'{MODULES[mechanism]} required username="{user}" password="{password}";',
    }


class Story:
    """An administrator, and alice, who may do what he says."""

    def __init__(self, folder: Path, authority: Authority, tools: Tools) -> None:
        self._tools = tools
        self._admin = client_file(folder, authority, "PLAIN", "admin", "admins-own")
        self._alice = client_file(folder, authority, "SCRAM-SHA-512", "alice", "secret")
        self._impostor = client_file(folder, authority, "SCRAM-SHA-512", "alice", "guessed")

    def administer(self, tool: str, *arguments: str) -> str:
        return self._tools.ask(tool, "--command-config", self._admin, *arguments)

    def write(self, value: str) -> str:
        return self._tools.ask(
            "kafka-console-producer", "--topic", "t", "--command-config", self._alice, stdin=f"{value}\n"
        )

    def read(self, *, is_impostor: bool = False) -> str:
        who = self._impostor if is_impostor else self._alice
        few = ("--from-beginning", "--max-messages", "1", "--timeout-ms", "60000")
        # It says what it met, and ends in good order.
        return self._tools.ask("kafka-console-consumer", "--topic", "t", "--group", "g", "--command-config", who, *few)

    def run(self) -> None:
        password = "SCRAM-SHA-512=[iterations=4096,password=secret]"
        alice = ("--entity-type", "users", "--entity-name", "alice")
        self.administer("kafka-configs", "--alter", "--add-config", password, *alice)
        assert "SCRAM-SHA-512=iterations=4096" in self.administer("kafka-configs", "--describe", *alice)
        self.administer("kafka-topics", "--create", "--topic", "t", "--partitions", "1", "--replication-factor", "1")

        assert DENIED in self.write("unwritten")

        rights = ("--allow-principal", "User:alice", "--topic", "t")
        self.administer("kafka-acls", "--add", *rights, "--producer")
        self.administer("kafka-acls", "--add", *rights, "--consumer", "--group", "g")
        listed = self.administer("kafka-acls", "--list", "--topic", "t")
        assert "User:alice" in listed
        assert "operation=WRITE" in listed

        assert DENIED not in self.write("written")
        assert "written" in self.read().splitlines()
        assert "SaslAuthenticationException" in self.read(is_impostor=True)

        self.administer("kafka-acls", "--remove", "--force", "--topic", "t")
        assert DENIED in self.read()


def test_kafkas_own_tools_set_passwords_and_rights_and_obey_them(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "pki")
    settings = with_acls(authority)
    jars = jars_or_skip()

    async def main() -> None:
        async with running(tmp_path, controllers=1, brokers=1, **settings) as cluster:
            await in_thread(Story(tmp_path, authority, Tools(jars, cluster.bootstrap)).run)

    asyncio.run(main())
