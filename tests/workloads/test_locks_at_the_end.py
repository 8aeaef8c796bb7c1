"""A lock that was acquired by an answer that was lost is released before it is tried again."""

import asyncio
from random import Random

from tribunal.clusters.objects import ObjectAnswer, ObjectOperation
from tribunal.workloads.api import Stage
from tribunal.workloads.kinds import lock
from tribunal.workloads.objects import drawn_plan


class Server:
    """A server of locks whose first answer is lost; clients of it, and a recording."""

    def __init__(self):
        self.holders = {}
        self.acquired = []
        self._is_lost = True

    def objects(self, name):
        return self

    async def call(self, operation, key, value):
        if operation is ObjectOperation.RELEASE:
            is_held = self.holders.get(key) == value
            self.holders |= {key: None} if is_held else {}
            return ObjectAnswer(outcome="ok" if is_held else "fail")
        is_free = self.holders.get(key) is None
        self.holders |= {key: value} if is_free else {}
        if self._is_lost:
            self._is_lost = False
            return ObjectAnswer(outcome="info", error="lost")
        return ObjectAnswer(outcome="ok" if is_free else "fail")

    async def close(self):
        pass

    def row(self, table, **columns):
        if columns["function"] == "acquire" and columns["outcome"] == "ok":
            self.acquired.append(columns["key"])


def test_the_last_acquisition_waits_for_no_holder_that_is_itself():
    server = Server()
    stage = Stage(clients=server, sink=server, now_ns=lambda: 0)
    chosen = drawn_plan(lock.Options(locks=2), Random(1))

    asyncio.run(lock.read_to_end(stage, chosen, 3_000))

    assert server.acquired == ["m0", "m1"]
    assert server.holders == {"m0": None, "m1": None}
