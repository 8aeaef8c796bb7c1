"""The commands that show: report (a run's page, or the index of a folder) and serve."""

import http.server
import sys
import threading
import webbrowser
from functools import cache, partial
from http import HTTPStatus
from pathlib import Path
from typing import Annotated, Any, Final
from urllib.parse import unquote, urlsplit

import typer

from tribunal.clusters.api import ClusterError
from tribunal.harness.campaign.findings import FOLDER
from tribunal.harness.cli.usage import must_hold_run
from tribunal.harness.terminal import as_json, echo
from tribunal.results.recording import DamagedRecording
from tribunal.results.unreadable import UNREADABLE

SCRIPTS: Final = ("report.js", "index.js")
PAGE_OF_ROWS: Final = "operations.html"
ROWS: Final = (PAGE_OF_ROWS, "row.json")
SHOWN: Final = {".html": "text/html; charset=utf-8", ".json": "application/json", ".xml": "application/xml",
                ".md": "text/plain; charset=utf-8", ".log": "text/plain; charset=utf-8", ".jsonl": "text/plain; charset=utf-8"}  # fmt: skip


def report(
    run: Annotated[Path, typer.Argument(help="Folder of a run, or a folder of runs.")],
    json: Annotated[bool, typer.Option("--json", help="Print the result as JSON on stdout.")] = False,
    figures: Annotated[
        bool, typer.Option("--figures", help="Also each drawing as SVG, and as PNG where Chromium is installed.")
    ] = False,
    window: Annotated[
        str, typer.Option(help="A:B in seconds: the timeline of this stretch only, in full, in a file of its own.")
    ] = "",
) -> None:
    """Write a run's report.html; for a folder of runs, its index.html, with the report of each run that has none."""
    of_many = _holds_runs(run)
    if window and (of_many or figures):
        what = "--figures draws the whole run" if figures else f"{run} is a folder of runs; name one of them"
        raise typer.BadParameter(f"--window: {what}")
    if figures and of_many:
        raise typer.BadParameter(f"--figures: {run} is a folder of runs; name one of them")
    path = _index(run) if of_many else _one(run, window)
    drawn: list[str] = []

    def show(line: str) -> None:
        if not json:
            echo(line)

    show(str(path))
    if figures:
        from tribunal.results.report.figures import write_figures

        for one in write_figures(run):
            drawn.append(str(one))
            show(str(one))
    if json:
        echo(as_json({"report": str(path), **({"figures": drawn} if figures else {})}))


def serve(
    folder: Annotated[Path, typer.Argument(help="Folder of runs.", exists=True, file_okay=False)] = Path("runs"),
    port: Annotated[int, typer.Option(min=0, max=65_535, help="0: any that is free.")] = 8_090,
    browser: Annotated[bool, typer.Option(help="Open a browser.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print the address as JSON on stdout.")] = False,
) -> None:
    """Show a folder of runs on this machine's loopback address, always as it is now."""
    with server(folder, port) as serving:
        address = f"http://127.0.0.1:{serving.server_address[1]}/"
        echo(as_json({"address": address}) if json else f"{address}   (Ctrl+C ends it)")
        sys.stdout.flush()
        if browser:
            threading.Timer(0.3, webbrowser.open, (address,)).start()
        serving.serve_forever()


def server(folder: Path, port: int) -> http.server.ThreadingHTTPServer:
    """Return a server of a folder on loopback; `ClusterError` when the port is taken."""
    try:
        return _Loopback(("127.0.0.1", port), partial(_Pages, folder.resolve()))
    except OSError as problem:
        raise ClusterError(f"port {port} of 127.0.0.1: {problem.strerror}; give another --port, or 0") from None


