"""What freed memory costs: the allocator keeps it, so that frames are not fetched page by page from the system."""

import ctypes
import resource

import pytest

from replog.host.memory import keep_freed_memory

FRAME_BYTES = 1 << 20
PAGE_BYTES = resource.getpagesize()


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallopt"), reason="this C library takes no wishes")
def test_frames_that_come_and_go_fault_no_pages() -> None:
    assert keep_freed_memory()
    frames = [bytes(FRAME_BYTES) for _ in range(4)]
    frames.clear()

    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(20):
        frames = [b"".join((b"x" * (FRAME_BYTES // 2), b"y" * (FRAME_BYTES // 2))) for _ in range(2)]
        frames.clear()
    faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

    assert faults < 20 * 2 * FRAME_BYTES // PAGE_BYTES // 4
