"""A process that undoes what a run leaves whose harness is killed with -9; while the harness lives it only waits.

    python -I -S guard.py RUN_DIR          started by the harness, standard library only: reads stdin to its end
    python -m tribunal.harness.guard RUN_DIR     what it becomes where nobody had said that the run is over

The pipe ends when the harness does, in whatever way. It has a session of its own and no mark of the run: nothing that ends the run's processes
ends it. What it does is said in the run's `heal.log`. Commands of a user's file are not run by it: `tribunal heal` asks for that file.
"""

import os
import subprocess
import sys
from pathlib import Path

OVER = b"over"
LOG = "heal.log"
ENDING_S = 10


class Guard:
    """The guard of one run, from before its first node starts until nothing of it is left."""

    def __init__(self, run_dir: Path) -> None:
        self._run_dir = run_dir.resolve()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """The id of its process."""
        assert self._process is not None
        return self._process.pid

    def __enter__(self) -> "Guard":
        from tribunal import ROOT

        self._process = subprocess.Popen(  # noqa: S603 - our own program
            [sys.executable, "-I", "-S", __file__, str(self._run_dir)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C and who ends the harness's group do not reach it
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        return self

    def __exit__(self, *error: object) -> None:
        if self._process is not None:
            try:
                self._process.communicate(OVER, timeout=ENDING_S)
            except (OSError, subprocess.TimeoutExpired):  # somebody else has ended it, or stopped it
                self._process.kill()
                self._process.communicate()


def wait(run_dir: str) -> None:
    """Wait for the harness's end; go on as who undoes what it left, unless it has said that there is nothing."""
    if sys.stdin.buffer.read() == OVER:
        return
    with Path(run_dir, LOG).open("ab") as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    # Flags of this interpreter keep our own packages out.
    os.execv(sys.executable, [sys.executable, "-m", "tribunal.harness.guard", run_dir])  # noqa: S606 - no shell wanted


def undo(run_dir: Path) -> None:
    """Undo what a run has left whose harness is dead; say in lines what that was."""
    from tribunal.clusters.api import ClusterError
    from tribunal.harness.fault_journal import undone

    try:
        done = undone(run_dir)
    except ClusterError as problem:
        done = [str(problem)]
    sys.stdout.write("".join(f"{line}\n" for line in done))


if __name__ == "__main__":
    if sys.flags.isolated:
        wait(sys.argv[1])
    else:
        undo(Path(sys.argv[1]))
