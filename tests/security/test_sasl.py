"""SASL by hand: the RFCs' own examples, and every wrong way in."""

import base64

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from replog.config import ConfigError
from replog.config.access import Access
from replog.config.jaas import PLAIN_MODULE, SCRAM_MODULE, secrets_of
from replog.errors import Error
from replog.node.net.login import Login, SaslDoor, Stage
from replog.security.sasl import MECHANISMS, SaslClient
from replog.security.scram import (
    AuthenticationFailed,
    ClientExchange,
    Credential,
    ScramMechanism,
    ServerExchange,
    credential_of,
    salted,
)
from replog.wire.apis import Api
from replog.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from replog.wire.messages.sasl_handshake import SaslHandshakeRequest

SALT = b"salt"


def credential(mechanism: ScramMechanism, password: str) -> Credential:
    return credential_of(mechanism, salted(mechanism, password, salt=SALT, iterations=4096), salt=SALT, iterations=4096)


USERS = {(one, "alice"): credential(one, "secret") for one in ScramMechanism}


def a_login(*mechanisms: str, session_ms_max: int = 0) -> Login:
    return Login(
        SaslDoor(
            mechanisms=mechanisms or MECHANISMS,
            passwords={"alice": "secret"},
            credential_of=lambda mechanism, user: USERS.get((mechanism, user)),
            nonce=lambda: "server",
            session_ms_max=session_ms_max,
        )
    )


def log_in(login: Login, mechanism: str, user: str, password: str, now_ms: int = 0) -> Error:
    """Go through the exchange; return the error of the last answer."""
    agreed = login.handshake(SaslHandshakeRequest(mechanism=mechanism), 1)
    if agreed.error_code is not Error.NONE:
        return agreed.error_code
    client = SaslClient(Access(mechanism=mechanism, user=user, password=password), "client")
    token: bytes | None = client.first
    while token is not None:
        answer = login.authenticate(SaslAuthenticateRequest(auth_bytes=token), now_ms)
        if answer.error_code is not Error.NONE:
            return answer.error_code
        token = client.answer(answer.auth_bytes)
    return Error.NONE


