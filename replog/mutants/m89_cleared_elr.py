"""M89: a change of min.insync.replicas clears the ELR, also of a partition that has nobody in sync.

Evidence: a partition without leader to the end, although everybody who was in its ELR is back with a whole log.
"""

from collections.abc import Mapping

from replog.controller import config_requests
from replog.controller.config_requests import _Resource
from replog.controller.policy import MIN_ISR
from replog.controller.turn import Turn
from replog.metadata import records as r
from replog.metadata.state import TOPIC_RESOURCE

SCENARIO = "lowered-min-isr"


def install() -> None:
    """Write what released software writes beside the new value (D5)."""
    strict = config_requests._react

    def _react(turn: Turn, resource: _Resource, names: set[str], min_isr_before: Mapping[str, int]) -> None:
        if MIN_ISR in names:
            turn.append([r.ClearElrRecord(topic_name=resource[1] if resource[0] == TOPIC_RESOURCE else "")])
        strict(turn, resource, names, min_isr_before)

    config_requests._react = _react