class _Loopback(http.server.ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = False

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of a reader who has gone away before the answer was there: it is no error of ours."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class _Pages(http.server.BaseHTTPRequestHandler):
    """Answers GET: the index at /, files of known kinds below the folder, the rows of a run's recording, nothing else."""

    server_version = "tribunal"
    sys_version = ""

    def __init__(self, folder: Path, *args: Any) -> None:
        self._folder = folder
        super().__init__(*args)

    def do_GET(self) -> None:
        """Answer."""
        # Another name for this address in the Host header is a page of somebody else's that reaches in.
        if self.headers.get("Host", "").partition(":")[0] not in ("127.0.0.1", "localhost"):  # (port 80 is not named)
            self._refuse(HTTPStatus.MISDIRECTED_REQUEST)
            return
        asked = urlsplit(self.path)
        place = unquote(asked.path).lstrip("/")
        if place in ("", "index.html"):
            from tribunal.results.report.index import index, render

            self._send(render(index(self._folder, FOLDER if FOLDER.is_dir() else None)).encode(), ".html")
            return
        if "\0" in place:
            self._refuse(HTTPStatus.NOT_FOUND)
            return
        path = (self._folder / place).resolve()
        if not path.is_relative_to(self._folder) or path.suffix not in SHOWN:
            self._refuse(HTTPStatus.NOT_FOUND)
        elif path.name == "report.html" and not path.is_file() and (path.parent / "verdict.json").is_file():
            self._send_report(path.parent)
        elif path.name in ROWS and (path.parent / "recording").is_dir():
            self._send_rows(path, asked.query)
        elif path.is_file():
            self._send(path.read_bytes(), path.suffix)
        else:
            self._refuse(HTTPStatus.NOT_FOUND)

    def _send_report(self, run: Path) -> None:
        """Answer with the report of a run that has none yet."""
        try:
            content = _one(run).read_bytes()
        except (ClusterError, DamagedRecording, OSError, *UNREADABLE) as problem:
            self.send_error(HTTPStatus.INTERNAL_SERVER_ERROR, explain=f"{run.name} cannot be reported: {problem}")
            return
        self._send(content, ".html")

    def _send_rows(self, path: Path, query: str) -> None:
        """Answer with a page of the recording's rows, or with one row as it is stored."""
        from tribunal.results.report import operations_page

        try:
            if path.name == PAGE_OF_ROWS:
                page = operations_page.render(path.parent, operations_page.wanted(query))
                self._send(page.encode(), path.suffix, forms="'self'")
                return
            row = operations_page.raw_row(path.parent, operations_page.place(query))
        except (DamagedRecording, *UNREADABLE) as problem:
            self.send_error(HTTPStatus.BAD_REQUEST, explain=str(problem))
            return
        if row is None:
            self._refuse(HTTPStatus.NOT_FOUND)
        else:
            self._send(row, path.suffix)

    def _send(self, content: bytes, suffix: str, forms: str = "'none'") -> None:
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", SHOWN[suffix])
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Content-Security-Policy", policy(forms))
        self.send_header("Referrer-Policy", "no-referrer")
        self.end_headers()
        self.wfile.write(content)

    def _refuse(self, status: HTTPStatus) -> None:
        self.send_error(status, explain="tribunal serves runs only")

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        """Say nothing: what was asked for is the reader's business."""


@cache
def policy(forms: str = "'none'") -> str:
    """Return what pages may do, whoever wrote them: our own scripts by their hashes, no connection, no frame."""
    from tribunal.results.report import embedded

    scripts = " ".join(f"'{embedded(name)['script_hash']}'" for name in SCRIPTS)
    nowhere = f"base-uri 'none'; form-action {forms}; frame-ancestors 'none'"
    return f"default-src 'none'; style-src 'unsafe-inline'; script-src {scripts}; img-src data:; {nowhere}"


def _holds_runs(folder: Path) -> bool:
    own = (folder / "recording").is_dir() or (folder / "verdict.json").is_file() or (folder / "plan.json").is_file()
    return folder.is_dir() and not own and any(folder.rglob("verdict.json"))


def _one(run: Path, window: str = "") -> Path:
    from tribunal.harness.cli.session import write_report
    from tribunal.results.report.window import BadWindow, parsed

    must_hold_run(run)
    try:
        return write_report(run, parsed(window) if window else None)
    except BadWindow as problem:
        raise typer.BadParameter(f"--window {problem}") from None


def _index(folder: Path) -> Path:
    from tribunal.results.report.index import write

    for verdict in sorted(folder.rglob("verdict.json")):
        if not (verdict.parent / "report.html").is_file():
            try:
                _one(verdict.parent)
            except (ClusterError, DamagedRecording, OSError, *UNREADABLE) as problem:
                # One of many; the others are shown all the same.
                echo(f"tribunal: {verdict.parent} cannot be reported: {problem}", err=True)
    return write(folder, FOLDER if FOLDER.is_dir() else None)