def test_the_example_of_rfc_7677() -> None:
    client = ClientExchange(ScramMechanism.SCRAM_SHA_256, "user", "pencil", "rOprNGfwEbeRWgbNEkqO")

    proof = client.on_challenge(
        b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    )
    client.on_final(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")

    assert client.first == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    assert proof == (
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    )


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize(
    ("user", "password", "error"),
    [
        pytest.param("alice", "secret", Error.NONE, id="right"),
        pytest.param("alice", "Secret", Error.SASL_AUTHENTICATION_FAILED, id="wrong password"),
        pytest.param("alice", "", Error.SASL_AUTHENTICATION_FAILED, id="no password"),
        pytest.param("bob", "secret", Error.SASL_AUTHENTICATION_FAILED, id="unknown"),
        pytest.param("", "", Error.SASL_AUTHENTICATION_FAILED, id="nobody"),
    ],
)
def test_who_knows_the_password_gets_in_and_nobody_else(mechanism: str, user: str, password: str, error: Error) -> None:
    login = a_login()

    assert log_in(login, mechanism, user, password) is error
    assert login.user == ("alice" if error is Error.NONE else None)
    assert login.admits(Api.PRODUCE, 0) == (error is Error.NONE)
    assert (login.failure is None) == (error is Error.NONE)


TEXTS = st.text(st.characters(codec="utf-8"), max_size=20)


@settings(max_examples=30)
@given(user=TEXTS.filter(bool), password=TEXTS)
def test_any_name_and_password_get_in_by_scram(user: str, password: str) -> None:
    mechanism = ScramMechanism.SCRAM_SHA_256
    known = credential(mechanism, password)
    server = ServerExchange(mechanism, "server")
    client = ClientExchange(mechanism, user, password, "client")

    named = server.on_first(client.first)
    client.on_final(server.on_final(client.on_challenge(server.challenge(known)), known))

    assert named == user


@pytest.mark.parametrize(
    "message",
    [
        pytest.param(b"n,,n=alice", id="no nonce"),
        pytest.param(b"n,,r=client", id="no name"),
        pytest.param(b"p=tls-unique,,n=alice,r=client", id="channel binding"),
        pytest.param(b"n,a=bob,n=alice,r=client", id="in another's name"),
        pytest.param(b"n,,n=alice,r=client,tokenauth=true", id="delegation token"),
        pytest.param(b"\xff\xff", id="no text"),
        pytest.param(b"", id="nothing"),
    ],
)
def test_a_first_message_that_is_none_ends_the_exchange(message: bytes) -> None:
    with pytest.raises(AuthenticationFailed):
        ServerExchange(ScramMechanism.SCRAM_SHA_256, "server").on_first(message)


def test_a_proof_of_another_exchange_is_refused() -> None:
    mechanism = ScramMechanism.SCRAM_SHA_256
    known = USERS[mechanism, "alice"]
    first, second = ServerExchange(mechanism, "one"), ServerExchange(mechanism, "two")
    client = ClientExchange(mechanism, "alice", "secret", "client")
    for server in (first, second):
        server.on_first(client.first)
    proof = client.on_challenge(first.challenge(known))
    second.challenge(known)

    with pytest.raises(AuthenticationFailed, match="another exchange"):
        second.on_final(proof, known)


@pytest.mark.parametrize(
    "challenge",
    [
        pytest.param(b"r=clientserver,s=c2FsdA==,i=1", id="too few iterations"),
        pytest.param(b"r=clientserver,s=c2FsdA==,i=99999999", id="iterations without end"),
        pytest.param(b"r=server,s=c2FsdA==,i=4096", id="another nonce"),
        pytest.param(b"r=client,s=c2FsdA==,i=4096", id="no nonce of its own"),
        pytest.param(b"r=clientserver,s=?,i=4096", id="no salt"),
        pytest.param("r=clientserver,s=c2FsdA==,i=²".encode(), id="a digit that is no number"),
        pytest.param(b"r=clientserver,s=c2FsdA==,i=" + b"9" * 5000, id="more digits than are read"),
    ],
)
def test_a_client_goes_on_with_no_server_that_cheats(challenge: bytes) -> None:
    client = ClientExchange(ScramMechanism.SCRAM_SHA_256, "alice", "secret", "client")

    with pytest.raises(AuthenticationFailed):
        client.on_challenge(challenge)


def test_a_client_believes_no_server_that_does_not_know_its_keys() -> None:
    mechanism = ScramMechanism.SCRAM_SHA_256
    client = ClientExchange(mechanism, "alice", "secret", "client")
    client.on_challenge(b"r=clientserver,s=c2FsdA==,i=4096")

    with pytest.raises(AuthenticationFailed):
        client.on_final(b"v=" + base64.b64encode(bytes(32)))


def test_before_a_login_nothing_is_admitted_but_what_leads_to_it() -> None:
    login = a_login()

    admitted = [api for api in Api if login.admits(api, 0)]

    assert admitted == [Api.SASL_HANDSHAKE, Api.API_VERSIONS, Api.SASL_AUTHENTICATE]


def test_a_mechanism_that_is_not_enabled_ends_the_connection() -> None:
    login = a_login("SCRAM-SHA-512")

    answer = login.handshake(SaslHandshakeRequest(mechanism="PLAIN"), 1)

    assert (answer.error_code, answer.mechanisms) == (Error.UNSUPPORTED_SASL_MECHANISM, ["SCRAM-SHA-512"])
    assert login.failure is not None


def test_tokens_without_a_handshake_and_a_second_handshake_are_refused() -> None:
    early, late = a_login(), a_login()
    log_in(late, "PLAIN", "alice", "secret")

    answers = [
        early.authenticate(SaslAuthenticateRequest(auth_bytes=b"\0alice\0secret"), 0).error_code,
        late.handshake(SaslHandshakeRequest(mechanism="PLAIN"), 1).error_code,
    ]

    assert answers == [Error.ILLEGAL_SASL_STATE] * 2
    assert early.user is None


def test_tokens_of_old_clients_come_without_headers() -> None:
    login = a_login()
    login.handshake(SaslHandshakeRequest(mechanism="PLAIN"), 0)

    assert login.stage is Stage.BARE_TOKENS
    assert login.token(b"\0alice\0secret", 0) == b""
    assert login.user == "alice"


def test_who_stays_logs_in_again_as_the_same_user() -> None:
    login = a_login(session_ms_max=1000)
    log_in(login, "SCRAM-SHA-256", "alice", "secret")

    assert login.admits(Api.FETCH, 999)
    assert not login.admits(Api.FETCH, 1000)
    assert log_in(login, "SCRAM-SHA-512", "alice", "secret", 1000) is Error.UNSUPPORTED_SASL_MECHANISM
    login.failure = None
    assert log_in(login, "SCRAM-SHA-256", "alice", "secret", 1000) is Error.NONE
    assert login.admits(Api.FETCH, 1999)


def test_names_and_passwords_are_read_by_module() -> None:
    text = (
        'org.apache.kafka.common.security.plain.PlainLoginModule required username="me" password="a \\"quoted; one" '
        'user_alice="x=y";\n org.apache.kafka.common.security.scram.ScramLoginModule required username=me password=b;'
    )

    found = secrets_of(text)

    assert found.own == {PLAIN_MODULE: ("me", 'a "quoted; one'), SCRAM_MODULE: ("me", "b")}
    assert found.plain == {"alice": "x=y"}


@pytest.mark.parametrize(
    "text", ["secret", 'PlainLoginModule required username="secret"', "Krb5LoginModule required a=secret;"]
)
def test_a_setting_that_is_no_login_is_refused_without_being_shown(text: str) -> None:
    with pytest.raises(ConfigError) as refused:
        secrets_of(text)

    assert "secret" not in str(refused.value)
