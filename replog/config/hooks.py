"""What exists for the harness: what it watches, and how it makes a node misbehave."""

from typing import Annotated

import msgspec

from replog.config.setting import ours


class HooksConfig(msgspec.Struct, frozen=True, kw_only=True):
    """What exists for the harness: what it watches, and how it makes a node misbehave."""

    bind_host: Annotated[
        str,
        ours("tribunal.bind.host", "The source address of outgoing connections, by which relays know who calls."),
    ] = ""
    events_file: Annotated[
        str, ours("tribunal.events.file", "Where a node writes what happened, as JSON lines, for the recording.")
    ] = ""
    mutants: Annotated[
        tuple[str, ...], ours("tribunal.mutants", "Known bugs to switch back on: names of modules, or `M44`.")
    ] = ()
    undo_journal: Annotated[
        str,
        ours(
            "tribunal.undo.journal",
            "A folder for what a power failure would undo, on the file system of `log.dirs`.",
        ),
    ] = ""
    control_page: Annotated[
        str, ours("tribunal.control.page", "A file from which a node reads faults of its clock and its disk.")
    ] = ""
    metrics_port: Annotated[
        int,
        ours("tribunal.metrics.port", "The port of a node's metrics as Prometheus text; 0: none.", highest=65535),
    ] = 0
    fault_injection_points: Annotated[
        bool, ours("tribunal.points", "Whether the simulator may delay named points in the code or let them fail.")
    ] = False
    controller_joins: Annotated[
        bool,
        ours(
            "tribunal.controller.joins",
            "Whether a controller outside of the first voters may run: it observes until it is added.",
        ),
    ] = False
