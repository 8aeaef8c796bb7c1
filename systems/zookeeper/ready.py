"""Ends with 0 if a server of ZooKeeper is a leader or a follower: python ready.py HOST PORT."""

import socket
import sys

WAIT_S = 1.0


def main(host: str, port: int) -> None:
    """Ask it what it is."""
    try:
        with socket.create_connection((host, port), WAIT_S) as there:
            there.sendall(b"srvr")
            said = there.makefile("rb").read()
    except OSError:
        said = b""
    sys.exit(0 if b"Mode: " in said else 1)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
