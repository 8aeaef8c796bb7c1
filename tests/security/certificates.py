"""An authority of its own for a test, and what it issues."""

import datetime
import ipaddress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from replog.host.world import RealClock

DAY = datetime.timedelta(days=1)


class Authority:
    """Signs certificates, and lays them into a folder as PEM."""

    def __init__(self, folder: Path, name: str = "authority") -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        constraints = x509.BasicConstraints(ca=True, path_length=0)
        certificate = self._builder(self._name, self._key).add_extension(constraints, critical=True)
        self.trust = folder / f"{name}.pem"
        self.trust.write_bytes(certificate.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))

    def issue(
        self, name: str, *, unit: str = "nodes", file: str = "", expired: bool = False, host: bytes | None = None
    ) -> Path:
        """Return a file with a key and a certificate of 127.0.0.1, or of another host; an existing one is replaced at once."""
        key = ec.generate_private_key(ec.SECP256R1())
        parts = [
            (NameOID.ORGANIZATION_NAME, "tests"),
            (NameOID.ORGANIZATIONAL_UNIT_NAME, unit),
            (NameOID.COMMON_NAME, name),
        ]
        subject = x509.Name([x509.NameAttribute(kind, text) for kind, text in parts])
        addresses: x509.ExtensionType = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
        if host is not None:  # as DER, because it may be no text
            addresses = x509.UnrecognizedExtension(addresses.oid, bytes((48, len(host) + 2, 130, len(host))) + host)
        builder = self._builder(subject, key, expired=expired).add_extension(addresses, critical=False)
        signed = builder.sign(self._key, hashes.SHA256())
        path = self.folder / f"{file or name}.pem"
        private = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        written = path.with_suffix(".new")
        written.write_bytes(private + signed.public_bytes(serialization.Encoding.PEM))
        written.replace(path)
        return path

    def _builder(
        self, subject: x509.Name, key: ec.EllipticCurvePrivateKey, *, expired: bool = False
    ) -> x509.CertificateBuilder:
        now = datetime.datetime.fromtimestamp(RealClock().wall_ms() / 1000, datetime.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - 2 * DAY)
            .not_valid_after(now - DAY if expired else now + DAY)
        )
