"""A cluster that stands outside of the harness: its nodes are started by a shell, and only a cluster.toml knows how to hurt them."""

import datetime
import logging
import os
import shlex
import signal
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from replog.host.world import RealClock
from tribunal.clusters.kafka.side_by_side import ApacheKafka, Ours, Place, SideBySide, Software
from tribunal.clusters.secured.authority import Authority
from tribunal.clusters.spec import Settings

USER: Final = "tribunal"
PASSWORD: Final = "only-a-test's"
SERVING_S: Final = 120
LOGIN: Final = "org.apache.kafka.common.security.plain.PlainLoginModule required"


class SecuredKafka(ApacheKafka):
    """Released Kafka whose clients' listeners speak SASL_SSL with PLAIN, and whose controllers' do or speak in the clear.

    login:  librdkafka's settings of who gets in.
    """

    def __init__(self, jars: Path, folder: Path, *, controllers: str) -> None:
        super().__init__(jars, "400m")
        self._controllers = controllers
        self._authority = Authority(
            folder / "certificates", datetime.datetime.fromtimestamp(RealClock().wall_ms() / 1000, datetime.UTC)
        )
        self.login: Final = {
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(self._authority.trust),
            "sasl.mechanism": "PLAIN",
            "sasl.username": USER,
            "sasl.password": PASSWORD,
        }

    def write_config(self, place: Place, settings: Settings) -> Path:
        """Write server.properties, and a certificate of the node."""
        path = super().write_config(place, settings)
        store = place.folder / "node.pem"
        self._authority.issue(f"node-{place.node}", [place.endpoint[0], place.controller_endpoint[0]], store)
        text = path.read_text().replace("PLAINTEXT://", "SASL_SSL://")
        text = text.replace("PLAINTEXT:PLAINTEXT", "SASL_SSL:SASL_SSL").replace("=PLAINTEXT\n", "=SASL_SSL\n")
        text = text.replace("CONTROLLER:PLAINTEXT", f"CONTROLLER:{self._controllers}")
        jaas = f'{LOGIN} username="{USER}" password="{PASSWORD}" user_{USER}="{PASSWORD}";'
        secured = {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": store,
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": self._authority.trust,
            "sasl.enabled.mechanisms": "PLAIN",
            "sasl.mechanism.inter.broker.protocol": "PLAIN",
            "sasl.mechanism.controller.protocol": "PLAIN",
            "listener.name.sasl_ssl.plain.sasl.jaas.config": jaas,
            "listener.name.controller.plain.sasl.jaas.config": jaas,
        }
        path.write_text(text + "".join(f"{name}={value}\n" for name, value in secured.items()))
        return path

    def sees_all(self, cluster: SideBySide) -> bool:
        """Whether every broker is seen by who logs in."""
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap, **self.login, "logger": QUIET})
        try:
            return sorted(admin.list_topics(timeout=5).brokers) == list(cluster.broker_ids)
        except KafkaException:
            return False


QUIET = logging.Logger("quiet")
QUIET.addHandler(logging.NullHandler())

# What a user may have: one script for all nodes.
SCRIPT = """#!/bin/sh
# node.sh ACT NODE [TARGET]
here=$(dirname "$0"); own=$here/$2; pid=$(cat "$own/pid" 2>/dev/null || echo 0)
alive() {{ kill -0 "$pid" 2>/dev/null && ! grep -q '^State:.*Z' "/proc/$pid/status"; }}
case $1 in
  start) setsid nohup {start} >> "$own/node.log" 2>&1 < /dev/null & echo $! > "$own/pid" ;;
  kill) kill -9 "$pid" ;;
  stop) kill "$pid"; while alive; do sleep 0.05; done ;;
  pause) kill -STOP "$pid" ;;
  resume) kill -CONT "$pid" ;;
  alive) alive ;;
  copy_logs) cp -r "$own/data/." "$3" ;;
esac
"""


@contextmanager
def standing(
    folder: Path, settings: Settings, software: Software | None = None, *, brokers: int = 3
) -> Iterator[SideBySide]:
    """Start combined nodes by the script; whatever is left of them is ended by their process ids."""
    software = Ours() if software is None else software
    cluster = SideBySide(software, folder, brokers=brokers, controllers=0, settings=settings)
    cluster.format()
    first = cluster.places[1]
    words = software.run(first, folder / "1" / "CONFIG")
    config = next(path.name for path in first.folder.iterdir() if path.suffix in (".toml", ".properties"))
    start = shlex.join(words).replace(f"{folder}/1/CONFIG", f'"$own/{config}"')
    script = folder / "node.sh"
    script.write_text(SCRIPT.format(start=start))
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    try:
        for node in cluster.places:
            os.spawnl(os.P_WAIT, str(script), "node.sh", "start", str(node))
        if isinstance(software, SecuredKafka):
            cluster.wait_until(lambda: software.sees_all(cluster), "every broker is seen", SERVING_S)
        else:
            cluster.wait_serving(cluster.broker_ids)
        yield cluster
    finally:
        for node in cluster.places:
            end(folder / str(node) / "pid")
        cluster.end()


def end(pid_file: Path) -> None:
    """End the process that a file names, if it is there."""
    try:
        os.kill(int(pid_file.read_text()), signal.SIGKILL)
    except (FileNotFoundError, ProcessLookupError, ValueError):
        return


def cluster_toml(
    cluster: SideBySide,
    folder: Path,
    settings: Mapping[str, object],
    *,
    commands: str | None = None,
    **tables: Mapping[str, object],
) -> Path:
    """Write what its user says of it; `commands`: the names of those that are given; `tables`: further ones, by name."""
    acts = ("start", "stop", "kill", "pause", "resume", "alive") if commands is None else tuple(commands.split())
    given = [f'{act} = ["{{folder}}/node.sh", "{act}", "{{node}}"]' for act in acts]
    given += ['copy_logs = ["{folder}/node.sh", "copy_logs", "{node}", "{target}"]'] if commands is None else []
    brokers = [f'{{id = {node}, address = "{_text(cluster.places[node].endpoint)}"}}' for node in cluster.broker_ids]
    controllers = [
        f'{{id = {node}, address = "{_text(cluster.places[node].controller_endpoint)}"}}' for node in cluster.broker_ids
    ]
    lines = [
        'name = "three nodes of a shell script"',
        f"brokers = [{', '.join(brokers)}]",
        f"controllers = [{', '.join(controllers)}]",
        "[settings]",
        *_lines(settings),
        "[commands]",
        *given,
        *(line for name, table in tables.items() for line in (f"[{name}]", *_lines(table))),
    ]
    path = folder / "cluster.toml"
    path.write_text("\n".join(lines) + "\n")
    return path


def _lines(table: Mapping[str, object]) -> list[str]:
    return [f'"{name}" = {_value(value)}' for name, value in table.items()]


def _text(endpoint: tuple[str, int]) -> str:
    return f"{endpoint[0]}:{endpoint[1]}"


def _value(value: object) -> str:
    return str(value).lower() if isinstance(value, (bool, int)) else f'"{value}"'
