"""An evidence archive: all that another needs to judge a run again, and to notice if a byte of it was changed.

`bundle.json` names every file with size and sha256, the verdict, and what the run was made with. `unpacked` trusts nothing in an
archive: names outside of it, files that nobody named, sizes and hashes that differ are refused with the file's name. What
else it states, `verify` compares. Whoever publishes a bundle publishes its own sha256 or a signature beside it.
"""

import hashlib
import html
import lzma
import os
import sys
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from struct import Struct
from typing import Annotated, Final

import msgspec

from tribunal import ROOT
from tribunal.clusters.api import ClusterError
from tribunal.clusters.systems.clocks import LIBRARY as CLOCK_LIBRARY
from tribunal.harness.evidence.names import names_twice, unknown_names
from tribunal.harness.plan import encoded, for_readers, read_plan
from tribunal.harness.run import LOCK, commit, lock_sha256
from tribunal.harness.scenario import BadScenario
from tribunal.results.described import SYSTEM_FOLDER
from tribunal.results.manifest import Manifest
from tribunal.results.recording import DamagedRecording
from tribunal.results.report.minimal import FILE as MINIMAL
from tribunal.results.scratch import Scratch
from tribunal.results.store import Recording
from tribunal.results.unreadable import UNREADABLE
from tribunal.results.verdict import RunVerdict, Verdict, load, save

VERSION: Final = 2
FIRST_VERSION: Final = 1  # its words for readers were not made to be compared
KNOWN: Final = (FIRST_VERSION, VERSION)
LIST: Final = "bundle.json"
VERDICT: Final = "verdict.json"
REPORT: Final = "report.html"
# Not evidence: what a node left on its disks, and what a cluster kept for itself.
LEFT_OUT: Final = ("nodes", "security", "unhealed.json", "processes.jsonl", "image-build.jsonl", CLOCK_LIBRARY, LIST)
PLANS: Final = ("plan.json", MINIMAL)
FOR_READERS: Final = (".log", ".html")  # may name the run's folder; what is judged never does
NAME_BYTES_MAX: Final = 255  # of a file, on the systems that there are
MOST_BYTES: Final = 20 << 30
BLOCK: Final = 1 << 20
LOCAL_HEADER: Final = Struct("<26xHH")  # before an entry's content: how long its name is, and what stands beside it
SIZES_TAG: Final = b"\x01\x00"  # zip64
SIZES_BYTES: Final = 28
SMALL_BYTES: Final = 1 << 20
EPOCH: Final = (1980, 1, 1, 0, 0, 0)  # the same run gives the same archive


class Tampered(ClusterError):
    """An archive that is not what it says it is; names the file."""


class File(msgspec.Struct, frozen=True):
    """One file of an archive."""

    name: str
    size: Annotated[int, msgspec.Meta(ge=0)]
    sha256: str


class Bundle(msgspec.Struct, frozen=True, kw_only=True):
    """What an archive says of itself.

    findings:  the verdict's findings by severity, property and kind, with how many each stands for.
    """

    bundle_version: int = VERSION
    run_id: str
    verdict: Verdict
    claim: str
    findings: dict[str, int]
    commit: str
    lock_sha256: str
    python: str
    files: list[File]

    @staticmethod
    def of(folder: Path) -> "Bundle":
        """Read what an unpacked archive says of itself; `Tampered` where that is nothing."""
        return _read((folder / LIST).read_bytes())


def bundle(run_dir: Path, target: Path) -> Bundle:
    """Write a judged run's archive completely or not at all; `ClusterError` when the run has no verdict."""
    if not (run_dir / VERDICT).is_file():
        raise ClusterError(f"{run_dir} has no verdict yet: tribunal check {run_dir}")
    if target.exists():
        raise BadScenario(f"{target}: there already; give another name with --out")
    with Scratch("bundle") as folder:
        return _bundled(run_dir, target, folder)


def damage_of(run_dir: Path) -> str | None:
    """Return what is wrong with a run's recording; None: nothing, or it has none (an imported history)."""
    if not (run_dir / "recording").is_dir():
        return None
    try:
        Recording.open(run_dir)
    except DamagedRecording as damage:
        return str(damage)
    return None


