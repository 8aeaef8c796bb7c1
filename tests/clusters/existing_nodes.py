"""A cluster that stands outside of the harness: its nodes are started by a shell, and only a cluster.toml knows how to hurt them."""

import os
import shlex
import signal
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tribunal.clusters.kafka.side_by_side import Ours, SideBySide, Software
from tribunal.clusters.spec import Settings

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
def standing(folder: Path, settings: Settings, software: Software | None = None) -> Iterator[SideBySide]:
    """Start three combined nodes by the script; whatever is left of them is ended by their process ids."""
    software = Ours() if software is None else software
    cluster = SideBySide(software, folder, brokers=3, controllers=0, settings=settings)
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
    cluster: SideBySide, folder: Path, settings: Mapping[str, object], *, commands: str | None = None
) -> Path:
    """Write what its user says of it; `commands`: the names of those that are given."""
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
        *(f'"{name}" = {_value(value)}' for name, value in settings.items()),
        "[commands]",
        *given,
    ]
    path = folder / "cluster.toml"
    path.write_text("\n".join(lines) + "\n")
    return path


def _text(endpoint: tuple[str, int]) -> str:
    return f"{endpoint[0]}:{endpoint[1]}"


def _value(value: object) -> str:
    return str(value).lower() if isinstance(value, (bool, int)) else f'"{value}"'
