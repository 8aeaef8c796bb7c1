"""Keys of a run's own, where objects may be there already: of a run before, or of somebody else."""

from collections.abc import Callable

import msgspec

from tribunal.clusters.objects import ObjectAnswer, ObjectClient, ObjectOperation, ObjectValue
from tribunal.results.object_transactions import Step


class OwnKeys:
    """Calls operations on objects whose keys begin as the run's do; implements `ObjectClient`. The recording has the workload's own keys."""

    def __init__(self, client: ObjectClient, beginning: str) -> None:
        self._client = client
        self._beginning = beginning

    async def call(self, operation: ObjectOperation, key: str, value: ObjectValue) -> ObjectAnswer:
        """Call an operation; the key of a transaction is those of all its objects."""
        keys = " ".join(self._beginning + one for one in key.split())
        answer = await self._client.call(operation, keys, _renamed(value, lambda one: self._beginning + one))
        said = _renamed(answer.value, lambda one: one.removeprefix(self._beginning))
        return msgspec.structs.replace(answer, value=said)

    async def close(self) -> None:
        """Release everything."""
        await self._client.close()


def _renamed(value: ObjectValue, name: Callable[[str], str]) -> ObjectValue:
    """Return the value with the keys of a transaction's steps named otherwise."""
    if not isinstance(value, tuple):
        return value
    steps = tuple(Step(one.kind, name(one.key), one.value) for one in value if isinstance(one, Step))
    return steps or value
