"""Whether a sweep on a standalone cluster, one worker killed in the middle, finds what the same sweep finds here.

`python bench/sweep_on_cluster.py --seeds 0:1000` runs the seeds of both scenarios of bench/sweep with three known bugs switched on, on
local processes and then on a master and three workers of one core each; at half of the seeds one worker is killed with `kill -9` and another
one added. It prints a row for each sweep, and what differs: nothing if all is well. `--here FILE` takes what the sweep here has printed before.
"""

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.checkers.spark_clusters import Standalone, standalone

ROOT = Path(__file__).resolve().parent.parent
SCENARIOS = ("brief-leader", "brief-power")
MUTANTS = ("M46", "M73", "M75")
SEEDS_SO_FAR = re.compile(r": (\d+) seeds, ")
COMPARED = ("seeds", "verdicts", "findings", "recordings", "probes", "inconclusive", "upper_bound_95", "interrupted")
Said = dict[str, object]


def command(seeds: str, out: Path, *more: str) -> list[str]:
    files = [str(ROOT / "bench" / "sweep" / f"{name}.yaml") for name in SCENARIOS]
    bugs = [word for name in MUTANTS for word in ("--mutant", name)]
    begin = [sys.executable, "-W", "ignore", "-m", "tribunal", "sweep", *files, *bugs]
    return [*begin, "--seeds", seeds, "--out", str(out), "--json", *more]


def swept(command: list[str], cluster: Standalone | None, kill_at: int) -> tuple[Said, float]:
    """Run a sweep; kill a worker and add one when so many seeds have ended. Return what it says and how long it took."""
    start, killed = time.perf_counter(), False
    with tempfile.TemporaryFile("w+") as printed:
        process = subprocess.Popen(command, stdout=printed, stderr=subprocess.PIPE, text=True, cwd=ROOT)
        assert process.stderr is not None
        for line in process.stderr:
            sys.stderr.write(line)
            so_far = SEEDS_SO_FAR.search(line)
            if cluster is not None and not killed and so_far and int(so_far[1]) >= kill_at:
                cluster.kill(0)
                cluster.add()
                killed = True
                sys.stderr.write(f"worker 0 killed after {so_far[1]} seeds, another one added\n")
        process.wait()
        printed.seek(0)
        said = json.load(printed)
    assert process.returncode == 1, f"exit code {process.returncode}: no violation, or no end"
    assert killed or cluster is None, "the sweep ended before a worker was killed"
    return said, time.perf_counter() - start


def comparable(said: Said) -> Said:
    """Return what has to be the same; findings name their seeds in the order in which these ended."""
    compared = {name: said[name] for name in COMPARED}
    for name in ("findings", "inconclusive"):
        compared[name] = {what: sorted(seeds) for what, seeds in dict(said[name]).items()}
    return compared


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", default="0:1000")
    parser.add_argument("--jobs", default="2")
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--here", type=Path)
    chosen = parser.parse_args()
    first, end = map(int, chosen.seeds.split(":"))
    total = (end - first) * len(SCENARIOS)
    scratch = Path(tempfile.mkdtemp(prefix="tribunal-bench-"))
    try:
        if chosen.here is None:
            here, took = swept(command(chosen.seeds, scratch / "here", "--jobs", chosen.jobs), None, 0)
            print(f"here: {took:.0f} s, {here['verdicts']}")
        else:
            here = json.loads(chosen.here.read_text())
        (scratch / "spark").mkdir()
        with standalone(scratch / "spark", workers=chosen.workers) as cluster:
            there, took = swept(
                command(chosen.seeds, scratch / "there", "--master", cluster.url), cluster, kill_at=total // 2
            )
        print(f"there: {took:.0f} s, {there['verdicts']}")
    finally:
        shutil.rmtree(scratch)
    mine, other = comparable(here), comparable(there)
    differ = [name for name in COMPARED if mine[name] != other[name]]
    print(f"{mine['seeds']} seeds, findings { {name: len(seeds) for name, seeds in mine['findings'].items()} }")
    print(f"differ: {', '.join(differ) or 'nothing'}")
    sys.exit(1 if differ else 0)


if __name__ == "__main__":
    main()
