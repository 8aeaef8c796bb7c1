"""What Spark's Python workers run: they hand plans to a process of their own, which stays for the plans after them.

Spark's worker has imported this module out of an archive that Spark copied; the process that runs seeds needs the code as files.
It has to be light: it is imported before anything of ours is unpacked.
"""

import contextlib
import gc
import os
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Final, NoReturn

import pyarrow as pa

from tribunal.results.shipped_code import is_shipped, unpacked

SERVER: Final = "tribunal.harness.campaign.seed_server"
PACKAGES: Final = "site-packages"
RESULTS: Final = "result binary, run binary, states binary"
RESULT_SCHEMA: Final = pa.schema([("result", pa.binary()), ("run", pa.binary()), ("states", pa.binary())])
LENGTH: Final = struct.Struct(">I")
NOTES_STATES: Final = struct.Struct("?")
SHOWN: Final = 400  # characters of what a process said before it ended
_servers: dict[str, "SeedServer"] = {}


class CannotRun(Exception):
    """Seeds cannot run on a worker; one line that says what is missing where."""


def run_tasks(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Run each row's plan.

    batches:  columns `plan` (plan.json), `python` (the interpreter; empty: this one), and `notes_states` of `swept`.
    yields:   a row each: its result as JSON, the run's folder as a tar archive if it found something, else nothing, and
              the states that it came to as JSON if they were asked for, else nothing.
    """
    for batch in batches:
        for plan, python, notes_states in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            ran = server(python).run(plan, notes_states=notes_states)
            yield pa.record_batch([[one] for one in ran], schema=RESULT_SCHEMA)


def server(python: str) -> "SeedServer":
    """Return this worker's process for an interpreter, a new one if there is none that lives."""
    found = _servers.get(python)
    if found is None or found.has_ended:
        gc.freeze()  # Spark's worker looks for garbage after every seed: what it has imported is none
        found = _servers[python] = SeedServer(python or sys.executable, unpacked())
    return found


class SeedServer:
    """A process that runs plans; it ends with this one, however that ends, and so do the seeds that it runs.

    It runs where a user's own plugins are: in what was shipped, else where Spark's worker runs.
    """

    def __init__(self, python: str, code: Path) -> None:
        self._said: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - as long as the process
        reading, self._pipe = os.pipe()
        environment = os.environ | {
            "PYTHONPATH": os.pathsep.join((str(code), str(code / PACKAGES))),
            "PYTHONSAFEPATH": "1",
        }
        try:
            self._process = subprocess.Popen(  # noqa: S603 - our own module
                [python, "-m", SERVER, str(reading)],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._said,
                env=environment, cwd=code if is_shipped() else None, pass_fds=(reading,), start_new_session=True,
            )  # fmt: skip
        except OSError as problem:
            os.close(self._pipe)
            self._said.close()
            raise CannotRun(f"{os.uname().nodename}: {python} does not start: {problem.strerror}") from None
        finally:
            os.close(reading)
        self._read()  # it says that it is there

    @property
    def pid(self) -> int:
        """Return its process id."""
        return self._process.pid

    @property
    def has_ended(self) -> bool:
        """Return whether nobody is there any more."""
        return self._process.poll() is not None

    def run(self, plan: bytes, *, notes_states: bool) -> tuple[bytes, bytes | None, bytes | None]:
        """Run a plan; return its result, its folder if it is to be looked at, and its states if they are wanted."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(NOTES_STATES.pack(notes_states) + LENGTH.pack(len(plan)) + plan)
            self._process.stdin.flush()
        except OSError:
            self._ended()
        return self._read(), self._read() or None, self._read() or None

    def _read(self) -> bytes:
        assert self._process.stdout is not None
        head = self._process.stdout.read(LENGTH.size)
        if len(head) < LENGTH.size:
            self._ended()
        (size,) = LENGTH.unpack(head)
        content = self._process.stdout.read(size)
        if len(content) < size:
            self._ended()
        return content

    def close(self) -> None:
        """End it."""
        os.close(self._pipe)
        self._process.wait()
        for file in (self._process.stdin, self._process.stdout, self._said):
            with contextlib.suppress(OSError):  # what was not sent to who has ended
                file.close() if file is not None else None

    def _ended(self) -> NoReturn:
        status = self._process.wait()
        self._said.seek(0)
        words = self._said.read().decode(errors="replace").strip().splitlines() or [f"it ended with status {status}"]
        self.close()
        raise CannotRun(f"{os.uname().nodename}: seeds do not run: {words[-1][:SHOWN]}")
