"""The standard authorizer: the hook's answers from the ACLs of the metadata log (KIP-801).

Super users may do everything. Answers are remembered until the ACLs change: a fetch asks of every partition each time.
"""

from collections.abc import Callable
from typing import Final

from replog.config.security import SecurityConfig
from replog.controller.authorization import SOME_TOPIC, May, Operation, Peer, Resource, allow_all
from replog.metadata.acl_index import AclIndex
from replog.metadata.image import Image
from replog.security.acls import AclOperation, ResourceType, Wanted, permits, permits_some

ANSWERS_MAX: Final = 10_000
REMEMBERED_NAME_MAX: Final = 1_000  # characters: who asks about longer ones fills no memory with them
KINDS: Final = {
    "topic": ResourceType.TOPIC,
    SOME_TOPIC.kind: ResourceType.TOPIC,
    "group": ResourceType.GROUP,
    "cluster": ResourceType.CLUSTER,
    "transactional_id": ResourceType.TRANSACTIONAL_ID,
}
Question = tuple[Peer, Operation, Resource]


class StandardAuthorizer:
    """One node's answers."""

    def __init__(self, config: SecurityConfig, image: Callable[[], Image]) -> None:
        self._super_users = frozenset(user.strip() for user in config.super_users.split(";") if user.strip())
        self._without_any = config.everyone_without_acl
        self._image = image
        self._known: tuple[AclIndex | None, int] = (None, 0)  # of which the answers are
        self._answers: dict[Question, bool] = {}

    def may(self, peer: Peer, operation: Operation, resource: Resource) -> bool:
        """Return whether somebody may do something."""
        if peer.principal in self._super_users:
            return True
        acls = self._image().acls
        if self._known != (acls, acls.changes) or len(self._answers) >= ANSWERS_MAX:
            self._answers.clear()
            self._known = (acls, acls.changes)
        question = (peer, operation, resource)
        answer = self._answers.get(question)
        if answer is None:
            answer = self._answer(acls, *question)
            if len(resource.name) <= REMEMBERED_NAME_MAX:
                self._answers[question] = answer
        return answer

    @property
    def remembered_count(self) -> int:
        """How many answers are remembered."""
        return len(self._answers)

    def _answer(self, acls: AclIndex, peer: Peer, operation: Operation, resource: Resource) -> bool:
        kind = KINDS[resource.kind]
        wanted = Wanted(peer.principal, peer.host, AclOperation(operation), kind, resource.name)
        if resource == SOME_TOPIC:
            return permits_some(acls.by_id.values(), wanted, without_any=self._without_any)
        return permits(acls.of(kind, resource.name), wanted, without_any=self._without_any)


def hook_of(config: SecurityConfig, image: Callable[[], Image], otherwise: May) -> May:
    """Return what the settings want to be asked; `otherwise` where they name no authorizer."""
    assert otherwise is allow_all or not config.authorizer_class, "one hook, not two"
    return StandardAuthorizer(config, image).may if config.authorizer_class else otherwise
