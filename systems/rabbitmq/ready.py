"""Ends with 0 if a node of RabbitMQ takes clients: python ready.py HOST PORT."""

import socket
import sys

WAIT_S = 1.0


def main(host: str, port: int) -> None:
    """Begin to speak AMQP; who takes clients answers Connection.Start."""
    try:
        with socket.create_connection((host, port), WAIT_S) as there:
            there.sendall(b"AMQP\x00\x00\x09\x01")
            begun = there.recv(1)
    except OSError:
        begun = b""
    sys.exit(0 if begun == b"\x01" else 1)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
