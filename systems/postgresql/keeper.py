"""Decides which of two servers of PostgreSQL is the primary: python keeper.py DATA HOST PORT HOST1 HOST2.

Whoever sends a line with its number (0: a client) gets one with the primary's. The other server is promoted when nobody has listened on the primary's port
for a second: a connection that is refused says that its process is gone; one that is not answered says nothing. A primary that is being
started has asked before, and gets its time. `python keeper.py ask NUMBER HOST PORT` asks, and prints the answer.
"""

import contextlib
import socket
import sys
import time
from pathlib import Path

from client import Postgres, Refused, ask_keeper

LOOK_S = 0.1
GONE_S = 1.0
START_S = 20.0
ANSWER_S = 2.0
PROMOTE_S = 30.0


def listens(host: str, port: int) -> bool:
    """Return whether there is, or may be, somebody on this port."""
    try:
        socket.create_connection((host, port), ANSWER_S).close()
    except ConnectionRefusedError:
        return False
    except OSError:
        return True
    return True


def promoted(host: str, port: int) -> bool:
    """Promote a standby; return whether it is a primary now."""
    try:
        standby = Postgres(host, port, PROMOTE_S)
        if standby.ask("SELECT pg_is_in_recovery()") == [["t"]]:
            standby.ask("SELECT pg_promote()")
        is_primary = standby.ask("SELECT pg_is_in_recovery()") == [["f"]]
        standby.close()
    except (OSError, EOFError, Refused):
        return False
    return is_primary


class Keeper:
    """Who is the primary, also after a start of the keeper; and since when nobody has listened there."""

    def __init__(self, data: Path, port: int, hosts: tuple[str, ...]) -> None:
        self._file = data / "primary"
        self._port, self._hosts = port, hosts
        self.primary = int(self._file.read_text()) if self._file.exists() else 1
        self._there_s = time.monotonic() + START_S
        self._looked_s = 0.0

    def answer(self, number: int) -> int:
        """Return the primary; one that asks is being started."""
        if number == self.primary:
            self._there_s = time.monotonic() + START_S
        return self.primary

    def look(self) -> None:
        """Look after the primary, not more often than it is of use."""
        now_s = time.monotonic()
        if now_s - self._looked_s < LOOK_S:
            return
        self._looked_s = now_s
        if listens(self._hosts[self.primary - 1], self._port):
            self._there_s = now_s
        elif now_s - self._there_s > GONE_S:
            other = 3 - self.primary
            if promoted(self._hosts[other - 1], self._port):
                self._file.write_text(f"{other}")
                self.primary, self._there_s = other, time.monotonic()


def serve(keeper: Keeper, host: str, port: int) -> None:
    """Answer until the end."""
    with socket.create_server((host, port)) as door:
        door.settimeout(LOOK_S)
        while True:
            with contextlib.suppress(OSError, ValueError):
                caller, _ = door.accept()
                with caller, caller.makefile("rw") as stream:
                    caller.settimeout(ANSWER_S)
                    stream.write(f"{keeper.answer(int(stream.readline()))}\n")
            keeper.look()


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["ask", number, host, port]:
            try:
                sys.stdout.write(ask_keeper(int(number), host, int(port), ANSWER_S))
            except OSError:
                sys.exit(1)
        case [data, host, port, *hosts]:
            serve(Keeper(Path(data), int(port), tuple(hosts)), host, int(port))
        case _:
            sys.exit(__doc__)