def _bundled(run_dir: Path, target: Path, folder: Path) -> Bundle:
    manifest = _manifest(run_dir)
    verdict = load(run_dir / VERDICT)
    # A folder can be given another name; the recording's is what its rows say.
    run_id = verdict.run_id if manifest is None else manifest.run_id
    verdict = msgspec.structs.replace(verdict, run_id=run_id)
    sources = {path.relative_to(run_dir).as_posix(): path for path in _evidence(run_dir)}
    lock = lock_sha256() if manifest is None or manifest.lock_sha256 is None else manifest.lock_sha256
    if LOCK not in sources and lock == lock_sha256() and (ROOT / LOCK).is_file():
        sources[LOCK] = ROOT / LOCK
    sources |= _for_readers(run_dir, folder / run_id, verdict, sources)
    temporary = target.with_name(f"{target.name}.tmp")
    content = Bundle(
        run_id=run_id,
        verdict=verdict.verdict,
        claim=verdict.claim,
        findings=counted(verdict),
        commit=commit() if manifest is None or manifest.commit is None else manifest.commit,
        lock_sha256=lock,
        python=sys.version.split()[0] if manifest is None or manifest.python is None else manifest.python,
        files=[_described(name, _content(path, run_dir)) for name, path in sorted(sources.items())],
    )
    try:
        with zipfile.ZipFile(temporary, "w", zipfile.ZIP_DEFLATED) as archive:
            _put(archive, LIST, msgspec.json.format(msgspec.json.encode(content), indent=2) + b"\n")
            for name, path in sorted(sources.items()):
                # Parquet is compressed already, but for its footer: most of a small file.
                is_dense = path.suffix == ".parquet" and path.stat().st_size >= SMALL_BYTES
                kind = zipfile.ZIP_STORED if is_dense else zipfile.ZIP_DEFLATED
                _put(archive, name, _content(path, run_dir), kind)
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)
    return content


def unpacked(archive_path: Path, folder: Path) -> Bundle:
    """Unpack an archive whose every byte is as it states; nothing else is ever written."""
    try:
        with zipfile.ZipFile(archive_path) as archive:
            content = _list(archive)
            _compare_names(archive, archive_path, content)
            folder.mkdir(parents=True)
            for file in content.files:
                _unpack(archive, file, folder)
    except (zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, RuntimeError) as problem:
        # (RuntimeError: it is encrypted, or of a kind that is not supported.)
        raise Tampered(f"{archive_path}: not a complete archive: {problem}") from None
    return content


def canonical_report(run_dir: Path) -> bytes:
    """Write a run's report, and return it without the place that the run has on this machine."""
    from tribunal.results import report

    content: bytes = report.write(run_dir).read_bytes()
    return content.replace(html.escape(f"{run_dir.parent}/").encode(), b"")


def _for_readers(run_dir: Path, staged: Path, verdict: RunVerdict, sources: Mapping[str, Path]) -> dict[str, Path]:
    """Make verdict and report as whoever verifies the archive will make them: of what is in it, under the run's own name."""
    (staged / "logs").mkdir(parents=True)
    for name, path in sources.items():
        parts = PurePosixPath(name).parts
        if (parts[0] == "logs" and len(parts) == 2) or name in PLANS:
            (staged / name).write_bytes(_content(path, run_dir))
        elif len(parts) == 1 and name not in (VERDICT, REPORT):
            (staged / name).symlink_to(path.resolve())
    if (run_dir / "recording").is_dir():
        (staged / "recording").symlink_to((run_dir / "recording").resolve())
    if verdict.run_id == load(run_dir / VERDICT).run_id:
        (staged / VERDICT).write_bytes((run_dir / VERDICT).read_bytes())
    else:
        save(verdict, staged / VERDICT)
    (staged / REPORT).write_bytes(canonical_report(staged))
    return {VERDICT: staged / VERDICT, REPORT: staged / REPORT}


def _manifest(run_dir: Path) -> Manifest | None:
    try:
        return Recording.open(run_dir, compare=False).manifest
    except DamagedRecording:
        return None


