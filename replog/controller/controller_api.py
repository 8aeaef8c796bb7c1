"""An API that the active controller decides: what is known of it, and the decision, as one value."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Generic, Protocol, cast
from uuid import UUID

import msgspec

from replog.controller.creation_rate import CreationRate
from replog.controller.heartbeat import Sessions
from replog.controller.mutation_quotas import MutationQuotas
from replog.controller.recoveries import Recoveries
from replog.controller.served_api import AnyServedApi, ServedApi
from replog.controller.turn import Turn
from replog.wire.exchange import Q, R

if TYPE_CHECKING:
    from random import Random


class Decider(Protocol):
    """What a decision may need of the controller beyond the image, which the turn has."""

    sessions: Sessions
    recoveries: Recoveries
    creations: CreationRate
    mutations: MutationQuotas
    static_configs: Mapping[str, str]
    random: "Random"

    @property
    def new_topic_id(self) -> Callable[[], UUID]:
        """Draw an id for a new topic."""


class Decided(Protocol):
    """An API of any types that the controller decides."""

    @property
    def any_served(self) -> AnyServedApi:
        """What is known of it, whatever its types."""

    def answer(self, decider: Decider, turn: Turn, body: msgspec.Struct) -> msgspec.Struct:
        """Decide on a request of its type."""


class ControllerApi(Generic[Q, R]):
    """What is known of an API, and how the controller decides on it."""

    def __init__(self, served: ServedApi[Q, R], decide: Callable[[Decider, Turn, Q], R]) -> None:
        self.served = served
        self.decide = decide

    @property
    def any_served(self) -> AnyServedApi:
        """What is known of it, whatever its types."""
        return cast(AnyServedApi, self.served)

    def answer(self, decider: Decider, turn: Turn, body: msgspec.Struct) -> msgspec.Struct:
        """Decide on a request of its type."""
        return self.decide(decider, turn, cast(Q, body))


def by_image(decide: Callable[[Turn, Q], R]) -> Callable[[Decider, Turn, Q], R]:
    """Return a decision that needs nothing but the image."""
    return lambda _, turn, body: decide(turn, body)
