"""A probe port on a host (`host_links.py`): a program by itself, with nothing but Python's own modules, that ends with the connection that asked for it.

probe_port.py ADDRESS PORT: it says `open`; to whoever connects it says as whom it knows that one, and sends back what it takes; of each piece it says
from whom, and how many bytes.
"""

import os
import socket
import sys
import threading

PIECE_BYTES = 4096


def serve(peer: socket.socket, name: str) -> None:
    """Serve one connection."""
    with peer:
        try:
            peer.sendall(f"{name}\n".encode())
            while data := peer.recv(PIECE_BYTES):
                say(f"{name} {len(data)}")
                peer.sendall(data)
        except OSError:
            pass  # it was cut


def say(line: str) -> None:
    """Say one line, whole."""
    os.write(1, f"{line}\n".encode())


def accept(server: socket.socket) -> None:
    """Serve everybody."""
    while True:
        peer, (host, port) = server.accept()
        threading.Thread(target=serve, args=(peer, f"{host}:{port}"), daemon=True).start()


def main() -> None:
    """Listen until whoever began this has gone."""
    server = socket.create_server((sys.argv[1], int(sys.argv[2])))
    threading.Thread(target=accept, args=(server,), daemon=True).start()
    say("open")
    sys.stdin.read()


if __name__ == "__main__":
    main()
