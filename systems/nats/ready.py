"""Ends with 0 if a NATS server says that its JetStream is in service: python ready.py HOST PORT."""

import socket
import sys

WAIT_S = 1.0


def main(host: str, port: int) -> None:
    """Ask its monitoring page."""
    try:
        with socket.create_connection((host, port), WAIT_S) as there:
            there.sendall(b"GET /healthz HTTP/1.0\r\n\r\n")
            status = there.makefile("rb").readline().split()
    except OSError:
        status = []
    sys.exit(0 if status[1:2] == [b"200"] else 1)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
