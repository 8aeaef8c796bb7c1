"""Runs the node of a container: what its configuration says, or a cluster of one.

    python -m replog.host.container

The configuration is, as in Apache Kafka's image, a file that is mounted (`/mnt/shared/config/server.properties`), or made of
the environment: `KAFKA_ADVERTISED_LISTENERS` is `advertised.listeners`; `__` stands for `_`, `___` for `-`. Where neither says
anything it is a broker and controller of a cluster of one that clients on the same machine reach at `localhost:9092`. `CLUSTER_ID` names the cluster of
directories that are not formatted yet. Data lie in `/var/lib/replog`, unless `log.dirs` says something else.
"""

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from replog.__main__ import Exit, main
from replog.config.properties import parsed
from replog.config.setting import words
from replog.host.config_file import cluster_of_directories

MOUNTED: Final = Path("/mnt/shared/config/server.properties")
DATA: Final = "/var/lib/replog"
PREFIX: Final = "KAFKA_"
CLUSTER_ID: Final = "CLUSTER_ID"
DEFAULT_CLUSTER: Final = "replog"
# Of Apache Kafka's image, which say nothing of its configuration file.
NOT_SETTINGS: Final = frozenset({"KAFKA_HEAP_OPTS", "KAFKA_OPTS", "KAFKA_JVM_PERFORMANCE_OPTS", "KAFKA_LOG4J_OPTS"})
OF_ONE: Final[Mapping[str, str]] = {
    "node.id": "1",
    "process.roles": "broker,controller",
    "listeners": "PLAINTEXT://0.0.0.0:9092,CONTROLLER://127.0.0.1:9093",
    "advertised.listeners": "PLAINTEXT://localhost:9092",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.voters": "1@127.0.0.1:9093",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
}


def settings_of(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the settings that an environment says, by Kafka's names; those of a cluster of one where it says none."""
    given = {
        _setting(name.removeprefix(PREFIX)): value
        for name, value in sorted(environment.items())
        if name.startswith(PREFIX) and name not in NOT_SETTINGS
    }
    return {"log.dirs": DATA, **(given or OF_ONE)}


def _setting(name: str) -> str:
    """Return a setting's name as it is in a file; of underscores three, then two, then one are looked for, as by Apache Kafka's image."""
    return name.lower().replace("___", "-").replace("__", "\0").replace("_", ".").replace("\0", "_")


def as_properties(settings: Mapping[str, str]) -> str:
    """Return the text of a file; a value may hold what begins an escape, or another line."""
    lines = (f"{name}={value}".replace("\\", "\\\\").replace("\n", "\\n") for name, value in settings.items())
    return "".join(f"{line}\n" for line in lines)


def run(environment: Mapping[str, str], mounted: Path, made: Path) -> int:
    """Format what is not formatted, run the node, and return its exit code.

    mounted:  the file that is taken where it is there.
    made:     where the environment's file is written otherwise.
    """
    path = mounted
    if not mounted.is_file():
        made.parent.mkdir(parents=True, exist_ok=True)
        made.write_text(as_properties(settings_of(environment)))
        path = made
    try:
        given = parsed(path.read_text(errors="replace"))
    except (OSError, ValueError) as problem:
        print(f"replog: {path}: {problem}", file=sys.stderr)  # noqa: T201 - the container's own words
        return Exit.USAGE
    roles = words(given.get("process.roles", ""))
    command = "combined" if len(roles) > 1 else roles[0] if roles else "broker"
    formatting = ["format", "--ignore-formatted", "--config", str(path)]
    if cluster_of_directories(given) is None:
        formatting += ["--cluster-id", environment.get(CLUSTER_ID) or DEFAULT_CLUSTER]
    code = main(formatting) if roles else Exit.DONE  # brokers of ZooKeeper mode have nothing to format
    return code or main([command, "--config", str(path)])


if __name__ == "__main__":
    sys.exit(run(os.environ, MOUNTED, Path("/var/run/replog/server.properties")))
