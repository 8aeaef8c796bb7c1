"""A described system's node is ready when its own probe says so, which may be later than when it goes on."""

import asyncio
from pathlib import Path

from tribunal.clusters.clock import RunClock
from tribunal.clusters.kinds import system as kind
from tribunal.clusters.spec import ClusterSpec
from tribunal.harness.new import made_system

CATCHING_UP_S = 0.4


def test_a_node_that_goes_on_may_have_to_catch_up_before_it_is_ready(tmp_path: Path) -> None:
    """One look behind SIGCONT would say that the pause was not healed; nobody waits longer than for a start."""
    made_system("keeper", tmp_path)
    (tmp_path / "run").mkdir()
    behind, file = tmp_path / "behind", tmp_path / "keeper" / "system.toml"
    probe = f'ready = {{ command = ["sh", "-c", "test ! -e {behind}"], within_ms = 3000 }}'
    lines = file.read_text().splitlines()
    file.write_text("\n".join(probe if line.startswith("ready") else line for line in lines))
    assert probe in file.read_text()

    async def tried() -> tuple[bool, bool]:
        spec = ClusterSpec(brokers=1, controllers=0, system=str(file))
        cluster = await kind.launch(spec, tmp_path / "run", RunClock(), "tribunalSystemsQQQQQQQ")
        try:
            await cluster.pause(1)
            behind.touch()
            asyncio.get_running_loop().call_later(CATCHING_UP_S, behind.unlink)
            caught_up = await cluster.resume(1)
            await cluster.pause(1)
            behind.touch()
            never = await cluster.resume(1)
        finally:
            await cluster.close()
        return caught_up.holds, never.holds

    assert asyncio.run(tried()) == (True, False)
