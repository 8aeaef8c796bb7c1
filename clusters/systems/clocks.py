"""The wall clocks of a described system's nodes: a library of our own, preloaded into their programs, that answers as a page says.

It is built of `clock_shim.c` by the machine's C compiler, once for each run. The page is that of replog's own nodes, and so is the proof: what a
node's program was answered, beside the machine's clocks at that moment. A program that does not ask the C library (a static one, most of Go) is
answered by nobody here, and its fault counts as not proven.
"""

import shutil
from pathlib import Path
from typing import Final

from tribunal.clusters.api import ClusterError
from tribunal.clusters.nodes.node_control import NodeControl
from tribunal.clusters.nodes.node_process import last_lines
from tribunal.clusters.systems.commands import carried_out

SOURCE: Final = Path(__file__).with_name("clock_shim.c")
LIBRARY: Final = "clock-shim.so"
PAGE: Final = "clock.page"
COMPILERS: Final = ("cc", "gcc", "clang")
ANYBODY_WRITES: Final = 0o666  # a node may run as any user
OF_NO_NAME: Final = " :"  # what parts names for the linker


def lacking() -> str:
    """Return why there can be none on this machine; empty: nothing is in the way."""
    if not any(map(shutil.which, COMPILERS)):
        return "there is no C compiler (cc) to build the library of"
    return ""


async def built(run_dir: Path) -> Path:
    """Build the library for a run; return where it is. Raises ClusterError."""
    library, log = (run_dir / LIBRARY).resolve(), run_dir / "logs" / "clock-shim.log"
    if any(letter in OF_NO_NAME for letter in str(library)):
        raise ClusterError(
            f"{library}: the linker takes no library with a space or a colon in its path: choose another --out"
        )
    compiler = next(filter(None, map(shutil.which, COMPILERS)), COMPILERS[0])
    command = [compiler, "-shared", "-fPIC", "-O2", "-o", str(library), str(SOURCE)]
    if not await carried_out((), command, log, run_dir):
        raise ClusterError(f"the library for clocks cannot be built; the log {log} ends:\n{last_lines(log)}")
    return library


def words(folder: Path, run_dir: Path) -> tuple[str, ...]:
    """Return the words in front of a node's command; its folder has the page."""
    library, page = (run_dir / LIBRARY).resolve(), (folder / PAGE).resolve()
    return (shutil.which("env") or "/usr/bin/env", f"LD_PRELOAD={library}", f"TRIBUNAL_CLOCK_PAGE={page}")


def controlled(folder: Path) -> NodeControl:
    """Make a node's page, which says that its clock is right."""
    control = NodeControl(folder / PAGE)
    (folder / PAGE).chmod(ANYBODY_WRITES)
    return control
