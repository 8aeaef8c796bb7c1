"""Run a command that dies with the one who started it, also when that one is killed with -9.

`python -I -S parent_death.py PARENT COMMAND...` asks the kernel to kill this process when its parent ends, and becomes
the command. Without Linux's parent-death signal a node could outlive a killed harness: then `tribunal heal`
(which reads the pids written in the run's folder) ends it.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def main() -> None:
    """Tie this process to its parent, then become the command."""
    parent, command = int(sys.argv[1]), sys.argv[2:]
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        # The parent may have ended before the kernel was asked.
        if os.getppid() != parent:
            sys.exit(1)
    os.execv(command[0], command)  # noqa: S606 - no shell wanted


if __name__ == "__main__":
    main()
