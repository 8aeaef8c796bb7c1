"""How long clusters take to come up, partitions to be applied and healed, and what the recorder can take.

    python -m bench.clusters [up] [partition] [image] [recorder]

Goals: 3+3 processes serving in under 2 s, containers in under 5 s with a ready image, an image from source in under 20 s;
a partition in force or gone within 50 ms in namespaces and 100 ms elsewhere; 50,000 records/s recorded, memory flat.
"""

import asyncio
import contextlib
import os
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from tribunal.clusters.api import ClusterError, CutMode
from tribunal.clusters.clock import RunClock
from tribunal.clusters.images.build import engine, node_image
from tribunal.clusters.kinds import containers, processes
from tribunal.clusters.spec import ClusterSpec
from tribunal.nemesis.link_groups import links_of
from tribunal.results.store import Recorder

if TYPE_CHECKING:
    from docker import DockerClient

TRIES = 3
CUTS = 7
RECORD_S = 12
RATE = 50_000
KINDS: dict[str, tuple[ModuleType, ClusterSpec]] = {
    "processes in namespaces": (processes, ClusterSpec(isolation="namespaces")),
    "processes, link proxies": (processes, ClusterSpec(isolation="proxies")),
    "containers": (containers, ClusterSpec()),
}


@contextlib.asynccontextmanager
async def running(module: ModuleType, spec: ClusterSpec) -> AsyncIterator[tuple[Any, float]]:
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        cluster = await module.launch(spec, Path(folder), RunClock(), "A" * 22)
        took_s = time.perf_counter() - began
        try:
            yield cluster, took_s
        finally:
            await cluster.close()


async def up(module: ModuleType, spec: ClusterSpec) -> str:
    times = []
    for _ in range(TRIES):
        async with running(module, spec) as (_, took_s):
            times.append(took_s)
    return f"3+3 serving in {min(times):.2f} s (median {statistics.median(times):.2f} s of {TRIES})"


async def partition(module: ModuleType, spec: ClusterSpec) -> str:
    applied, healed, passing = [], [], []
    async with running(module, spec) as (cluster, _):
        links = links_of(cluster.spec, 1, "nodes")
        for _ in range(CUTS):
            cut = await cluster.cut(links, CutMode.HOLD)
            began = time.perf_counter()
            heal = await cluster.heal(links)
            assert cut.holds, cut
            assert heal.holds, heal
            passing.append((time.perf_counter() - began) * 1000)
            applied.append(cut.facts["applied_ms"])
            healed.append(heal.facts["applied_ms"])
    words = {"applied": applied, "healed": healed, "healed and proven": passing}
    return f"{len(links)} links: " + ", ".join(
        f"{word} {statistics.median(times):.1f} ms (most {max(times):.1f})" for word, times in words.items()
    )


def _node_image(client: "DockerClient") -> str:
    with tempfile.TemporaryDirectory() as folder:
        return node_image(client, Path(folder, "image.log"), Path(folder), lambda _: None)


def image() -> str:
    client = engine()
    tag = _node_image(client)
    client.images.remove(tag, force=True)
    began = time.perf_counter()
    assert _node_image(client) == tag
    took_s = time.perf_counter() - began
    client.close()
    return f"image from source in {took_s:.1f} s (base {os.environ.get('TRIBUNAL_BASE_IMAGE', 'public')} there)"


async def recorder() -> str:
    """A send and a read a record, at 50,000 records/s beside a cluster of 3+3 processes, segments closed as in a run.

    The harness' own loop does both, as in a run: it carries the cluster's relays and observer too.
    """
    async with running(processes, ClusterSpec()):
        return await _recorded()


async def _recorded() -> str:
    with tempfile.TemporaryDirectory() as folder:
        recording = Recorder(Path(folder), "bench")
        busy_s, sizes, written, began = 0.0, [], 0, time.perf_counter()
        for tick in range(RECORD_S * 10):
            before = time.process_time()
            for number in range(written, written + RATE // 10):
                recording.row(
                    "sends", process=1, worker_class="bench", topic="t", partition=number % 6, value=number, acks=-1,
                    invoke_ns=number, complete_ns=number + 1, outcome="ok", log_offset=number, attempts=1,
                )  # fmt: skip
                recording.row(
                    "reads", process=2, poll_index=tick, topic="t", partition=number % 6, log_offset=number,
                    value=number, phase="tail",
                )  # fmt: skip
            written += RATE // 10
            if tick % 50 == 49:
                recording.close_segment()
            busy_s += time.process_time() - before
            sizes.append(_rss_mib())
            await asyncio.sleep(max(0.0, began + (tick + 1) / 10 - time.perf_counter()))
        took_s = time.perf_counter() - began
    third = len(sizes) // 3
    return (
        f"{written / took_s:,.0f} records/s recorded for {took_s:.0f} s, {100 * busy_s / took_s:.0f} % of one core; at full "
        f"speed {written / busy_s:,.0f}/s; memory at most {max(sizes[third : 2 * third]):.0f} MiB in the middle third, "
        f"{max(sizes[2 * third :]):.0f} MiB in the last (peak {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024} MiB)"
    )


def _rss_mib() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE") / (1 << 20)


def main() -> None:
    wanted = sys.argv[1:] or ["up", "partition", "image", "recorder"]
    print(f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    for name, (module, spec) in KINDS.items():
        for what in (up, partition):
            if what.__name__ in wanted:
                try:
                    print(f"{name}: {asyncio.run(what(module, spec))}", flush=True)
                except ClusterError as problem:
                    print(f"{name}: {problem}", flush=True)
    if "image" in wanted:
        print(image(), flush=True)
    if "recorder" in wanted:
        print(asyncio.run(recorder()), flush=True)


if __name__ == "__main__":
    main()
