"""M42: recovery compares no checksums.

Evidence: what a crash left of the last batch stays in the log: checksum errors at consumers and followers, an ISR that does not
grow.
"""

from replog.log import recovery
from replog.log.batch import BatchHeader

SCENARIO = "disks"


def install() -> None:
    """Believe every batch that is long enough."""

    def has_valid_crc(view: memoryview, header: BatchHeader) -> bool:
        return True

    recovery.has_valid_crc = has_valid_crc  # type: ignore[attr-defined]
