"""Where the command `tribunal` begins: Ctrl-C or SIGTERM while its modules are still loading end it like any later one."""

import os
import signal
import sys
from typing import Final, NoReturn

INTERRUPTED: Final = 130
"""As `tribunal.results.verdict.EXIT_INTERRUPTED`, which is not loaded yet."""


def main() -> NoReturn:
    """Load the command and run it."""
    try:
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        from tribunal.harness.cli.main import main as command
    except KeyboardInterrupt:
        sys.stderr.write("tribunal: interrupted before anything was begun\n")
        sys.stderr.flush()
        os._exit(INTERRUPTED)  # half-loaded modules have nothing to put away, and may not be able to
    command()


if __name__ == "__main__":
    main()
