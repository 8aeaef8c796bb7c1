"""The command that starts a cluster of replog and lets it stand: up."""

import asyncio
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated

import typer

from tribunal.clusters.api import ClusterError
from tribunal.clusters.spec import SettingValue
from tribunal.harness.scenario import parsed
from tribunal.harness.standing import PORT_MAX, BadCluster, StandingCluster, stand
from tribunal.harness.terminal import as_json, echo

NODES_MAX = 100


def up(
    nodes: Annotated[int, typer.Option(min=1, max=NODES_MAX, help="How many nodes, each broker and controller.")] = 3,
    port: Annotated[int, typer.Option(min=1, max=PORT_MAX, help="The first node's port; the others follow.")] = 9092,
    folder: Annotated[Path, typer.Option("--dir", help="Its nodes' configuration, data and logs; kept.")] = Path(
        "replog-cluster"
    ),
    set_: Annotated[list[str] | None, typer.Option("--set", help="A setting of all nodes: name=value.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print where it is as JSON on stdout, once it serves.")] = False,
) -> None:
    """Start a cluster of replog on this machine and let it stand until Ctrl-C; started again, it goes on with its data.

    Exit code 0: stopped in good order; 3: it could not start, a node had to be killed, or none is left.
    """

    def note(reason: str) -> None:
        echo(f"tribunal: {reason}", err=True)

    try:
        cluster = StandingCluster(folder, nodes=nodes, port=port, settings=_settings(set_ or []), on_exit=note)
        late = asyncio.run(until_stopped(cluster, lambda: echo(_where(cluster, folder, json=json))))
    except BadCluster as problem:
        raise typer.BadParameter(str(problem)) from None
    if late:
        raise ClusterError(f"nodes {', '.join(map(str, late))} did not stop and were killed")


async def until_stopped(cluster: StandingCluster, ready: Callable[[], None]) -> list[int]:
    """Let a cluster stand until Ctrl-C or SIGTERM; return the nodes that had to be killed."""
    loop = asyncio.get_running_loop()
    task = loop.create_task(stand(cluster, ready))

    def ask() -> None:
        """Ask it to stop, once: who asks again while it stops must not break that off."""
        if not task.cancelling():
            task.cancel()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, ask)
    try:
        return await task
    except asyncio.CancelledError:
        return []  # stopped before it served


def _where(cluster: StandingCluster, folder: Path, *, json: bool) -> str:
    if json:
        facts = {"bootstrap_servers": cluster.bootstrap, "directory": str(folder.resolve())}
        return as_json(facts)
    return "\n".join([
        f"bootstrap servers  {cluster.bootstrap}",
        f"data and logs      {folder}",
        "stop               Ctrl-C; the same command starts it again with its data",
    ])  # fmt: skip


def _settings(texts: Sequence[str]) -> dict[str, SettingValue]:
    found: dict[str, SettingValue] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise BadCluster(f"--set {text}: wants name=value")
        plain = parsed(value, f"--set {name}")
        if not isinstance(plain, bool | int | float | str):
            raise BadCluster(f"--set {name}: wants one value")
        found[name] = plain
    return found
