"""A copy of a recording is as complete as the recording is."""

import pyarrow as pa
import pytest

from tests.checkers.recorded import Run
from tribunal.results.copies import copied
from tribunal.results.recording import TABLES
from tribunal.results.store import Recording


@pytest.mark.parametrize("is_whole", [pytest.param(True, id="whole"), pytest.param(False, id="cut off")])
def test_a_copy_of_a_recording_that_was_cut_off_is_cut_off(tmp_path, is_whole):
    run = Run(tmp_path / "run")
    run.send(0, at=100)
    run.send(1, at=200)
    run.recorder.close_segment()
    if is_whole:
        run.finish()
    original = Recording.open(tmp_path / "run")
    none = pa.schema(list(TABLES["sends"].fields.items())).empty_table()

    same = Recording.open(copied(original, tmp_path / "same", {}))
    fewer = Recording.open(copied(original, tmp_path / "fewer", {("sends", "t-0"): none}))

    assert (same.complete, fewer.complete) == (is_whole, is_whole)
    assert same.table("sends").num_rows == original.table("sends").num_rows == 2
    assert fewer.table("sends").num_rows == 0
    assert fewer.table("metadata") == original.table("metadata")
