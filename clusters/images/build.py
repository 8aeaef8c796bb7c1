"""The engine, and the image of a node: built when the source it holds has changed, else taken as it is.

The base is what TRIBUNAL_BASE_IMAGE names; `interpreter` (also what is taken when the public image cannot be had) is made
of the interpreter that runs this. The image's tag is a hash of everything that goes in.
"""

import hashlib
import io
import os
import re
import socket
import tarfile
import tempfile
from collections.abc import Callable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from tribunal import ROOT
from tribunal.clusters.api import ClusterError
from tribunal.clusters.images.half_images import NOTE, HalfImages, remove_half
from tribunal.clusters.images.interpreter_base import CHANGES, PACKAGES, VERSION, Unbuildable, write_base

if TYPE_CHECKING:
    from docker import DockerClient

LABEL: Final = "tribunal.run"
HERE: Final = Path(__file__).resolve().parent
REPOSITORY: Final = "tribunal-node"
SYSTEM_REPOSITORY: Final = "tribunal-system"
BASE_REPOSITORY: Final = "tribunal-base"
PUBLIC_BASE: Final = "python:3.13-slim"
INTERPRETER: Final = "interpreter"
LOCK: Final = ROOT / "requirements.lock"
LOCKED: Final = re.compile(r"^([a-z0-9-]+)==.*(?:\n +--hash=.*)+\n", re.MULTILINE)
CERTIFICATES: Final = ("PIP_CERT", "REQUESTS_CA_BUNDLE", "SSL_CERT_FILE")
ENGINE_TIMEOUT_S: Final = 120
LAST_LINES: Final = 12
SHORT_ANSWER: Final = 300


class NoClient(ClusterError):
    """The package that talks to a container engine is missing here."""


def engine() -> "DockerClient":
    """Return a client of the engine; `ClusterError` says why there is none."""
    try:
        import docker
        from docker.errors import DockerException
    except ImportError:
        raise NoClient("the package 'docker' is not installed") from None
    _knock()
    try:
        client = docker.from_env(timeout=ENGINE_TIMEOUT_S)
    except DockerException as problem:
        raise ClusterError(f"no container engine answers: {_short(problem)}") from None
    try:
        client.ping()
    except (DockerException, OSError) as problem:
        client.close()
        raise ClusterError(f"no container engine answers: {_short(problem)}") from None
    return client


def _knock() -> None:
    """See whether anybody listens on the engine's socket; asking the SDK would leak a socket when nobody does."""
    host = os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock")
    if not host.startswith("unix://"):
        return
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(host.removeprefix("unix://"))
        except OSError as problem:
            raise ClusterError(f"no container engine answers at {host}: {problem.strerror}") from None


def _short(problem: Exception) -> str:
    return " ".join(str(problem).split())[:160]


def node_image(client: "DockerClient", log: Path, run_dir: Path, report: Callable[[str], None]) -> str:
    """Return the tag of an image of this very source; `ClusterError` with the build's last lines. A build that fails leaves nothing."""
    context = _context()
    base_name = os.environ.get("TRIBUNAL_BASE_IMAGE", PUBLIC_BASE)
    fingerprint = hashlib.sha256(context + base_name.encode() + VERSION.encode()).hexdigest()[:16]
    tag = f"{REPOSITORY}:{fingerprint}"
    if not _exists(client, tag):
        base = _base(client, base_name, report)
        recipe = Recipe(what="the node's image", context=context, arguments={"BASE_IMAGE": base})
        built(client, recipe, tag, log=log, run_dir=run_dir, report=report)
    return tag


def _exists(client: "DockerClient", tag: str) -> bool:
    from docker.errors import ImageNotFound

    try:
        client.images.get(tag)
    except ImageNotFound:
        return False
    return True


def _base(client: "DockerClient", name: str, report: Callable[[str], None]) -> str:
    """Return a base that is there: the wanted one, or one made of this interpreter."""
    if name != INTERPRETER:
        try:
            return pulled(client, name, report)
        except ClusterError as problem:
            if name != PUBLIC_BASE:
                raise ClusterError(f"base {problem}") from None
    recipe = hashlib.sha256((HERE / "interpreter_base.py").read_bytes()).hexdigest()[:12]
    tag = f"{BASE_REPOSITORY}:{VERSION}-{recipe}"
    if not _exists(client, tag):
        try:
            with tempfile.NamedTemporaryFile(suffix=".tar") as file:
                write_base(file)
                file.flush()
                client.api.import_image_from_file(
                    file.name, repository=BASE_REPOSITORY, tag=tag.partition(":")[2], changes=list(CHANGES)
                )
        except Unbuildable as problem:
            raise ClusterError(str(problem)) from None
    return tag


class BuilderLine(msgspec.Struct, frozen=True):
    """What the engine's builder says, or what it fails of."""

    stream: str = ""
    error: str = ""


