"""What users log in with by SCRAM: changed and shown (KIP-554). The client salts the password; it never comes here."""

from collections import Counter
from typing import Final

from replog.controller.authorization import Operation, of_cluster
from replog.controller.controller_api import ControllerApi, Decided, by_image
from replog.controller.served_api import ServedApi
from replog.controller.turn import Turn
from replog.errors import Error
from replog.metadata import records as r
from replog.metadata.state import SCRAM_LEVEL
from replog.security.scram import ITERATIONS_MAX, ITERATIONS_MIN, ScramMechanism, credential_of
from replog.wire.messages import alter_user_scram_credentials as alter
from replog.wire.messages import describe_user_scram_credentials as describe

KNOWN: Final = {one.value: one for one in ScramMechanism}
Refusal = tuple[Error, str]
Alteration = alter.ScramCredentialDeletion | alter.ScramCredentialUpsertion


def on_alter_credentials(
    turn: Turn, body: alter.AlterUserScramCredentialsRequest
) -> alter.AlterUserScramCredentialsResponse:
    """Set and remove credentials; of a user all of it or nothing."""
    named = Counter((one.name, one.mechanism) for one in _changes(body))
    refusals: dict[str, Refusal] = {}
    records: dict[str, list[r.MetadataRecord]] = {}
    for one in _changes(body):
        refused = _refusal(turn, one)
        if refused is None and named[one.name, one.mechanism] > 1:
            refused = (Error.DUPLICATE_RESOURCE, "A user credential cannot be altered twice in the same request")
        if refused is not None:
            refusals.setdefault(one.name, refused)
        records.setdefault(one.name, [])
        if refused is None:
            records[one.name].append(_record(one))
    for user, changes in records.items():
        if user not in refusals:
            turn.append(changes)
    return alter.AlterUserScramCredentialsResponse(
        results=[
            alter.AlterUserScramCredentialsResult(user=user, error_code=error, error_message=words)
            for user in records
            for error, words in [refusals.get(user, (Error.NONE, None))]
        ]
    )


def _changes(body: alter.AlterUserScramCredentialsRequest) -> list[Alteration]:
    return [*body.deletions, *body.upsertions]


def _refusal(turn: Turn, one: Alteration) -> Refusal | None:
    if turn.image.metadata_version < SCRAM_LEVEL:
        return Error.UNSUPPORTED_VERSION, "The metadata version is too old for SCRAM credentials"
    if one.mechanism not in KNOWN:
        return Error.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism"
    if not one.name:
        return Error.UNACCEPTABLE_CREDENTIAL, "Username must not be empty"
    if isinstance(one, alter.ScramCredentialDeletion):
        if (one.name, one.mechanism) not in turn.image.scram_credentials:
            return Error.RESOURCE_NOT_FOUND, "Attempt to delete a user credential that does not exist"
    elif one.iterations < ITERATIONS_MIN:
        return Error.UNACCEPTABLE_CREDENTIAL, "Too few iterations"
    elif one.iterations > ITERATIONS_MAX:
        return Error.UNACCEPTABLE_CREDENTIAL, "Too many iterations"
    elif not one.salt or not one.salted_password:
        return Error.UNACCEPTABLE_CREDENTIAL, "Salt and salted password must not be empty"
    return None


def _record(one: Alteration) -> r.MetadataRecord:
    if isinstance(one, alter.ScramCredentialDeletion):
        return r.RemoveUserScramCredentialRecord(name=one.name, mechanism=one.mechanism)
    made = credential_of(
        KNOWN[one.mechanism], bytes(one.salted_password), salt=bytes(one.salt), iterations=one.iterations
    )
    return r.UserScramCredentialRecord(
        name=one.name,
        mechanism=one.mechanism,
        salt=made.salt,
        stored_key=made.stored_key,
        server_key=made.server_key,
        iterations=made.iterations,
    )


def on_describe_credentials(
    turn: Turn, body: describe.DescribeUserScramCredentialsRequest
) -> describe.DescribeUserScramCredentialsResponse:
    """Say which mechanisms users have credentials of, and nothing of what they are."""
    by_user: dict[str, list[describe.CredentialInfo]] = {}
    for (user, mechanism), record in sorted(turn.image.scram_credentials.items()):
        info = describe.CredentialInfo(mechanism=mechanism, iterations=record.iterations)
        by_user.setdefault(user, []).append(info)
    named = Counter(user.name for user in body.users or [])
    return describe.DescribeUserScramCredentialsResponse(
        error_message=None, results=[_described(by_user, user, named[user]) for user in named or by_user]
    )


def _described(
    by_user: dict[str, list[describe.CredentialInfo]], user: str, count: int
) -> describe.DescribeUserScramCredentialsResult:
    if count > 1:
        words = f"Cannot describe SCRAM credentials for the same user twice in a single request: {user}"
        return describe.DescribeUserScramCredentialsResult(
            user=user, error_code=Error.DUPLICATE_RESOURCE, error_message=words
        )
    if user not in by_user:
        words = f"Attempt to describe a user credential that does not exist: {user}"
        return describe.DescribeUserScramCredentialsResult(
            user=user, error_code=Error.RESOURCE_NOT_FOUND, error_message=words
        )
    return describe.DescribeUserScramCredentialsResult(user=user, error_message=None, credential_infos=by_user[user])


def _unaltered(body: alter.AlterUserScramCredentialsRequest, error: Error) -> alter.AlterUserScramCredentialsResponse:
    users = dict.fromkeys(one.name for one in _changes(body))
    return alter.AlterUserScramCredentialsResponse(
        results=[
            alter.AlterUserScramCredentialsResult(user=user, error_code=error, error_message=None) for user in users
        ]
    )


ALTER_CREDENTIALS: Final = ControllerApi(
    ServedApi(alter.EXCHANGE, questions=(of_cluster(Operation.ALTER),), refuse=_unaltered),
    decide=by_image(on_alter_credentials),
)
DESCRIBE_CREDENTIALS: Final = ControllerApi(
    ServedApi(describe.EXCHANGE, questions=(of_cluster(Operation.DESCRIBE),), changes_nothing=True),
    decide=by_image(on_describe_credentials),
)
APIS: Final[tuple[Decided, ...]] = (ALTER_CREDENTIALS, DESCRIBE_CREDENTIALS)
