"""M56: a controller counts broker epochs itself, from 1.

Evidence: after another controller took over, two incarnations of a broker share an epoch, or a later one has a smaller one; checks
by epoch are passed wrongly.
"""

from weakref import WeakKeyDictionary

from msgspec.structs import replace

from replog.controller import broker_requests
from replog.controller.policy import Policy
from replog.controller.registration import Registration, register
from replog.metadata.records import RegisterBrokerRecord
from replog.types import BrokerEpoch
from replog.wire.messages.broker_registration import BrokerRegistrationRequest

SCENARIO = "restarts"


def install() -> None:
    """Take a counter of the process, not the offset of the record."""
    counts: WeakKeyDictionary[Policy, int] = WeakKeyDictionary()

    def counting(
        policy: Policy, request: BrokerRegistrationRequest, *, session_valid: bool, next_offset: int
    ) -> Registration:
        outcome = register(policy, request, session_valid=session_valid, next_offset=next_offset)
        if outcome.shutdown is None:
            return outcome
        epoch = BrokerEpoch(counts.get(policy, 0) + 1)
        counts[policy] = epoch
        record = outcome.records[-1]
        assert isinstance(record, RegisterBrokerRecord)
        return outcome._replace(records=[*outcome.records[:-1], replace(record, broker_epoch=epoch)], epoch=epoch)

    broker_requests.register = counting  # type: ignore[attr-defined]
