"""What an administrator of a secured cluster does: lets the load's clients in, gives them another password, renews certificates.

What nodes then show and refuse is tried over connections of the harness's own, past all links.
"""

import asyncio
import contextlib
import ssl
from collections.abc import Mapping, Sequence
from typing import Final

from replog.errors import Error
from replog.security.acls import AclOperation, PatternType, Permission, ResourceType
from replog.security.scram import ITERATIONS_MIN, AuthenticationFailed, ScramMechanism, salted
from replog.wire.messages import alter_user_scram_credentials as auc
from replog.wire.messages import create_acls as ca
from tribunal.clusters.api import Proof, Unsettled
from tribunal.clusters.clients.administration import Administration
from tribunal.clusters.clients.asking import FAILURES, Asking
from tribunal.clusters.secured.authority import serial_number
from tribunal.clusters.secured.run_security import LOAD, LoadLogin, RunSecurity, fresh_password

CLIENT_ID: Final = "tribunal-logins"
TRY_MS: Final = 10_000  # a busy machine takes its time, and silence is no refusal
KNOWN_MS: Final = 20_000
RETRY_MS: Final = 50
ACLS_VERSION: Final = 2
SALT: Final = b"tribunal: no secret"
ANY_NAME: Final = "*"
CLUSTER_NAME: Final = "kafka-cluster"
# What the load's clients do: no more, so that whatever else they ask for is refused.
ALLOWED: Final[Sequence[tuple[ResourceType, str, AclOperation]]] = (
    (ResourceType.TOPIC, ANY_NAME, AclOperation.READ),
    (ResourceType.TOPIC, ANY_NAME, AclOperation.WRITE),
    (ResourceType.GROUP, ANY_NAME, AclOperation.READ),
    (ResourceType.TRANSACTIONAL_ID, ANY_NAME, AclOperation.WRITE),
    (ResourceType.CLUSTER, CLUSTER_NAME, AclOperation.IDEMPOTENT_WRITE),
)


class SecuredOperation:
    """Orders about who may come in, and looks at what came of them.

    endpoints:  where the nodes themselves listen.
    """

    def __init__(
        self, security: RunSecurity, administration: Administration, endpoints: Mapping[int, tuple[str, int]]
    ) -> None:
        self._security = security
        self._administration = administration
        self._endpoints = endpoints

    @property
    def load(self) -> LoadLogin:
        """As whom the load's clients log in."""
        return self._security.load

    async def admit_load(self, brokers: Sequence[int]) -> None:
        """Let the load's clients in: ACLs first, so that who knows the password knows them as well."""
        await self._administration.insist(ca.EXCHANGE, ACLS_VERSION, acls_of_load(), acl_errors)
        await self._set_password(self.load.password)
        await self._known(brokers, self.load.password)

    async def change_password(self, brokers: Sequence[int]) -> Proof:
        """Change it at the cluster, then give it to the clients; proven at these brokers: the new one is taken, the old one is not."""
        old, new = self.load.password, fresh_password()
        await self._set_password(new)
        clients = self.load.change(new)
        try:
            await self._known(brokers, new)
        except Unsettled as problem:
            return Proof(holds=False, facts={"clients": clients, "missing": str(problem)})
        old_taken = [broker for broker in brokers if await self.takes(broker, old) is not False]
        facts = {"clients": clients, "taken_by": list(brokers), "old_one_not_refused_by": old_taken}
        return Proof(holds=bool(brokers) and not old_taken, facts=facts)

    async def renew_certificate(self, node: int, *, is_expired: bool) -> Proof:
        """Put another certificate into a node's file; proven by what it then shows, and by who checks that."""
        before = await self._shown(node)
        serial = self._security.issue_again(node, is_expired=is_expired)
        shown = await self._shown(node)
        refusal = await self._refusal(node)
        taken = refusal is not None and ("expired" in refusal if is_expired else refusal == "")
        facts: dict[str, object] = {
            "serial_before": hex(before or 0),
            "serial_now": hex(shown or 0),
            "refused": refusal,
        }
        return Proof(holds=before not in (None, serial) and shown == serial and taken, facts=facts)

    async def _shown(self, node: int) -> int | None:
        """Return the serial number of what a node shows, whether it is to be trusted or not; None when it shows nothing."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        with contextlib.suppress(OSError, TimeoutError):
            return serial_number(await self._greeted(node, context))
        return None

    async def _refusal(self, node: int) -> str | None:
        """Return why a node's certificate is refused by who checks it; empty: it is not; None: it shows none."""
        try:
            await self._greeted(node, self._security.context)
        except ssl.SSLCertVerificationError as problem:
            return problem.verify_message
        except (OSError, TimeoutError):
            return None
        return ""

    async def _greeted(self, node: int, context: ssl.SSLContext) -> bytes:
        """Return the certificate that a node shows to a new connection."""
        async with asyncio.timeout(TRY_MS / 1000):
            _, writer = await asyncio.open_connection(*self._endpoints[node], ssl=context)
        try:
            connection: ssl.SSLObject = writer.get_extra_info("ssl_object")
            return connection.getpeercert(binary_form=True) or b""
        finally:
            writer.transport.abort()

    async def _set_password(self, password: str) -> None:
        body = await asyncio.to_thread(new_password, password)
        await self._administration.insist(auc.EXCHANGE, 0, body, password_errors)

    async def _known(self, brokers: Sequence[int], password: str) -> None:
        """Wait until these brokers take the password."""
        deadline = asyncio.get_running_loop().time() + KNOWN_MS / 1000
        for broker in brokers:
            while await self.takes(broker, password) is not True:
                if asyncio.get_running_loop().time() > deadline:
                    raise Unsettled(f"broker {broker} takes the password of {LOAD}: not within {KNOWN_MS} ms")
                await asyncio.sleep(RETRY_MS / 1000)

    async def takes(self, node: int, password: str) -> bool | None:
        """Return whether a broker lets the load in with this password; None when it does not answer."""
        try:
            asking = await Asking.open(self._endpoints[node], CLIENT_ID, TRY_MS, self.load.door(password))
        except AuthenticationFailed:
            return False
        except FAILURES:
            return None
        asking.close()
        return True


def acls_of_load() -> ca.CreateAclsRequest:
    """Return the request for what the load's clients may do."""
    return ca.CreateAclsRequest(
        creations=[
            ca.AclCreation(
                resource_type=kind,
                resource_name=name,
                resource_pattern_type=PatternType.LITERAL,
                principal=f"User:{LOAD}",
                host=ANY_NAME,
                operation=operation,
                permission_type=Permission.ALLOW,
            )
            for kind, name, operation in ALLOWED
        ]
    )


def acl_errors(answer: ca.CreateAclsResponse) -> list[Error]:
    """Return all error codes."""
    return [each.error_code for each in answer.results]


def new_password(password: str) -> auc.AlterUserScramCredentialsRequest:
    """Return the request for another password of the load's clients; salting takes its time."""
    mechanism = ScramMechanism.SCRAM_SHA_512
    wanted = auc.ScramCredentialUpsertion(
        name=LOAD,
        mechanism=mechanism.value,
        iterations=ITERATIONS_MIN,
        salt=SALT,
        salted_password=salted(mechanism, password, salt=SALT, iterations=ITERATIONS_MIN),
    )
    return auc.AlterUserScramCredentialsRequest(upsertions=[wanted])


def password_errors(answer: auc.AlterUserScramCredentialsResponse) -> list[Error]:
    """Return all error codes."""
    return [each.error_code for each in answer.results]
