"""The node's certificates and those that it trusts, as `ssl` wants them; read anew when their files change.

A connection uses what the files hold when it comes, so that certificates are renewed without a restart. Files that cannot be read, or do
not belong together (one of two is written already), change nothing: it is said once, and tried again at the next connection.
"""

import contextlib
import os
import ssl
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

from replog.config.security import SecurityConfig

VERIFICATION: Final = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}
Shown = Mapping[str, object] | bytes | None  # of the peer's certificate
Stamp = tuple[tuple[int, int], ...]  # of each file, when it was written and how long it is


class _Connection(ssl.SSLObject):
    """One end of a connection, whose handshake fails when the peer's certificate has names that are no text.

    Some authorities sign what they are given. To asyncio an error that is no `OSError` is a mistake of the program, which ends the node.
    """

    def getpeercert(self, binary_form: bool = False) -> Shown:  # type: ignore[override]  # noqa: FBT001, FBT002 - as in `ssl`
        """Return what the peer has shown; `SSLError` where nobody can read it."""
        try:
            return super().getpeercert(binary_form)
        except ValueError as problem:
            raise ssl.SSLError(f"the peer's certificate cannot be read: {problem}") from None


class Certificates:
    """Contexts of both directions, as new as the files."""

    def __init__(self, config: SecurityConfig, log: Callable[[str, str], None]) -> None:
        self._config = config
        self._log = log
        self._server: tuple[Stamp, ssl.SSLContext] | None = None
        self._client: tuple[Stamp, ssl.SSLContext] | None = None
        self._failed: Stamp | None = None

    def for_listening(self) -> ssl.SSLContext:
        """Return the context of a listener; each connection is given the newest. `OSError` when there is none at all."""
        context = self._newest_server()
        context.sni_callback = self._renew
        return context

    def for_connecting(self) -> ssl.SSLContext:
        """Return the context of a connection to another node. `OSError` when there is none."""
        self._client = self._renewed(self._client, self._client_context)
        return self._client[1]

    def _newest_server(self) -> ssl.SSLContext:
        self._server = self._renewed(self._server, self._server_context)
        return self._server[1]

    def _renew(self, connection: ssl.SSLObject, _: str | None, context: ssl.SSLContext) -> None:
        newest = self._newest_server()
        if newest is not context:
            connection.context = newest

    def _renewed(
        self, known: tuple[Stamp, ssl.SSLContext] | None, make: Callable[[], ssl.SSLContext]
    ) -> tuple[Stamp, ssl.SSLContext]:
        stamp = self._stamp()
        if known is not None and stamp in (known[0], self._failed):
            return known
        try:
            made = make()
        except OSError as problem:  # of the files, or of what is in them
            if known is None:
                raise
            self._failed = stamp
            self._log("warning", f"the certificates stay as they were: {problem}")
            return known
        if known is not None:
            self._log("info", "the certificates were read anew")
        return stamp, made

    def _stamp(self) -> Stamp:
        found = []
        for path in (self._config.keystore_location, self._config.truststore_location):
            with contextlib.suppress(OSError):  # of a folder that is being replaced, for one
                status = os.stat(path) if path else None  # noqa: PTH116 - for every connection
                found.append((status.st_mtime_ns, status.st_size) if status else (0, 0))
        return tuple(found)

    def _server_context(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.verify_mode = VERIFICATION[self._config.client_auth]
        # Whoever comes again shows his certificate again: it may not be trusted any more.
        context.options |= ssl.OP_NO_TICKET
        context.num_tickets = 0
        return self._with_stores(context)

    def _client_context(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = bool(self._config.endpoint_identification)
        return self._with_stores(context)

    def _with_stores(self, context: ssl.SSLContext) -> ssl.SSLContext:
        config = self._config
        context.sslobject_class = _Connection
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        with _keystore(config) as path:
            if path:
                context.load_cert_chain(path, password=config.key_password)
        if config.truststore_certificates:
            context.load_verify_locations(cadata=config.truststore_certificates)
        if config.truststore_location:
            context.load_verify_locations(cafile=config.truststore_location)
        return context


@contextlib.contextmanager
def _keystore(config: SecurityConfig) -> Iterator[str]:
    """Give a file with key and certificates: `ssl` reads no others."""
    if not config.keystore_chain:
        yield config.keystore_location
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "keystore.pem"
        path.touch(mode=0o600)
        path.write_text(f"{config.keystore_key}\n{config.keystore_chain}\n")
        yield str(path)
