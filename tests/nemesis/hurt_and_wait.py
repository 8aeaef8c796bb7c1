"""A harness that hurts a cluster and is not going to heal it: `hurt_and_wait.py KIND FOLDER FAULTS`; to be killed with -9."""

import asyncio
import importlib
import json
import sys
from contextlib import AsyncExitStack
from pathlib import Path

from tests.nemesis.living_cluster import LivingCluster
from tribunal.harness.catalog import faults
from tribunal.harness.fault_journal import ActiveFault, FaultJournal


def main():
    kind, folder, wanted = sys.argv[1], Path(sys.argv[2]), json.loads(sys.argv[3])
    folder.mkdir(parents=True)

    async def story(cluster):
        async with AsyncExitStack() as stack:
            for index, (name, node) in enumerate(wanted):
                journal.injecting(ActiveFault(index=index, kind=name, target=f"broker {node}", options={}))
                effect = await stack.enter_async_context(faults()[name].planned(node, {})(cluster))
                assert effect.proof.holds, effect.proof
            print("hurt", flush=True)
            await asyncio.sleep(90)

    with FaultJournal(folder, kind) as journal:
        LivingCluster.launched(importlib.import_module(f"tribunal.clusters.kinds.{kind}"), folder).run(story)


if __name__ == "__main__":
    main()
