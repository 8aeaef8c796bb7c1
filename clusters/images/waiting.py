"""Waiting for the image that nodes run in: what lasts longer is shown, and who gives up ends what the engine does for it."""

import asyncio
import sys
from pathlib import Path
from typing import Final, assert_never

import msgspec

from tribunal.clusters.api import ClusterError
from tribunal.clusters.images import builder
from tribunal.clusters.images.builder import Failed, Had, Line, Said, Wanted
from tribunal.clusters.nodes.node_process import last_lines, put_to_end, start_to_speak
from tribunal.clusters.notices import notify

LONG_S: Final = 2.0  # what lasts longer is shown
NOTICE_S: Final = 1.0
BUILD_LOG: Final = "image.log"  # in the run's logs


async def had_image(wanted: Wanted, run_dir: Path) -> str:
    """Return the name of an image that is there now. Raises ClusterError."""
    process = await start_to_speak((), [sys.executable, "-m", builder.__name__], Path(wanted.log), run_dir)
    assert process.stdin is not None
    assert process.stdout is not None
    said = [""]
    noticing = asyncio.create_task(_send_notices(wanted.words, said))
    try:
        process.stdin.write(msgspec.json.encode(wanted) + b"\n")
        await process.stdin.drain()
        async for line in process.stdout:
            match msgspec.json.decode(line, type=Line):
                case Said(line=last):
                    said[0] = last
                case Had(image=image):
                    return image
                case Failed(words=words):
                    raise ClusterError(words)
                case other:
                    assert_never(other)
    except (BrokenPipeError, ConnectionResetError):
        pass  # it has ended: its log says why
    finally:
        noticing.cancel()
        await asyncio.wait([noticing])
        await put_to_end(process)
    raise ClusterError(f"{wanted.words}: its process ended; its log {wanted.log} ends:\n{last_lines(Path(wanted.log))}")


async def _send_notices(words: str, said: list[str]) -> None:
    """Say again and again how long it takes, and what was said last."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    await asyncio.sleep(LONG_S)
    while True:
        last = f": {said[0]}" if said[0] else ""
        notify(f"{words}, {loop.time() - began:.0f} s{last}")
        await asyncio.sleep(NOTICE_S)