def sha256_of(path: Path) -> str:
    """Return a file's sha256."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def counted(verdict: RunVerdict) -> dict[str, int]:
    """Count a verdict's findings by `severity property/kind`."""
    counts: dict[str, int] = {}
    for found in verdict.findings:
        name = f"{found.severity} {found.property_name}/{found.kind}"
        counts[name] = counts.get(name, 0) + found.count
    return dict(sorted(counts.items()))


def _evidence(run_dir: Path) -> Iterator[Path]:
    for path in sorted(run_dir.rglob("*")):
        if path.is_file() and not path.is_symlink() and path.relative_to(run_dir).parts[0] not in LEFT_OUT:
            yield path


def _content(path: Path, run_dir: Path) -> bytes:
    """Return a file as it goes into the archive: logs, report and plan without the places that they name on this machine."""
    content = path.read_bytes()
    if path.name in PLANS and path.parent == run_dir:
        return _plan_for_readers(path, content)
    if path.suffix in FOR_READERS and not path.is_relative_to(run_dir / SYSTEM_FOLDER):
        for place in (run_dir.resolve(), run_dir):
            if len(place.parts) < 2:  # `.` stands everywhere
                continue
            content = content.replace(f"{place}".encode(), run_dir.resolve().name.encode())
    return content


def _plan_for_readers(path: Path, content: bytes) -> bytes:
    """Return a plan without places; what is no plan, or names none, stays as it is."""
    try:
        plan = read_plan(path)
    except BadScenario:
        return content
    named = for_readers(plan)
    return content if named == plan else encoded(named)


def _described(name: str, content: bytes) -> File:
    return File(name, len(content), hashlib.sha256(content).hexdigest())


def _put(archive: zipfile.ZipFile, name: str, content: bytes, kind: int = zipfile.ZIP_DEFLATED) -> None:
    entry = zipfile.ZipInfo(name, EPOCH)
    entry.compress_type = kind
    entry.external_attr = 0o644 << 16
    archive.writestr(entry, content)


def _list(archive: zipfile.ZipFile) -> Bundle:
    try:
        if archive.getinfo(LIST).file_size > BLOCK * 64:
            raise Tampered(f"{LIST}: larger than any list of files")
        content = archive.read(LIST)
        _must_end_with_its_content(archive, LIST)
    except KeyError:
        raise Tampered(f"{LIST} is missing: not a bundle of tribunal") from None
    return _read(content)


def _read(text: bytes) -> Bundle:
    try:
        content = msgspec.json.decode(text, type=Bundle)
    except UNREADABLE as problem:
        raise Tampered(f"{LIST}: {problem}") from None
    if content.bundle_version not in KNOWN:
        raise Tampered(f"{LIST}: unknown bundle version {content.bundle_version} (this is {VERSION})")
    name = content.run_id
    if Path(name).name != name or name in ("", "..") or not name.isprintable() or len(name.encode()) > NAME_BYTES_MAX:
        raise Tampered(f"{LIST}: run_id: {name!r} is no name of a run")
    if content.bundle_version != FIRST_VERSION:
        known = msgspec.to_builtins(content)
        for words in (*names_twice(LIST, text), *unknown_names(LIST, msgspec.json.decode(text), known)):
            raise Tampered(words)
    return content


def _compare_names(archive: zipfile.ZipFile, archive_path: Path, content: Bundle) -> None:
    stated = {file.name: file for file in content.files}
    present = Counter(archive.namelist())
    if archive.comment or not _stand_side_by_side(archive, archive_path):
        raise Tampered("bytes that are no file of the archive: before, between or beside its entries, or in a comment")
    for name in present:
        if name != LIST and name not in stated:
            raise Tampered(f"{name}: in the archive, but not in its list")
        if present[name] > 1:
            raise Tampered(f"{name}: twice in the archive")
    if len(stated) != len(content.files):
        raise Tampered(f"{LIST}: a file is there twice")
    for name in stated:
        path = PurePosixPath(name)
        if path.is_absolute() or ".." in path.parts or "\\" in name or not path.parts:
            raise Tampered(f"{name!r}: a name outside of the archive")
        if not name.isprintable() or max(len(part.encode()) for part in path.parts) > NAME_BYTES_MAX:
            raise Tampered(f"{name!r}: no name of a file")
        if f"{path}" != name or any(f"{folder}" in stated for folder in path.parents):
            raise Tampered(f"{name!r}: a folder, or a file in a file")
        if name not in present:
            raise Tampered(f"{name}: in the list, but not in the archive")
    if sum(file.size for file in content.files) > MOST_BYTES:
        raise Tampered(f"{LIST}: states more than {MOST_BYTES >> 30} GiB")


