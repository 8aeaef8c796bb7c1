"""A certificate authority of one run, and what it issues: it lives in the run's folder and is trusted by nobody else.

Certificates are made by the library `cryptography`, which only secured clusters need; `obstacle` says where it is missing.
"""

import datetime
import importlib.util
import ipaddress
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec

DAY: Final = datetime.timedelta(days=1)
VALID: Final = 30 * DAY  # longer than any run
MISSING: Final = (
    "security sasl_ssl needs the library cryptography: pip install 'cryptography' (the extra replog[secured])"
)


def obstacle() -> str:
    """Return why no certificate can be made here; empty: it can."""
    return "" if importlib.util.find_spec("cryptography") else MISSING


def serial_number(certificate: bytes) -> int:
    """Return the serial number of a certificate in DER."""
    from cryptography import x509

    return x509.load_der_x509_certificate(certificate).serial_number


class Authority:
    """Signs certificates, and lays them with their keys into files as PEM, which their owner alone can read."""

    def __init__(self, folder: Path, now: datetime.datetime) -> None:
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes, serialization
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.x509.oid import NameOID

        self._now = now
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "tribunal run")])
        own = self._builder(self._name, self._key, VALID).add_extension(
            x509.BasicConstraints(ca=True, path_length=0), critical=True
        )
        folder.mkdir(parents=True, exist_ok=True)
        self.trust: Final = folder / "authority.pem"
        self.trust.write_bytes(own.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))

    def issue(self, name: str, hosts: Iterable[str], path: Path, *, is_expired: bool = False) -> int:
        """Write a fresh key and a certificate of these addresses; return its serial number. What is there is replaced at once."""
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes, serialization
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.x509.oid import NameOID

        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        addresses = [x509.IPAddress(ipaddress.ip_address(host)) for host in dict.fromkeys(hosts)]
        lasts = -DAY if is_expired else VALID
        builder = self._builder(subject, key, lasts).add_extension(
            x509.SubjectAlternativeName(addresses), critical=False
        )
        certificate = builder.sign(self._key, hashes.SHA256())
        private = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        # Beside it first: a node may read the file at any moment, and must find the old one or the new one.
        fresh = path.with_suffix(".new")
        fresh.touch(mode=0o600)
        fresh.write_bytes(private + certificate.public_bytes(serialization.Encoding.PEM))
        fresh.replace(path)
        return certificate.serial_number

    def _builder(
        self, subject: "x509.Name", key: "ec.EllipticCurvePrivateKey", lasts: datetime.timedelta
    ) -> "x509.CertificateBuilder":
        from cryptography import x509

        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(self._now - 2 * DAY)
            .not_valid_after(self._now + lasts)
        )
