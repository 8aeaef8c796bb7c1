"""Whose error it is that has ended a node: the node's own, the world's or the simulator's.

A node's own is what its code cannot mean to raise: an assertion that does not hold, a key that is not there, a file that it
believes to have. It is a violation, with the exception's type and place as evidence. By right a node ends for what the
world did to it (`OSError`, damaged files) and where it says that it cannot go on; that is none. What the simulator
itself raised, innermost, is an error of the harness.

A hole in what a member of the quorum fetches is the quorum's own as well: faults turn over bits of partitions only, what a power failure
tears of a metadata log is cut off before anybody fetches it, and it is never compacted. A follower of a partition, whose leader's disk may have
been damaged, takes a hole for what it is and goes on.
"""

from typing import Final

from replog.log.batch import CorruptBatch
from replog.log.producers import CorruptSnapshot
from replog.log.validation import UnexpectedGap
from replog.node.data_plane import BrokerFailed
from replog.node.directories.log_directories import NoDirectory
from replog.node.directories.meta_properties import ForeignDirectory
from replog.node.quorum.metadata_damage import DamagedMetadata
from tribunal.clusters.simulated.loop import Refused
from tribunal.results.violation import NodeFailed

OF_THE_WORLD: Final = (
    OSError,
    CorruptBatch,
    CorruptSnapshot,
    DamagedMetadata,
    ForeignDirectory,
    NoDirectory,
    BrokerFailed,
    Refused,
)
NODE: Final = "replog."
QUORUM: Final = "replog.node.quorum."
SIMULATOR: Final = "tribunal."


def own_failure(problem: BaseException | None) -> NodeFailed | None:
    """Return the facts of a node's own error; None for what is not its own."""
    if not isinstance(problem, Exception):
        return None
    # Only a file that the node believes to have is missed by its own mistake; every other OSError is the disk's or the network's.
    is_missed_file = isinstance(problem, FileNotFoundError)
    is_hole_in_metadata = isinstance(problem, UnexpectedGap) and _passed_through(problem, QUORUM)
    if isinstance(problem, OF_THE_WORLD) and not is_missed_file and not is_hole_in_metadata:
        return None
    place = _innermost(problem, is_raised_for_node=is_missed_file)
    if place is None:
        return None
    function, line = place
    return NodeFailed(exception=type(problem).__name__, words=str(problem), function=function, line=line)


def _passed_through(problem: Exception, modules: str) -> bool:
    """Return whether code whose modules begin so let the problem through."""
    step = problem.__traceback__
    while step is not None:
        if str(step.tb_frame.f_globals.get("__name__", "")).startswith(modules):
            return True
        step = step.tb_next
    return False


def _innermost(problem: Exception, *, is_raised_for_node: bool) -> tuple[str, int] | None:
    """Return the innermost place in the node's code; None where the simulator's is further in, unless that speaks for the disk."""
    place = None
    step = problem.__traceback__
    while step is not None:
        module = str(step.tb_frame.f_globals.get("__name__", ""))
        if module.startswith(NODE):
            place = f"{module}.{step.tb_frame.f_code.co_qualname}", step.tb_lineno
        elif module.startswith(SIMULATOR) and not is_raised_for_node:
            place = None
        step = step.tb_next
    return place
