"""Where the command `tribunal` begins."""

import signal
from typing import NoReturn

from tribunal.harness.cli.loading import loading


def main() -> NoReturn:
    """Load the command and run it."""
    with loading():
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        from tribunal.harness.cli.main import main as command
    command()


if __name__ == "__main__":
    main()
