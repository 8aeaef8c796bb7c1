"""What `tribunal serve` answers where something is wrong with a run, or with the reader."""

import http.client
import socket
import struct
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tribunal.harness.cli.pages import server


@pytest.fixture
def port(tmp_path: Path) -> Iterator[int]:
    with server(tmp_path, 0) as running:
        thread = threading.Thread(target=running.serve_forever, daemon=True)
        thread.start()
        yield running.server_address[1]
        running.shutdown()
        thread.join()


@pytest.mark.parametrize(
    "verdict",
    [
        pytest.param("{", id="no JSON"),
        pytest.param('{"verdict": "MAYBE"}', id="no verdict that there is"),
    ],
)
def test_a_run_that_cannot_be_reported_is_an_answer_in_words(tmp_path, port, capfd, verdict):
    """The connection was closed without an answer, and the terminal got a traceback."""
    run = tmp_path / "run"
    (run / "recording").mkdir(parents=True)
    (run / "verdict.json").write_text(verdict)

    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    connection.request("GET", "/run/report.html")
    answer = connection.getresponse()
    content = answer.read().decode()
    connection.close()

    assert answer.status == 500
    assert "run cannot be reported" in content
    assert "Traceback" not in capfd.readouterr().err


def test_a_reader_who_goes_away_is_no_error(tmp_path, port, capfd):
    """A browser that left a page of megabytes half-way wrote a traceback on the terminal."""
    (tmp_path / "large.html").write_bytes(b" " * 50_000_000)
    with socket.create_connection(("127.0.0.1", port)) as reader:
        reader.sendall(b"GET /large.html HTTP/1.1\r\nHost: 127.0.0.1:0\r\n\r\n")
        reader.recv(1)
        reader.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # reset, not closed in order

    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    connection.request("GET", "/nothing.html")
    assert connection.getresponse().status == 404
    connection.close()
    for thread in threading.enumerate():
        if "process_request_thread" in thread.name:
            thread.join(10)
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize(
    ("host", "status"),
    [
        pytest.param("localhost", 200, id="at port 80, which a browser does not name"),
        pytest.param("localhost:8090", 200, id="at another port"),
        pytest.param("localhost.example:8090", 421, id="somebody else's name"),
    ],
)
def test_only_this_machines_own_names_are_answered(port, host, status):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    connection.request("GET", "/", headers={"Host": host})
    answer = connection.getresponse()
    answer.read()
    connection.close()

    assert answer.status == status
