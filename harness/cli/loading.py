"""Ctrl-C or SIGTERM while modules are still loading ends the command as any later one does: with a line and 130."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

INTERRUPTED: Final = 130
"""As `tribunal.results.verdict.EXIT_INTERRUPTED`, which is not loaded yet."""


@contextmanager
def loading() -> Iterator[None]:
    """Let modules be loaded."""
    try:
        yield
    except KeyboardInterrupt:
        sys.stderr.write("tribunal: interrupted before anything was begun\n")
        sys.stderr.flush()
        os._exit(INTERRUPTED)  # half-loaded modules have nothing to put away, and may not be able to
