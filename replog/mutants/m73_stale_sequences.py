"""M73: the sequences of producers are not built again after a truncation.

Evidence: a follower that was cut leads again and takes the retry of a batch it no longer has for a duplicate: an
acknowledged record is lost. KAFKA-12153.
"""

from replog.log.log import Log

SCENARIO = "impatient-producers"


def install() -> None:
    """Keep what was known before the cut."""
    strict = Log._truncate_segments

    def _truncate_segments(self: Log, offset: int) -> None:
        producers = self.producers
        strict(self, offset)
        self.producers = producers

    Log._truncate_segments = _truncate_segments  # type: ignore[method-assign]
