"""Below min ISR: what a partition in pieces costs."""

from pathlib import Path

import pyarrow as pa

from tests.checkers.recorded import Run
from tribunal.checkers.api import Context, PartitionRows
from tribunal.checkers.judge.partition import history_of, settings_of
from tribunal.checkers.properties import min_isr
from tribunal.results.recording import TABLES
from tribunal.results.store import Recording


def test_the_run_is_looked_at_once_for_all_pieces_of_a_partition(tmp_path: Path) -> None:
    run = Run(tmp_path / "run")
    run.change(1000, isr=[1])
    run.metadata("NoOpRecord", 9000)
    for sequence in range(3):
        run.send(sequence, at=3000 + sequence)
    recording = Recording.open(run.finish())
    asked: list[str] = []

    def of_run(name: str) -> pa.Table:
        asked.append(name)
        return recording.table(name)

    context = Context(
        complete=True,
        history=history_of(recording).timeline("t", 0).entries,
        settings=settings_of(recording),
        of_run=of_run,
    )
    sends = recording.table("sends", "t-0")
    small = {"watermarks": TABLES["watermarks"].arrow.empty_table()}
    pieces = [PartitionRows(small), *(PartitionRows({"sends": sends.slice(row, 1)}) for row in range(3))]

    found = min_isr.kernel_in_pieces(pieces, context)

    assert found.anomalies["kind"].to_pylist() == ["acknowledged_below_min_isr"] * 3
    assert asked.count("faults") == 1
