"""The last stable offsets that a partition's leaders show (I18), also from one leader to the next.

Within a leader epoch it never goes back. Between two leaders it may, as long as the later one knows less to be committed
(KIP-207: its high watermark is behind for a while). Once it shows the same high watermark or more, all ends of transactions
below are in its log and known to be replicated, so its last stable offset is not behind either. If it is, the leader before let
readers pass a transaction whose end was not replicated (M81). A leader may know an end to be committed that its own high watermark
has not passed (it led before, or shows a lower one than it once had): that says nothing of the next one.
"""

from typing import NamedTuple

from replog.types import TopicPartition
from tribunal.clusters.simulated.violation import Violated
from tribunal.results.violation import Grows, Invariant, WentBack


class StableOffset(NamedTuple):
    """A last stable offset beside the high watermark that it was shown with, and where the leader's log starts for readers."""

    leader_epoch: int
    high_watermark: int
    offset: int
    log_start_offset: int = 0


class StableOffsets:
    """What one partition's leaders have shown."""

    def __init__(self, partition: TopicPartition) -> None:
        self._partition = partition
        self._last: StableOffset | None = None  # of the latest leader
        self._assured = 0  # how far that one's goes by the high watermark that it was shown with
        self._before: StableOffset | None = None  # of the leaders before: where the high watermark was farthest

    @property
    def last(self) -> StableOffset | None:
        """What the latest leader has shown last."""
        return self._last

    def show(self, shown: StableOffset, *, may_have_lost: bool, assured: int | None = None) -> None:
        """Compare; an unclean election begins anew, and a deposed leader is not believed.

        assured:  how far it goes by what lies below the high watermark that is shown with it; None: all of it.
        """
        last = self._last
        if last is not None and shown.leader_epoch < last.leader_epoch:
            return
        if may_have_lost:
            last = self._before = None
        elif last is not None and shown.leader_epoch > last.leader_epoch:
            if self._before is None or last.high_watermark >= self._before.high_watermark:
                self._before = last._replace(offset=min(last.offset, self._assured))
            last = None
        self._last, self._assured = shown, shown.offset if assured is None else assured
        self._grows(last, shown)
        if self._before is not None and shown.high_watermark >= self._before.high_watermark:
            self._grows(self._before, shown)

    def _grows(self, before: StableOffset | None, shown: StableOffset) -> None:
        if before is not None and shown.offset < before.offset:
            raise Violated(
                Invariant.I18,
                WentBack(
                    what=Grows.LAST_STABLE_OFFSET,
                    before=before.offset,
                    now=shown.offset,
                    since_epoch=before.leader_epoch,
                ),
                partition=self._partition,
                log_offset=shown.offset,
                epoch=shown.leader_epoch,
            )
