"""ACLs: made, shown and deleted (KIP-140, KIP-290, KIP-801). They are kept in the metadata log; nodes with an authorizer go by them."""

from typing import Final
from uuid import UUID

from replog.config.security import STANDARD_AUTHORIZER
from replog.controller.authorization import CLUSTER, Operation, of_cluster
from replog.controller.controller_api import ControllerApi, Decided, Decider
from replog.controller.served_api import ServedApi
from replog.controller.turn import Turn
from replog.errors import Error
from replog.metadata import records as r
from replog.security.acls import Acl, AclFilter, AclOperation, PatternType, Permission, ResourceType
from replog.wire.messages import create_acls as create
from replog.wire.messages import delete_acls as delete
from replog.wire.messages import describe_acls as describe

NO_AUTHORIZER: Final = (Error.SECURITY_DISABLED, "No Authorizer is configured.")
UNKNOWN_FILTER: Final = (Error.INVALID_REQUEST, "The filter has parts that are unknown here.")
Refusal = tuple[Error, str]


def _is_enabled(decider: Decider) -> bool:
    return decider.static_configs.get("authorizer.class.name") == STANDARD_AUTHORIZER


def on_create_acls(decider: Decider, turn: Turn, body: create.CreateAclsRequest) -> create.CreateAclsResponse:
    """Add what is not there yet."""
    results = []
    for wanted in body.creations:
        acl = Acl(
            resource_type=wanted.resource_type,
            resource_name=wanted.resource_name,
            pattern_type=wanted.resource_pattern_type,
            principal=wanted.principal,
            host=wanted.host,
            operation=wanted.operation,
            permission=wanted.permission_type,
        )
        refused = _refusal(acl) if _is_enabled(decider) else NO_AUTHORIZER
        if refused is None and turn.image.acls.id_of(acl) is None:
            turn.append([r.acl_record(decider.new_topic_id(), acl)])
        error, words = refused or (Error.NONE, None)
        results.append(create.AclCreationResult(error_code=error, error_message=words))
    return create.CreateAclsResponse(results=results)


def _refusal(acl: Acl) -> Refusal | None:
    """Return what is wrong with a new entry."""
    wrong = None
    if acl.resource_type not in list(ResourceType)[ResourceType.TOPIC :]:
        wrong = f"Invalid resourceType {acl.resource_type}"
    elif acl.pattern_type not in (PatternType.LITERAL, PatternType.PREFIXED):
        wrong = f"Invalid patternType {acl.pattern_type}"
    elif acl.operation not in list(AclOperation)[AclOperation.ALL :]:
        wrong = f"Invalid operation {acl.operation}"
    elif acl.permission not in (Permission.DENY, Permission.ALLOW):
        wrong = f"Invalid permissionType {acl.permission}"
    elif not acl.resource_name:
        wrong = "Resource name should not be empty"
    elif acl.resource_type == ResourceType.CLUSTER and acl.resource_name != CLUSTER.name:
        wrong = f"The only valid name for the CLUSTER resource is {CLUSTER.name}"
    elif not all(acl.principal.partition(":")):
        wrong = (
            f"Could not parse principal from `{acl.principal}` (no colon is present separating the type from the name)"
        )
    elif not acl.host:
        wrong = "Host should not be empty"
    return None if wrong is None else (Error.INVALID_REQUEST, wrong)


def on_delete_acls(decider: Decider, turn: Turn, body: delete.DeleteAclsRequest) -> delete.DeleteAclsResponse:
    """Remove what each filter means, and say what that was."""
    results = []
    removed: dict[UUID, None] = {}
    for one in body.filters:
        wanted = _filter(one)
        refused = NO_AUTHORIZER if not _is_enabled(decider) else None if wanted.is_known else UNKNOWN_FILTER
        if refused is not None:
            results.append(delete.DeleteAclsFilterResult(error_code=refused[0], error_message=refused[1]))
            continue
        meant = {acl_id: acl for acl_id, acl in turn.image.acls.by_id.items() if wanted.means(acl)}
        removed.update(dict.fromkeys(meant))
        results.append(
            delete.DeleteAclsFilterResult(error_message=None, matching_acls=[_matching(acl) for acl in meant.values()])
        )
    turn.append([r.RemoveAccessControlEntryRecord(id=acl_id) for acl_id in removed])
    return delete.DeleteAclsResponse(filter_results=results)


def _filter(one: delete.DeleteAclsFilter | describe.DescribeAclsRequest) -> AclFilter:
    return AclFilter(
        resource_type=one.resource_type_filter,
        resource_name=one.resource_name_filter,
        pattern_type=one.pattern_type_filter,
        principal=one.principal_filter,
        host=one.host_filter,
        operation=one.operation,
        permission=one.permission_type,
    )


def _matching(acl: Acl) -> delete.DeleteAclsMatchingAcl:
    return delete.DeleteAclsMatchingAcl(
        error_message=None,
        resource_type=acl.resource_type,
        resource_name=acl.resource_name,
        pattern_type=acl.pattern_type,
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission_type=acl.permission,
    )


def on_describe_acls(decider: Decider, turn: Turn, body: describe.DescribeAclsRequest) -> describe.DescribeAclsResponse:
    """Show what a filter means, by resource."""
    wanted = _filter(body)
    refused = NO_AUTHORIZER if not _is_enabled(decider) else None if wanted.is_known else UNKNOWN_FILTER
    if refused is not None:
        return describe.DescribeAclsResponse(error_code=refused[0], error_message=refused[1])
    resources: dict[tuple[int, str, int], list[describe.AclDescription]] = {}
    for acl in turn.image.acls.by_id.values():
        if wanted.means(acl):
            shown = describe.AclDescription(
                principal=acl.principal, host=acl.host, operation=acl.operation, permission_type=acl.permission
            )
            resources.setdefault((acl.resource_type, acl.resource_name, acl.pattern_type), []).append(shown)
    return describe.DescribeAclsResponse(
        error_message=None,
        resources=[
            describe.DescribeAclsResource(resource_type=kind, resource_name=name, pattern_type=pattern, acls=acls)
            for (kind, name, pattern), acls in sorted(resources.items(), key=_place)
        ],
    )


def _place(item: tuple[tuple[int, str, int], list[describe.AclDescription]]) -> tuple[int, str, int]:
    return item[0]


def _none_created(body: create.CreateAclsRequest, error: Error) -> create.CreateAclsResponse:
    return create.CreateAclsResponse(
        results=[create.AclCreationResult(error_code=error, error_message=None) for _ in body.creations]
    )


def _none_deleted(body: delete.DeleteAclsRequest, error: Error) -> delete.DeleteAclsResponse:
    return delete.DeleteAclsResponse(
        filter_results=[delete.DeleteAclsFilterResult(error_code=error, error_message=None) for _ in body.filters]
    )


_MAY_ALTER: Final = (of_cluster(Operation.ALTER),)
CREATE_ACLS: Final = ControllerApi(
    ServedApi(create.EXCHANGE, questions=_MAY_ALTER, refuse=_none_created), decide=on_create_acls
)
DELETE_ACLS: Final = ControllerApi(
    ServedApi(delete.EXCHANGE, questions=_MAY_ALTER, refuse=_none_deleted), decide=on_delete_acls
)
DESCRIBE_ACLS: Final = ControllerApi(
    ServedApi(describe.EXCHANGE, questions=(of_cluster(Operation.DESCRIBE),), changes_nothing=True),
    decide=on_describe_acls,
)
APIS: Final[tuple[Decided, ...]] = (CREATE_ACLS, DELETE_ACLS, DESCRIBE_ACLS)
