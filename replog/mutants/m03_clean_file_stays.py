"""M03: the clean-shutdown file is left where it is when a broker starts.

Evidence: the next start skips log recovery although the process before was killed; the file exists while the broker runs.
KAFKA-10471.
"""

from collections.abc import Sequence

from replog.log.clean_shutdown import CLEAN_SHUTDOWN_FILE, Startup, startup
from replog.node.directories import log_directories
from replog.ports import Disk

SCENARIO = "clean-then-unclean"


def install() -> None:
    """Put back what a start takes away."""

    def leaving_the_file(disk: Disk, directories: Sequence[str]) -> Startup:
        paths = [f"{directory}/{CLEAN_SHUTDOWN_FILE}" for directory in directories]
        found = {path: disk.read_file(path) for path in paths if disk.exists(path)}
        left = startup(disk, directories)
        for path, content in found.items():
            disk.replace_file(path, content)
        return left

    log_directories.startup = leaving_the_file  # type: ignore[attr-defined]