def _stand_side_by_side(archive: zipfile.ZipFile, path: Path) -> bool:
    """Return whether entries begin at the first byte and follow each other up to the directory behind them, with nothing of their own but content."""
    position = 0
    with path.open("rb") as file:
        for entry in sorted(archive.infolist(), key=lambda one: one.header_offset):
            if entry.header_offset != position or entry.comment or not _is_of_sizes(entry.extra):
                return False
            file.seek(position)
            header = file.read(LOCAL_HEADER.size)
            if len(header) < LOCAL_HEADER.size:
                return False
            name_bytes, extra_bytes = LOCAL_HEADER.unpack(header)
            file.seek(name_bytes, os.SEEK_CUR)
            if not _is_of_sizes(file.read(extra_bytes)):
                return False
            position += LOCAL_HEADER.size + name_bytes + extra_bytes + entry.compress_size
    return position == archive.start_dir


def _must_end_with_its_content(archive: zipfile.ZipFile, name: str) -> None:
    """Raise Tampered where the bytes stored for an entry go on behind those that its content was unpacked from.

    Of a stored entry they are the content; a deflate stream says itself where it ends, and zipfile does not look further.
    """
    entry = archive.getinfo(name)
    if entry.compress_type == zipfile.ZIP_STORED:
        is_whole = entry.compress_size == entry.file_size
    elif entry.compress_type == zipfile.ZIP_DEFLATED:
        is_whole = _deflated_bytes(archive, entry) == entry.compress_size
    else:
        raise Tampered(f"{name}: packed in a way ({entry.compress_type}) that no bundle of tribunal is")
    if not is_whole:
        raise Tampered(f"{name}: bytes that are no file of the archive: behind the end of its content")


def _deflated_bytes(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> int:
    """Return how many bytes the entry's deflate stream takes; less than none where it does not end."""
    assert archive.filename is not None  # it was opened by its path
    stream, taken, left = zlib.decompressobj(-zlib.MAX_WBITS), 0, entry.compress_size
    with Path(archive.filename).open("rb") as file:
        file.seek(entry.header_offset)
        name_bytes, extra_bytes = LOCAL_HEADER.unpack(file.read(LOCAL_HEADER.size))
        file.seek(name_bytes + extra_bytes, os.SEEK_CUR)
        while left and not stream.eof and (packed := file.read(min(BLOCK, left))):
            left -= len(packed)
            taken += len(packed)
            while packed:
                stream.decompress(packed, BLOCK)
                packed = stream.unconsumed_tail
        return taken - len(stream.unused_data) if stream.eof else -1


def _is_of_sizes(extra: bytes) -> bool:
    """Return whether what stands beside an entry are the sizes and the place of a large one, or nothing."""
    return not extra or (
        extra[:2] == SIZES_TAG and int.from_bytes(extra[2:4], "little") == len(extra) - 4 <= SIZES_BYTES
    )


def _unpack(archive: zipfile.ZipFile, file: File, folder: Path) -> None:
    """Write one file as far as it is as stated: an entry that unpacks to more is stopped at its first byte too many."""
    target = folder / file.name
    target.parent.mkdir(parents=True, exist_ok=True)
    digest, left = hashlib.sha256(), file.size
    with archive.open(file.name) as source, target.open("wb") as out:
        while block := source.read(min(BLOCK, left + 1)):
            left -= len(block)
            if left < 0:
                raise Tampered(f"{file.name}: larger than the {file.size} bytes stated")
            digest.update(block)
            out.write(block)
    if left or digest.hexdigest() != file.sha256:
        raise Tampered(f"{file.name}: was changed after the bundle was made (sha256 differs)")
    _must_end_with_its_content(archive, file.name)
