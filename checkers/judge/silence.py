"""How long a producer may have written nothing to a partition: its leader forgets it after `producer.id.expiration.ms`.

What it sent is written at some moment between its being sent and its answer; what nobody answered may never have been written.
"""

import numpy as np

from tribunal.checkers.api import Array


def longest_silence(sent_ns: Array, answered_ns: Array, since_ns: int, until_ns: int) -> tuple[int, int]:
    """Return how long a producer wrote nothing at most, of the time between two moments, and when that was over.

    sent_ns, answered_ns:  of each of its acknowledged records, which was written in between; in any order.
    """
    within = (sent_ns >= since_ns) & (answered_ns <= until_ns)
    order = np.argsort(sent_ns[within], kind="stable")
    begins = np.append(since_ns, sent_ns[within][order])
    # A silence lasts until the first answer to what was sent since it began.
    answered = np.append(answered_ns[within][order], until_ns)
    ends = np.minimum.accumulate(answered[::-1])[::-1]
    longest = int(np.argmax(ends - begins))
    return int(ends[longest] - begins[longest]), int(ends[longest])
