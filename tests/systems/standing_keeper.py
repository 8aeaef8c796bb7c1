"""The sample's server as somebody has it: started by a shell, behind a relay of its own, hurt by a script that only a file knows."""

import os
import socket
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec

from tribunal.harness.new import made_system

HERE: Final = "127.0.0.1"
# What stands between the clients and the server: who stops it cuts the node off, while its process goes on.
RELAY: Final = """
import asyncio, sys
async def copied(reader, writer):
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    except OSError:
        pass
    writer.close()
async def serve(reader, writer):
    try:
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", int(sys.argv[2]))
    except OSError:
        return writer.close()
    await asyncio.gather(copied(reader, far_writer), copied(far_reader, writer))
async def main():
    async with await asyncio.start_server(serve, "127.0.0.1", int(sys.argv[1])) as server:
        await server.serve_forever()
asyncio.run(main())
"""
# Ready is who answers a call; an accepted connection says nothing of a process that is stopped.
READY: Final = """
import json, socket, sys
with socket.create_connection((sys.argv[1], int(sys.argv[2])), 2) as sock:
    sock.settimeout(2)
    sock.sendall(json.dumps({"id": 1, "f": "read", "key": "ready", "value": None}).encode() + bytes([10]))
    sys.exit(0 if sock.makefile("rb").readline() else 1)
"""
SCRIPT: Final = """#!/bin/sh
# node.sh ACT NODE
here=$(dirname "$0"); pid=$(cat "$here/pid" 2>/dev/null || echo 0); relay=$(cat "$here/relay-pid" 2>/dev/null || echo 0)
alive() {{ kill -0 "$pid" 2>/dev/null && ! grep -q '^State:.*Z' "/proc/$pid/status"; }}
echo "$1 $2" >> "$here/asked"
case $1 in
  start) setsid nohup {python} "$here/server.py" --host 127.0.0.1 --port {behind} --data "$here/data" > /dev/null 2>&1 < /dev/null & echo $! > "$here/pid" ;;
  relay) setsid nohup {python} "$here/relay.py" {port} {behind} > /dev/null 2>&1 < /dev/null & echo $! > "$here/relay-pid" ;;
  kill) kill -9 "$pid" ;;
  pause) kill -STOP "$pid" ;;
  resume) kill -CONT "$pid" ;;
  isolate) kill -STOP "$relay" ;;
  rejoin) kill -CONT "$relay" ;;
  alive) alive ;;
esac
"""
COMMANDS: Final = ("start", "kill", "pause", "resume", "isolate", "rejoin", "alive")
SYSTEM: Final = """
name = "keeper"
[nodes]
count = 1
existing = "nodes.toml"
ready = { command = ["{python}", "{folder}/ready.py", "{host}", "{port}"], within_ms = 15000 }
[client]
command = ["{python}", "{folder}/client.py"]
operations = ["read", "write", "cas", "add", "read-all"]
timeout_ms = 1000
[timeouts_ms]
restart = 500
"""


class Asked(msgspec.Struct):
    """What the script was asked to do, act by act."""

    folder: Path

    def acts(self) -> list[str]:
        """Return the acts that change something, in order."""
        lines = (self.folder / "asked").read_text().splitlines()
        return [act for act in (line.split()[0] for line in lines) if act not in ("alive", "relay")]


@contextmanager
def standing(folder: Path) -> Iterator[Asked]:
    """Start it; whatever is left of it is ended by its process ids."""
    made_system("keeper", folder)
    place = folder / "keeper"
    port, behind = free_ports(2)
    for name, text in (("relay.py", RELAY), ("ready.py", READY), ("system.toml", SYSTEM)):
        (place / name).write_text(text)
    (place / "data").mkdir()
    script = place / "node.sh"
    script.write_text(SCRIPT.format(python=sys.executable, port=port, behind=behind))
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    (place / "nodes.toml").write_text(nodes_toml(port))
    try:
        for act in ("start", "relay"):
            os.spawnl(os.P_WAIT, str(script), "node.sh", act, "1")
        yield Asked(place)
    finally:
        for name in ("pid", "relay-pid"):
            end(place / name)


def nodes_toml(port: int, commands: tuple[str, ...] = COMMANDS) -> str:
    """Return the file that says where the node is, and how it is hurt."""
    lines = [f'nodes = [{{ id = 1, address = "{HERE}:{port}" }}]', "[commands]"]
    return "\n".join([*lines, *(f'{name} = ["{{folder}}/node.sh", "{name}", "{{node}}"]' for name in commands), ""])


def free_ports(count: int) -> list[int]:
    """Return ports that nobody has now."""
    socks = [socket.create_server((HERE, 0)) for _ in range(count)]
    ports = [sock.getsockname()[1] for sock in socks]
    for sock in socks:
        sock.close()
    return ports


def end(file: Path) -> None:
    """Kill the process that a file names."""
    try:
        os.kill(int(file.read_text()), 9)
    except (OSError, ValueError):
        return


def process_of(file: Path) -> int:
    """Return the process that a file names, which has to exist."""
    pid = int(file.read_text())
    os.kill(pid, 0)
    return pid
