"""The names under which a recording has topics.

A topic that is deleted and created again by the same name is another place: its offsets and leader epochs begin anew, and nothing that was
promised of the one holds for the other. The first of a name has that name, each later one `name@2`, `name@3`: no topic can be called so.
"""

from typing import Final

MARK: Final = "@"


class TopicNames:
    """Distinguishes topics of one name by their ids, in the order in which it gets to know them."""

    def __init__(self) -> None:
        self._known: dict[str, dict[str, str]] = {}  # by name and id

    def is_shared(self, topic: str) -> bool:
        """Whether there has been more than one topic of a name."""
        return len(self._known.get(topic, ())) > 1

    def of(self, topic: str, topic_id: str | None) -> str:
        """Return the recorded name of a topic; without an id it is the first of its name."""
        if topic_id is None:
            return topic
        known = self._known.setdefault(topic, {})
        if topic_id not in known:
            known[topic_id] = f"{topic}{MARK}{len(known) + 1}" if known else topic
        return known[topic_id]

    def behind(self, topic: str, topic_id: str | None) -> str:
        """Return the recorded name that the topic has, or will have, which comes behind one of its name."""
        if topic_id is None:
            return topic
        self.of(topic, topic_id)
        return f"{topic}{MARK}{[*self._known[topic]].index(topic_id) + 2}"

    def newest(self, topic: str) -> str | None:
        """Return the id of the topic of a name that it got to know last; None: of none."""
        return next(reversed(self._known.get(topic, {})), None)
