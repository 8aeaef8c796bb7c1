"""Whose final logs were read from their disks: a log without records was read as well as any other, and nothing else says so."""

from collections.abc import Callable, Mapping

import pyarrow as pa
import pyarrow.compute as pc


def dumped(of_run: Callable[[str], pa.Table], topic: str, partition: int) -> Mapping[int, int]:
    """Return the nodes whose logs of a partition were read, and where each log starts; of earlier recordings nothing is known."""
    rows = of_run("dumps")
    own = rows.filter(pc.and_(pc.equal(rows["topic"], topic), pc.equal(rows["partition"], partition)))
    return dict(zip(own["node"].to_pylist(), own["log_start_offset"].to_pylist(), strict=True))
