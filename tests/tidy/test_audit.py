"""The lock file is audited where a database of weaknesses can be reached, by night."""

import json
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from tools.audit_lock import NOT_AUDITED, ROOT, Package, audit, locked

LOCK = "# a comment\naiohttp==3.1.0\n    # via x\nmsgspec[toml]==0.21.1 ; python_version > '3'\nuvloop==0.22.1 \\\n    --hash=sha256:00\n"


@contextmanager
def database(known: dict[str, list[str]], status: int = 200, answer: str | None = None) -> Iterator[str]:
    """A database on loopback that knows these weaknesses of packages by their names."""

    class Answers(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            results: list[dict[str, Any]] = [
                {"vulns": [{"id": one} for one in known[query["package"]["name"]]]}
                if query["package"]["name"] in known
                else {}
                for query in asked["queries"]
            ]
            self.send_response(status)
            self.end_headers()
            self.wfile.write((answer or json.dumps({"results": results})).encode())

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name there
            pass

    server = HTTPServer(("127.0.0.1", 0), Answers)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def audited(tmp_path: Path, address: str) -> tuple[int, str]:
    lock, out = tmp_path / "requirements.lock", StringIO()
    lock.write_text(LOCK)
    return audit(lock, address, out), out.getvalue()


def test_every_package_of_the_lock_is_asked_for() -> None:
    text = (ROOT / "requirements.lock").read_text()

    assert locked(LOCK) == [Package("aiohttp", "3.1.0"), Package("msgspec", "0.21.1"), Package("uvloop", "0.22.1")]
    assert len(locked(text)) == sum(line[:1].isalnum() for line in text.splitlines())


def test_a_weakness_that_is_known_fails_the_night(tmp_path: Path) -> None:
    with database({"aiohttp": ["GHSA-1", "GHSA-2"]}) as address:
        code, said = audited(tmp_path, address)

    assert code == 1
    assert said.splitlines()[:2] == ["aiohttp 3.1.0: GHSA-1", "aiohttp 3.1.0: GHSA-2"]


def test_none_that_is_known_is_said(tmp_path: Path) -> None:
    with database({}) as address:
        assert audited(tmp_path, address) == (0, "3 packages of requirements.lock audited, 0 weaknesses known\n")


@pytest.mark.parametrize(("status", "answer"), [(503, "{}"), (200, "no json"), (200, "{}"), (200, '{"results": 5}')])
def test_who_is_no_database_is_named_and_nothing_counts_as_audited(tmp_path: Path, status: int, answer: str) -> None:
    with database({}, status, answer) as address:
        code, said = audited(tmp_path, address)

    assert code == NOT_AUDITED
    assert said.startswith(
        f"not audited: none of 3 packages of requirements.lock was looked up, {address} cannot be asked ("
    )
    assert said.count("\n") == 1


@pytest.mark.parametrize("address", ["", "http://no-such-host.invalid"])
def test_nobody_there_is_said_and_nothing_counts_as_audited(tmp_path: Path, address: str) -> None:
    with database({}) as gone:
        pass

    code, said = audited(tmp_path, address or gone)

    assert code == NOT_AUDITED
    assert f"{address or gone} cannot be asked" in said


@pytest.mark.parametrize(
    ("known", "code"),
    [
        pytest.param({}, 0, id="nothing is known"),
        pytest.param({"msgspec": ["GHSA-1"]}, 2, id="a weakness"),
        pytest.param(None, 0, id="no database"),
    ],
)
def test_make_fails_for_a_weakness_and_goes_on_without_a_database(
    known: dict[str, list[str]] | None, code: int
) -> None:
    with database(known or {}) as address:
        ended = None if known is None else made(address)
    ended = ended or made(address)  # now nobody is there

    assert ended.returncode == code
    assert ("not audited" in ended.stdout) is (known is None)


def made(address: str) -> subprocess.CompletedProcess[str]:
    """Call `make audit`, set-up left out: it is what runs this."""
    command = ["make", "-s", "-o", ".venv/.ready", "audit", f"AUDIT=--database {address}"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)


def test_the_night_audits_the_lock() -> None:
    assert "make audit" in (ROOT / ".github/workflows/nightly.yml").read_text()
    assert "tools/audit_lock.py" in (ROOT / "Makefile").read_text()
