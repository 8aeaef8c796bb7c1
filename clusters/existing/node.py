"""One node of an existing cluster: it is changed by the user's commands alone, and looked at as any client looks at it."""

import asyncio
import os
import shutil
import tempfile
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Final

from replog.wire.messages import api_versions as av
from tribunal.clusters.api import ClusterError, Proof
from tribunal.clusters.clients.asking import FAILURES, Asking
from tribunal.clusters.nodes.node_process import put_to_end
from tribunal.clusters.secured.door import Door

CLIENT_ID: Final = "tribunal-look"
LOOK_MS: Final = 1_500
REST_MS: Final = 200
GONE_WITHIN_MS: Final = 15_000
SAID_MAX: Final = 300  # characters of what a command said
SAID_BYTES: Final = 16 * SAID_MAX  # of its end, where the last characters are looked for
NOT_BEGUN: Final = 127  # the exit code, as shells have it, of a command that is not there
API_VERSIONS: Final = 0  # a version that every broker answers


class ExistingNode:
    """Runs commands, and proves what they did."""

    def __init__(
        self,
        node: int,
        endpoint: tuple[str, int],
        looks: Callable[[], Awaitable[bool]],
        command: Callable[[str], list[str] | None],
        *,
        command_within_ms: int,
        serving_within_ms: int,
    ) -> None:
        """`looks` looks once whether it answers; `command` returns the node's command of a name, None where there is none."""
        self.node = node
        self.is_expected = True  # nothing was done to it that keeps it from answering
        self.alive = True
        self._endpoint = endpoint
        self._looks = looks
        self._command = command
        self._command_within_ms = command_within_ms
        self._serving_within_ms = serving_within_ms

    async def run(self, name: str) -> list[str]:
        """Run one of its commands and return it; `ClusterError` with what it said where it does not end with 0."""
        words = self._command(name)
        if words is None:
            raise ClusterError(f"node {self.node}: its file has no command {name!r}")
        code, said = await ended(words, self._command_within_ms)
        if code != 0:
            why = f"did not end within {self._command_within_ms} ms" if code is None else f"ended with {code}"
            raise ClusterError(f"node {self.node}: {name} {why}: {' '.join(words)}{said}")
        return words

    async def answers(self) -> bool:
        """Look once whether it answers."""
        return await self._looks()

    async def exists(self) -> bool | None:
        """Ask the user's command whether its process exists; None where there is no such command. One that says nothing has not said that it is gone."""
        words = self._command("alive")
        return None if words is None else (await ended(words, self._command_within_ms))[0] in (0, None, NOT_BEGUN)

    async def serving(self) -> None:
        """Wait until it answers: then it is there, and nothing keeps it from answering."""
        if not await self._comes(self.answers, self._serving_within_ms):
            host, port = self._endpoint
            raise ClusterError(f"node {self.node} does not answer at {host}:{port} within {self._serving_within_ms} ms")
        self.alive = self.is_expected = True

    async def ends(self, name: str) -> Proof:
        """Run what ends it; prove that it answers no more, and that its process is gone where that can be asked."""
        words = await self.run(name)
        gone = await self._comes(self._is_gone, GONE_WITHIN_MS)
        self.alive = self.is_expected = not gone
        return Proof(holds=gone, facts={"command": words, "answers": not gone})

    async def _is_gone(self) -> bool:
        return not await self.exists() and not await self.answers()

    async def begins(self) -> None:
        """Run what starts it, and wait until it serves."""
        await self.run("start")
        await self.serving()

    async def becomes_silent(self, name: str) -> Proof:
        """Run what keeps it from answering while it exists; prove that it does not."""
        words = await self.run(name)
        self.is_expected = False
        silent = await self._comes(self._is_silent, GONE_WITHIN_MS)
        exists = await self.exists()
        facts: Mapping[str, object] = {"command": words, "answers": not silent, "exists": exists}
        return Proof(holds=silent and exists is not False, facts=dict(facts))

    async def _is_silent(self) -> bool:
        return not await self.answers()

    async def answers_again(self, name: str) -> Proof:
        """Run what lets it answer again; prove that it does."""
        words = await self.run(name)
        answers = await self._comes(self.answers, self._serving_within_ms)
        self.is_expected = True
        return Proof(holds=answers, facts={"command": words, "answers": answers})

    @staticmethod
    async def _comes(holds: Callable[[], Awaitable[bool]], within_ms: int) -> bool:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + within_ms / 1000
        while not await holds():
            if loop.time() >= deadline:
                return False
            await asyncio.sleep(REST_MS / 1000)
        return True


async def answers_request(endpoint: tuple[str, int], door: Door) -> bool:
    """Look once whether somebody answers a request as brokers do."""
    try:
        asking = await Asking.open(endpoint, CLIENT_ID, LOOK_MS, door)
    except FAILURES:
        return False
    try:
        await asking.ask(av.EXCHANGE, API_VERSIONS, av.ApiVersionsRequest(), LOOK_MS)
    except FAILURES:
        return False
    finally:
        asking.close()
    return True


async def copied(node: int, words: list[str], target: Path, within_ms: int) -> None:
    """Fill an empty folder by a command; what is copied in part is removed: it would look as if the node had lost the rest.

    errors:  ClusterError: it did not end with 0.
    """
    await asyncio.to_thread(target.mkdir, parents=True)
    code, said = await ended(words, within_ms)
    if code != 0:
        # The command may have removed it, or made it another user's.
        await asyncio.to_thread(shutil.rmtree, target, ignore_errors=True)
        why = f"did not end within {within_ms} ms" if code is None else f"ended with {code}"
        raise ClusterError(f"node {node}: copy_logs {why}: {' '.join(words)}{said}")


async def ended(words: list[str], within_ms: int) -> tuple[int | None, str]:
    """Run a command; return how it ended (None: it did not in time, and was ended), and the end of what it said."""
    # A file: what a command leaves behind, such as a broker, may hold a pipe open for ever.
    with tempfile.TemporaryFile() as output:
        try:
            # In a group of its own: Ctrl-C in our terminal must not reach the broker that it leaves behind. In our session: sudo knows its terminal.
            process = await asyncio.create_subprocess_exec(
                *words, stdin=asyncio.subprocess.DEVNULL, stdout=output, stderr=output, preexec_fn=os.setpgrp
            )
        except OSError as problem:
            return NOT_BEGUN, f": {problem.strerror}"
        try:
            async with asyncio.timeout(within_ms / 1000):
                await process.wait()
        except TimeoutError:
            return None, ""
        finally:
            await put_to_end(process, alone=True)
        output.seek(max(0, output.seek(0, os.SEEK_END) - SAID_BYTES))
        said = " ".join(output.read(SAID_BYTES).decode(errors="replace").split())[-SAID_MAX:]
    return process.returncode, f": {said}" if said else ""
