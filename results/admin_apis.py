"""The words of the recording's table `admin`. They stand alone: nodes on hosts import them, and have no pyarrow."""

from enum import StrEnum
from typing import Final


class AdminApi(StrEnum):
    """What operators ask for, as the column `api` of `admin` says it."""

    CREATE_TOPIC = "create_topic"
    DELETE_TOPIC = "delete_topic"
    DELETE_RECORDS = "delete_records"
    SET_CONFIG = "set_config"
    ELECT_LEADERS = "elect_leaders"
    ALTER_OFFSET = "alter_offset"
    DELETE_OFFSET = "delete_offset"
    DELETE_GROUP = "delete_group"
    REASSIGN = "reassign"
    ADD_PARTITIONS = "add_partitions"
    FENCE_PRODUCER = "fence_producer"


UNCLEAN: Final = "unclean"  # `value` of an election that was ordered, and
PREFERRED: Final = "preferred"
