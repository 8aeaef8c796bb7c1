"""Record what simulated seeds do, bit by bit, and compare it after a refactoring.

    python tools/same_bits.py record FILE     # before: 60 runs, some ten minutes on two cores
    python tools/same_bits.py compare FILE    # after: says which runs differ, and in what

A run's fingerprint is its trace hash, its number of events, its recording hash, its verdict and the findings behind it. Everything is
asked of the `tribunal` command, so that the tool itself survives the refactoring that it is to check.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

SCENARIOS = (
    *("back-to-back-leaders", "bank", "chase-the-leader", "consumer-group", "disks", "disruptive-voter", "early-join"),
    *("elr-chain", "exactly-once", "fast-bounce", "fast-failovers", "fenced-follower", "idempotent-retries"),
    *("impatient-producers", "isr-shrink-expand", "last-replica-standing", "lead-there-and-back", "list-append"),
    *("lost-answers", "markers-under-way", "messages", "minority-bitflip", "part-kill", "pause-kill"),
    *("power-loss-all", "power-loss-one", "produce-consume", "reassign", "restarts", "rolling-restart"),
    *("rotating-swarm", "small-segments", "stale-epoch-join", "swizzle", "transactions", "unclean-recovery"),
    *("unheard-proposal", "voter-disk-loss", "voters-restarted", "zookeeper-early-leader-and-isr"),
    *("zookeeper-ensemble", "zookeeper-hurt", "zookeeper-late-leave", "zookeeper-late-stop-replica"),
    *("zookeeper-missed-bounce", "zookeeper-upgrade"),
)
KNOWN_BUGS = (
    *(("M01", "last-replica-standing"), ("M06", "elr-chain"), ("M10", "stale-epoch-join"), ("M19", "elr-chain")),
    *(("M28", "fast-failovers"), ("M34", "fast-failovers"), ("M44", "produce-consume"), ("M47", "unclean-recovery")),
    *(("M51", "zookeeper-late-stop-replica"), ("M53", "zookeeper-late-leave"), ("M59", "disruptive-voter")),
    *(("M73", "impatient-producers"), ("M75", "lost-answers"), ("M81", "markers-under-way")),
)
SEED = 4242


def runs():
    """Yield the name and the arguments of each run."""
    for scenario in SCENARIOS:
        yield f"{scenario}:{SEED}", [scenario, "--seed", str(SEED)]
    for bug, scenario in KNOWN_BUGS:
        yield f"{scenario}:2+{bug}", [scenario, "--seed", "2", "--mutant", bug]


def fingerprint(command, arguments):
    """Run one seed; return what must be equal."""
    with tempfile.TemporaryDirectory() as folder:
        words = [
            *command,
            "run",
            *arguments,
            "--cluster",
            "simulated",
            "--engine",
            "inline",
            "--quiet",
            "--out",
            folder,
        ]
        done = subprocess.run(words, capture_output=True, text=True, check=False, env=dict(os.environ, NO_COLOR="1"))
        verdicts = sorted(Path(folder).glob("*/verdict.json"))
        if not verdicts:
            return {"failed": done.returncode, "said": done.stderr[-500:]}
        run_dir = verdicts[0].parent
        known = json.loads((run_dir / "simulation.json").read_text())
        verdict = json.loads(verdicts[0].read_text())
        return {
            "trace_hash": known["trace_hash"],
            "event_count": known["event_count"],
            "invariant": known["invariant"],
            "verdict": verdict["verdict"],
            "judged": verdict.get("judged", {}),
            "findings": sorted(
                [one["property"], one["kind"], one["severity"], one.get("rule", ""), one.get("topic") or "",
                 one.get("partition", -1), one.get("log_offset", -1), one.get("count", 1)]
                for one in verdict.get("findings", [])
            ),
            "recording_hash": json.loads((run_dir / "manifest.json").read_text()).get("recording_hash", ""),
        }  # fmt: skip


def main():
    """Record or compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("act", choices=["record", "compare"])
    parser.add_argument("file", type=Path)
    parser.add_argument("--only", default="", help="runs whose name contains this")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--command", default="tribunal", help="the command to ask")
    parser.add_argument("--ignore", action="append", default=[], help="a part that may differ, as recording_hash")
    options = parser.parse_args()
    chosen = [(name, arguments) for name, arguments in runs() if options.only in name]
    before = json.loads(options.file.read_text()) if options.act == "compare" else {}
    differing = 0
    with ThreadPoolExecutor(options.jobs) as pool:
        answers = pool.map(lambda run: fingerprint(options.command.split(), run[1]), chosen)
        found = {}
        for (name, _), answer in zip(chosen, answers, strict=True):
            found[name] = answer
            parts = [
                part for part in answer if part not in options.ignore and answer[part] != before.get(name, {}).get(part)
            ]
            if options.act == "record":
                print(name, answer.get("verdict", answer), answer.get("invariant") or "", flush=True)
            elif parts:
                differing += 1
                print(f"{name}: {', '.join(parts)} differ: {before.get(name)} and {answer}", flush=True)
    if options.act == "record":
        options.file.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")
    print(f"{len(found)} runs, {differing} differ" if options.act == "compare" else f"{len(found)} runs recorded")
    sys.exit(differing > 0)


if __name__ == "__main__":
    main()
