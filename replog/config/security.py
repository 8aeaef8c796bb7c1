"""Who may connect: certificates, names and passwords."""

from typing import Annotated, Final, Literal

import msgspec

from replog.config.setting import Long, Secret, kafka, ours, without_effect

STANDARD_AUTHORIZER: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
Mechanism = Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]
NoMechanism = Literal["", "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]


class SecurityConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Who may connect, and how it is shown who that is. What a listener asks for says `listener.security.protocol.map`."""

    keystore_type: Annotated[
        Literal["PEM"], without_effect("ssl.keystore.type", "PEM is the only form; Kafka's default is JKS.")
    ] = "PEM"
    keystore_location: Annotated[
        str,
        kafka(
            "ssl.keystore.location",
            "A PEM file with this node's private key and its certificates. "
            "New connections use what the file holds when they come.",
        ),
    ] = ""
    keystore_chain: Annotated[
        Secret,
        kafka("ssl.keystore.certificate.chain", "This node's certificates as PEM text, instead of a file."),
    ] = ""
    keystore_key: Annotated[Secret, kafka("ssl.keystore.key", "The private key to them as PEM text.")] = ""
    key_password: Annotated[Secret, kafka("ssl.key.password", "The password of the private key, if it has one.")] = ""
    truststore_type: Annotated[
        Literal["PEM"], without_effect("ssl.truststore.type", "PEM is the only form; Kafka's default is JKS.")
    ] = "PEM"
    truststore_location: Annotated[
        str,
        kafka(
            "ssl.truststore.location",
            "A PEM file with the certificates by which those of others are checked. It is read anew as the key store's.",
        ),
    ] = ""
    truststore_certificates: Annotated[
        Secret, kafka("ssl.truststore.certificates", "The same as PEM text, instead of a file.")
    ] = ""
    client_auth: Annotated[
        Literal["none", "requested", "required"],
        kafka("ssl.client.auth", "Whether who connects by TLS has to show a certificate."),
    ] = "none"
    endpoint_identification: Annotated[
        Literal["https", ""],
        kafka(
            "ssl.endpoint.identification.algorithm",
            "Whether the certificate of a node that we connect to must name its address.",
        ),
    ] = "https"
    principal_mapping_rules: Annotated[
        str,
        kafka(
            "ssl.principal.mapping.rules",
            "How the name in a certificate becomes that of a user: `RULE:pattern/replacement/[LU]` and `DEFAULT`, "
            "the first that fits. Who has none that fits is refused.",
        ),
    ] = "DEFAULT"
    sasl_mechanisms: Annotated[
        tuple[Mechanism, ...],
        kafka("sasl.enabled.mechanisms", "How users may log in at listeners with SASL. Kafka's default is GSSAPI."),
    ] = ()
    inter_broker_mechanism: Annotated[
        NoMechanism,
        kafka("sasl.mechanism.inter.broker.protocol", "How this node logs in at brokers. Kafka's default is GSSAPI."),
    ] = ""
    controller_mechanism: Annotated[
        NoMechanism,
        kafka("sasl.mechanism.controller.protocol", "How this node logs in at controllers. Kafka's default is GSSAPI."),
    ] = ""
    jaas_config: Annotated[
        Secret,
        kafka(
            "sasl.jaas.config",
            "Names and passwords: a module for each mechanism, "
            '`PlainLoginModule required username="me" password="mine" user_alice="hers";` and '
            '`ScramLoginModule required username="me" password="mine";`. It holds for all listeners.',
        ),
    ] = ""
    plain_without_tls: Annotated[
        bool,
        ours(
            "tribunal.sasl.plain.without.tls",
            "Whether PLAIN may send passwords where everybody on the way can read them.",
        ),
    ] = False
    reauthentication_ms_max: Annotated[
        Long,
        kafka(
            "connections.max.reauth.ms",
            "A connection whose user has not logged in again after this long is closed; 0: never.",
        ),
    ] = 0
    authorizer_class: Annotated[
        Literal["", "org.apache.kafka.metadata.authorizer.StandardAuthorizer"],
        kafka(
            "authorizer.class.name",
            "Who decides what users may do: nobody, or the ACLs of the metadata log. All nodes have the same.",
        ),
    ] = ""
    super_users: Annotated[
        str,
        kafka(
            "super.users",
            "Who may do everything, as `User:a;User:b`. The nodes' own principals belong to them: they act for others.",
        ),
    ] = ""
    everyone_without_acl: Annotated[
        bool, kafka("allow.everyone.if.no.acl.found", "Whether everybody may do everything with what has no ACL.")
    ] = False
