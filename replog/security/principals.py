"""What somebody is called who has shown a certificate: its distinguished name, mapped by `ssl.principal.mapping.rules`.

The name is written as RFC 2253 says, the last part first, as Kafka's brokers have it: `CN=client,OU=ops,O=example`.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from replog.config.endpoints import ConfigError

SHORT: Final = {
    "commonName": "CN",
    "organizationalUnitName": "OU",
    "organizationName": "O",
    "localityName": "L",
    "stateOrProvinceName": "ST",
    "countryName": "C",
    "streetAddress": "STREET",
    "domainComponent": "DC",
    "userId": "UID",
}
ANONYMOUS_USER: Final = "User:ANONYMOUS"
_RULE: Final = re.compile(r"RULE:((?:\\/|[^/])*)/((?:\\/|[^/])*)/([LU]?)")
_GROUP: Final = re.compile(r"\$(\d+)")

Subject = Sequence[Sequence[tuple[str, str]]]


class Rule(NamedTuple):
    """One of the rules: the whole name must fit the pattern."""

    pattern: re.Pattern[str]
    replacement: str
    case: str

    def mapped(self, name: str) -> str | None:
        """Return what the name becomes; None when it does not fit."""
        found = self.pattern.fullmatch(name)
        if found is None:
            return None
        result = _GROUP.sub(lambda group: found.group(int(group[1])) or "", self.replacement)
        return {"L": result.lower(), "U": result.upper(), "": result}[self.case]


DEFAULT: Final = Rule(re.compile(r"(?s).*"), "$0", "")


def rules_of(text: str) -> tuple[Rule, ...]:
    """Parse `ssl.principal.mapping.rules`; `ConfigError` says what is wrong with it."""
    rules: list[Rule] = []
    rest = text.strip()
    while rest:
        found = _RULE.match(rest)
        if found is not None:
            pattern, replacement, case = (part.replace(r"\/", "/") for part in found.groups())
            rules.append(_rule(pattern, replacement, case))
            rest = rest[found.end() :]
        elif rest.startswith("DEFAULT"):
            rules.append(DEFAULT)
            rest = rest.removeprefix("DEFAULT")
        else:
            raise ConfigError(
                f"'ssl.principal.mapping.rules': {rest!r} is neither RULE:pattern/replacement/[LU] nor DEFAULT"
            )
        rest = rest.lstrip().removeprefix(",").lstrip()
    return tuple(rules) or (DEFAULT,)


def _rule(pattern: str, replacement: str, case: str) -> Rule:
    try:
        compiled = re.compile(pattern)
    except re.error as problem:
        raise ConfigError(f"'ssl.principal.mapping.rules': {pattern!r} is no pattern: {problem}") from None
    groups = [int(number) for number in _GROUP.findall(replacement)]
    if any(number > compiled.groups for number in groups):
        raise ConfigError(f"'ssl.principal.mapping.rules': {replacement!r} names a group that {pattern!r} has not")
    return Rule(compiled, replacement, case)


def distinguished_name(certificate: Mapping[str, object] | None) -> str | None:
    """Return the subject's name in a certificate as `ssl` describes it; None when there was none."""
    subject = certificate.get("subject") if certificate else None
    if not isinstance(subject, tuple) or not subject:
        return None
    return ",".join(
        "+".join(f"{SHORT.get(kind, kind)}={_escaped(value)}" for kind, value in part) for part in reversed(subject)
    )


def _escaped(value: str) -> str:
    escaped = re.sub(r'([,+"\\<>;])', r"\\\1", value)
    if escaped.endswith(" ") and len(escaped) > 1:
        escaped = escaped[:-1] + "\\ "
    return "\\" + escaped if escaped.startswith((" ", "#")) else escaped


def principal_of(name: str | None, rules: Iterable[Rule]) -> str | None:
    """Return what a rule makes of a name: `User:...`; None when no rule fits."""
    if name is None:
        return ANONYMOUS_USER
    mapped = next((one for rule in rules if (one := rule.mapped(name)) is not None), None)
    return None if mapped is None else f"User:{mapped}"
