"""Which listeners settings give a node, and what a certificate's name becomes."""

from typing import Any

import pytest

from replog.config import ConfigError, NodeConfig
from replog.config.listeners import SecurityProtocol
from replog.security.principals import distinguished_name, principal_of, rules_of
from tests.config.test_configuration import BROKER, IN_ZOOKEEPER_MODE

TLS = {"ssl.keystore.location": "/node.pem"}
APART = TLS | {
    "listeners": "CLIENTS://0.0.0.0:9092, INTERNAL://10.0.0.1:9093",
    "advertised.listeners": "CLIENTS://broker.example:9092",
    "listener.security.protocol.map": "CLIENTS:SSL, INTERNAL:PLAINTEXT, CONTROLLER:SSL",
    "inter.broker.listener.name": "INTERNAL",
    "controller.listener.names": "CONTROLLER",
}


def test_clients_brokers_and_controllers_have_listeners_of_their_own() -> None:
    config = NodeConfig(BROKER | APART)

    found = [(one.name, one.protocol.value, str(one.endpoint), str(one.advertised)) for one in config.listeners.brokers]
    assert found == [
        ("CLIENTS", "SSL", "0.0.0.0:9092", "broker.example:9092"),
        ("INTERNAL", "PLAINTEXT", "10.0.0.1:9093", "10.0.0.1:9093"),
    ]
    assert config.listeners.inter_broker == "INTERNAL"
    assert not config.broker_access.has_tls
    assert config.controller_access.has_tls


def test_a_node_of_both_roles_has_its_controllers_listener_by_name() -> None:
    config = NodeConfig(
        BROKER
        | {"process.roles": "broker,controller", "controller.listener.names": "CONTROLLER"}
        | {"listeners": "PLAINTEXT://a:1, CONTROLLER://a:2"}
    )

    assert [one.name for one in config.listeners.brokers] == ["PLAINTEXT"]
    assert [str(one.endpoint) for one in config.listeners.controllers] == ["a:2"]
    assert config.listeners.controller_protocol is SecurityProtocol.PLAINTEXT


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        pytest.param({"listeners": "A://a:1"}, "does not say how listener 'A'", id="no protocol"),
        pytest.param({"listener.security.protocol.map": "A:TLS"}, "'A:TLS' is not NAME:PROTOCOL", id="protocol"),
        pytest.param({"listeners": "a:1, b:2"}, "each needs a name, 'a:1' has none", id="no name"),
        pytest.param({"listeners": "SSL://a:1"}, "needs 'ssl.keystore.location'", id="no certificate"),
        pytest.param(TLS | {"listeners": "SSL://a:1, SSL://a:2"}, "names 'SSL' twice", id="twice"),
        pytest.param({"advertised.listeners": "SSL://a:1"}, "'advertised.listeners' names 'SSL'", id="advertised"),
        pytest.param({"inter.broker.listener.name": "SSL"}, "'listeners' names no 'SSL'", id="inter-broker"),
        pytest.param(
            APART | {"controller.listener.names": "CLIENTS,INTERNAL"}, "for brokers and clients", id="none left"
        ),
        pytest.param({"ssl.keystore.key": "k"}, "given together or not at all", id="half a key store"),
        pytest.param({"ssl.keystore.key": 7}, "must be str, not what was given", id="secrets are not shown"),
    ],
)
def test_listeners_that_do_not_fit_are_named(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        NodeConfig(BROKER | changes)

    assert message in str(refused.value)


def test_zookeeper_mode_knows_one_plain_listener() -> None:
    with pytest.raises(ConfigError, match="it is PLAINTEXT"):
        NodeConfig(IN_ZOOKEEPER_MODE | TLS | {"listeners": "SSL://a:1"})


def test_secrets_are_in_no_text() -> None:
    chain = {"ssl.keystore.certificate.chain": "c", "ssl.keystore.key": "secret", "ssl.key.password": "secret"}

    config = NodeConfig(BROKER | chain)

    assert config.security.keystore_key == "secret"
    assert "secret" not in config.texts.values()


NAME = "CN=alice,OU=ops,O=Example"


@pytest.mark.parametrize(
    ("rules", "principal"),
    [
        pytest.param("DEFAULT", f"User:{NAME}", id="default"),
        pytest.param("", f"User:{NAME}", id="none is the default"),
        pytest.param("RULE:^CN=(.*?),OU=ops.*$/$1/", "User:alice", id="a part"),
        pytest.param("RULE:^CN=(.*?),OU=ops.*$/$1@x/U", "User:ALICE@X", id="upper case"),
        pytest.param("RULE:^CN=(.*?),OU=dev.*$/$1/L,DEFAULT", f"User:{NAME}", id="the first that fits"),
        pytest.param("RULE:^CN=(.*?),OU=dev.*$/$1/L", None, id="none fits"),
        pytest.param("RULE:alice/bob/", None, id="the whole name"),
    ],
)
def test_a_name_is_mapped_by_the_first_rule_that_fits(rules: str, principal: str | None) -> None:
    assert principal_of(NAME, rules_of(rules)) == principal


def test_a_name_is_written_with_its_last_part_first() -> None:
    subject = ((("organizationName", "Example, Inc"),), (("organizationalUnitName", "ops"),), (("commonName", "a"),))

    assert distinguished_name({"subject": subject}) == r"CN=a,OU=ops,O=Example\, Inc"
    assert distinguished_name({"subject": ((("commonName", " a  "),),)}) == r"CN=\ a \ "
    assert distinguished_name(None) is None


@pytest.mark.parametrize("rules", ["RULE:(/x/", "RULE:a/$1/", "CN=(.*)"])
def test_rules_that_are_none_are_refused(rules: str) -> None:
    with pytest.raises(ConfigError, match=r"ssl\.principal\.mapping\.rules"):
        rules_of(rules)