class Recipe(msgspec.Struct, frozen=True, kw_only=True):
    """What an image is made of: `context` is a tar archive with the Dockerfile in it."""

    what: str
    context: bytes
    dockerfile: str = "Dockerfile"
    arguments: Mapping[str, str] = {}


def _build(client: "DockerClient", recipe: Recipe, tag: str, log: Path, receive: Callable[[str], None]) -> None:
    """Build an image; what the builder says goes to a log as it comes, and to who receives it. `ClusterError` with its last lines."""
    from docker.errors import APIError

    lines: list[str] = []
    try:
        with log.open("a", encoding="utf-8", errors="replace") as file:
            for said in client.api.build(
                fileobj=io.BytesIO(recipe.context),
                custom_context=True,
                tag=tag,
                dockerfile=recipe.dockerfile,
                buildargs=dict(recipe.arguments),
                rm=True,
                forcerm=True,
                decode=True,
            ):
                line = msgspec.convert(said, BuilderLine)
                receive(line.stream)
                file.write(line.stream or line.error)
                file.flush()
                lines += (line.stream or line.error).rstrip().splitlines()
                if line.error:
                    ending = "\n".join(f"    {one}" for one in [one for one in lines if one.strip()][-LAST_LINES:])
                    raise ClusterError(f"{recipe.what} does not build: {line.error.strip()}; its last lines:\n{ending}")
    except APIError as problem:
        raise ClusterError(f"{recipe.what} does not build: {problem.explanation}") from None


def built(
    client: "DockerClient", recipe: Recipe, tag: str, *, log: Path, run_dir: Path, report: Callable[[str], None]
) -> None:
    """Build an image, and take note of what it makes on the way until it has its name. Raises ClusterError; nothing is left then."""
    half = HalfImages(client, run_dir / NOTE)

    def receive(said: str) -> None:
        half.take_note(said)
        report(said)

    try:
        _build(client, recipe, tag, log, receive)
    except ClusterError:
        remove_half(client, run_dir)
        raise
    half.has_its_name()


def image_of(
    client: "DockerClient", dockerfile: str, context: bytes, log: Path, run_dir: Path, report: Callable[[str], None]
) -> str:
    """Return the tag of an image of a Dockerfile and what lies around it, built where there is none yet. Raises ClusterError.

    A build that fails leaves nothing.
    """
    tag = f"{SYSTEM_REPOSITORY}:{hashlib.sha256(dockerfile.encode() + context).hexdigest()[:16]}"
    if _exists(client, tag):
        log.write_text(f"{tag} is here already\n")
        return tag
    recipe = Recipe(what=f"the image of {dockerfile}", context=context, dockerfile=dockerfile)
    built(client, recipe, tag, log=log, run_dir=run_dir, report=report)
    return tag


class PullLine(msgspec.Struct, frozen=True):
    """What the engine says while it pulls, or what it fails of."""

    status: str = ""
    id: str = ""
    progress: str = ""
    error: str = ""


def pulled(client: "DockerClient", image: str, report: Callable[[str], None]) -> str:
    """Return an image that is there, pulled where it was not. Raises ClusterError."""
    from docker.errors import DockerException
    from docker.utils import parse_repository_tag

    if _exists(client, image):
        return image
    repository, tag = parse_repository_tag(image)
    try:
        for said in client.api.pull(repository, tag=tag or "latest", stream=True, decode=True):
            line = msgspec.convert(said, PullLine)
            if line.error:
                raise ClusterError(_cannot_be_pulled(image, line.error))
            report(" ".join((line.id, line.status, line.progress)))
    except (DockerException, OSError) as problem:
        raise ClusterError(_cannot_be_pulled(image, str(problem))) from None
    return image


def _cannot_be_pulled(image: str, why: str) -> str:
    return f"image {image} is not here and cannot be pulled: {' '.join(why.split())[:SHORT_ANSWER]}"


def requirements(lock: Path) -> str:
    """Return what an image installs: versions and hashes of the lock file; the versions that are here where there is no such file."""
    if not lock.is_file():
        return "".join(f"{name}=={version(name)}\n" for name in PACKAGES)
    entries = {found[1].replace("-", "_"): found[0] for found in LOCKED.finditer(lock.read_text())}
    return "".join(entries[name] for name in PACKAGES)


def _context() -> bytes:
    """Return what is sent to the engine: Dockerfile, requirements, certificates if any, replog; always the same bytes."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        _add(archive, "Dockerfile", (HERE / "Dockerfile").read_bytes())
        _add(archive, "requirements.txt", requirements(LOCK).encode())
        bundle = next((os.environ[name] for name in CERTIFICATES if os.environ.get(name)), None)
        if bundle and Path(bundle).is_file():
            _add(archive, "ca-bundle.crt", Path(bundle).read_bytes())
        for path in sorted((ROOT / "replog").rglob("*.py")):
            _add(archive, str(path.relative_to(ROOT)), path.read_bytes())
    return buffer.getvalue()


def _add(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(content), 0o644
    archive.addfile(entry, io.BytesIO(content))
