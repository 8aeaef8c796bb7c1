"""What every part of one run's cluster may need: what was asked for, the run's folder, its clock, the cluster's id, its messages."""

from pathlib import Path

from tribunal.clusters.clock import RunClock
from tribunal.clusters.links.requests import RequestLog
from tribunal.clusters.secured.run_security import RunSecurity
from tribunal.clusters.spec import ClusterSpec


class RunContext:
    """One run, and where its nodes' files lie on this machine."""

    def __init__(self, spec: ClusterSpec, directory: Path, clock: RunClock, cluster_id: str) -> None:
        self.spec = spec
        self.directory = directory
        self.clock = clock
        self.cluster_id = cluster_id
        self.security = RunSecurity(directory / "security") if spec.security else None
        self.requests = RequestLog(clock.now_ns)  # what nodes say to each other

    def folder(self, node: int) -> Path:
        """Return the node's own folder."""
        return self.directory / "nodes" / str(node)

    def data_dir(self, node: int) -> Path:
        """Return the node's log directory."""
        return self.folder(node) / "data"

    def log_file(self, node: int) -> Path:
        """Return where the node's output goes."""
        return self.directory / "logs" / f"{node}.log"
