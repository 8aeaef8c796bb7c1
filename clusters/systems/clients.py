"""Makes the clients of a described system: callers of operations. It has no clients of records."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, NoReturn

from tribunal.clusters.api import GroupSettings, ProducerSettings, Unsupported
from tribunal.clusters.objects import ObjectClient
from tribunal.clusters.systems.adapter import Adapter
from tribunal.clusters.systems.description import Addresses, Client
from tribunal.clusters.systems.own_keys import OwnKeys


class SystemClients:
    """Implements `tribunal.clusters.api.ClientFactory`."""

    def __init__(
        self,
        name: str,
        client: Client,
        addresses: Addresses,
        run_dir: Path,
        prefix: Sequence[str] = (),
        *,
        keys: str = "",
    ) -> None:
        """`keys`: how the keys of this run's objects begin, where others may be there already."""
        self._name = name
        self._client = client
        self._addresses = addresses
        self._run_dir = run_dir
        self._prefix = prefix  # words in front of each client's command: where clients are
        self._keys = keys
        self._adapters: list[Adapter] = []

    def objects(self, client_id: str) -> ObjectClient:
        """Make a caller of operations; its process begins with the first call."""
        adapter = Adapter(self._client, client_id, self._addresses, self._run_dir, self._prefix)
        self._adapters.append(adapter)
        return OwnKeys(adapter, self._keys) if self._keys else adapter

    async def close(self) -> None:
        """End all of them, also those that nobody closed."""
        await asyncio.gather(*(adapter.close() for adapter in self._adapters))

    def producer(self, settings: ProducerSettings, client_id: str) -> NoReturn:
        """Refuse."""
        raise self._no_log()

    def consumer(
        self, client_id: str, isolation: Literal["read_uncommitted", "read_committed"], *, finds_end: bool = False
    ) -> NoReturn:
        """Refuse."""
        raise self._no_log()

    def admin(self, client_id: str) -> NoReturn:
        """Refuse."""
        raise self._no_log()

    def operator(self, client_id: str) -> NoReturn:
        """Refuse."""
        raise self._no_log()

    def group_consumer(self, settings: GroupSettings, client_id: str) -> NoReturn:
        """Refuse."""
        raise self._no_log()

    def transactional_producer(self, transactional_id: str, transaction_timeout_ms: int, client_id: str) -> NoReturn:
        """Refuse."""
        raise self._no_log()

    def _no_log(self) -> Unsupported:
        return Unsupported(f"{self._name} has no records: use a workload of operations")
