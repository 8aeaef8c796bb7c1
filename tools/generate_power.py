"""Write docs/power.md from docs/power.json, the measurements that `tribunal power --keep docs/power.json` brings up to date; docs/how-we-know.md, too.

python tools/generate_power.py
"""

import runpy
from pathlib import Path

from tribunal.harness.catalog import mutants
from tribunal.results.power import page, read

DOCS = Path(__file__).parent.parent / "docs"
HEAD = """# Which known bugs are found

`tribunal power` switches one known bug on at a time (`replog/mutants`) and runs seeds until one finds what the same seed without the bug does not have. `--by own` takes the scenario
that the bug's file names, `--by swarm` scenarios of random faults alone (`wide-swarm`, `rotating-swarm`, `wide-swarm-exactly-once` and `operated-swarm` by turns, in ZooKeeper mode for its bugs), `--by search` the
guided search, with all scenarios that were written for known bugs taken away. These two columns were measured on 24 November 2026 at 671c4858, with 60 CPU seconds a bug, one process each, beside other work. The search has tables since: on 28 November
2026 it sought 27 of the bugs that it had missed anew, with 180 CPU seconds each (444255e2; M07, M10 and M13 477967a8; M88 7bea5973, with 120), and found eleven; those that it had found were not sought again. Most of its rows ask questions since 29 November 2026: four that it had missed were
sought anew, with 300 CPU seconds each on a machine that takes twice as long a run (f95f0fc7), and it found two (M48, M87; not M49 and M76). On 30 November 2026 two had 600 CPU seconds each (4e35cbed): M04 and M50 were missed still. On 1 December 2026
nine were sought anew on a machine that much else ran on: M49, M76 and M89 at 7f02fea3, M05, M50 and M81 at 31956adc, M10, M26 and M90 at 666c6bc3. For M05 14 minutes by the clock ended sooner than its CPU seconds.
M61, M63 and M64 were sought anew later on that day (5426c05a), beside other work, once the watch looked at votes (I23): they are seen by the first runs that reach them. M25 and M86 were not sought for as long as they would need since;
[how often rows of the search show them](decisions/0016-what-the-search-varies.md#what-could-not-come-about) was measured instead. Seconds are of CPU, with the runs without the bug that findings were
compared with. Runs that ended as ERROR or INCONCLUSIVE are counted by themselves: they found nothing and prove nothing. Why a bug was missed comes from reading the code and its runs;
what is recorded of a miss comes from the first 8 of its runs, compared with the same runs without the bug until one differs: equal traces mean that the bug never came to do anything there. Bugs that harm
a figure alone were not searched for then: their column of the search is three seeds of the first swarm that their mode has.

This page is made by `python tools/generate_power.py` from `docs/power.json`, which `tribunal power --keep docs/power.json` brings up to date.

"""
TAIL = """
Bugs that harm stability and nothing else are sought as a figure that must grow against the same seeds without the bug; a violation would be a false accusation.

Scenarios with random faults missed M13, M37 and M64 for a long time (22 to 54 seeds each). These bugs need four events in one order within some hundred milliseconds; their scenarios now
produce that order by messages that are held, delayed and released. M10 was not found for a while, and nobody noticed: its scenario emptied the follower's disk, and since directories
have ids the new directory's assignment raises the partition epoch, by which the old proposal is refused anyway. A power failure keeps the directory's id and takes the records.
`make nightly` runs every bug with the scenario that its file names.
"""


def content() -> str:
    """Return the page."""
    about = {name: words.partition(": ")[2].removesuffix(".") for name, words in mutants().items()}
    return HEAD + page(read(DOCS / "power.json"), about) + TAIL


if __name__ == "__main__":
    (DOCS / "power.md").write_text(content())
    runpy.run_path(
        str(Path(__file__).with_name("generate_how_we_know.py")), run_name="__main__"
    )  # it sums these figures up
