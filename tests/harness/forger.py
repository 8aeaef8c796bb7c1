"""A forger of evidence: for every file and every stated fact of an archive one lie, with all hashes made to fit.

He knows the format as well as we do. What he cannot do: make a recording that the judge finds something else in, run the simulation again, or
sign with somebody's key.
"""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from tribunal.harness.evidence.bundle import LIST, Bundle, File, counted
from tribunal.harness.evidence.verify import made_anew
from tribunal.results.manifest import Manifest
from tribunal.results.store import MANIFEST, Recording, _files, _fingerprint, recording_hash

A_SECOND_MS = 1_000
JSON = ("plan.json", "manifest.json", "verdict.json", "simulation.json", LIST)


class Forgery(msgspec.Struct, frozen=True):
    """A lie: in which file, about what, and how it is told in an unpacked archive."""

    file: str
    fact: str
    commit: Callable[[Path], None]


def forgeries(folder: Path) -> Iterator[Forgery]:
    """Yield one forgery for each fact that the files of an unpacked archive state."""
    for name in JSON:
        content = msgspec.json.decode((folder / name).read_bytes())
        for place in _leaves(content):
            if not (name == LIST and place[0] == "files"):  # hashes are made to fit
                yield Forgery(name, _named(place), _in_json(name, place))
        yield Forgery(name, "another name", _with(name, ("nobody_lost_anything",), True))
        yield Forgery(name, "a name twice", _twice(name))
    for place in _leaves(msgspec.json.decode((folder / "schedule.jsonl").read_bytes().splitlines()[0])):
        yield Forgery("schedule.jsonl", _named(place), _in_line("schedule.jsonl", place))
    yield Forgery("schedule.jsonl", "a line is missing", lambda run: (run / "schedule.jsonl").write_bytes(b"") and None)
    yield Forgery("report.html", "a word", _in_text("report.html", b"PASS", b"FINE"))
    yield Forgery("requirements.lock", "a hash", _in_text("requirements.lock", b"==", b"==="))
    yield Forgery("trace.msgpack", "an event", _without_last_block)
    for name in ("plan.json", "manifest.json", "simulation.json", "trace.msgpack", "report.html", "schedule.jsonl"):
        yield Forgery(name, "the file is missing", _missing(name))
    yield Forgery("notes.txt", "a file more", lambda run: (run / "notes.txt").write_text("all is well") and None)
    yield Forgery("recording", "acknowledged sends are missing", without_sends)
    yield Forgery("recording", "acknowledged sends are missing, and the phases fit", without_sends_and_counts)
    yield Forgery("recording", "another run's name", _of_another_run)


def beside_the_rows() -> list[Forgery]:
    """Return forgeries that leave every row in the recording, and say something else where readers look before they read rows."""
    return [
        Forgery("recording", fact, commit)
        for fact, commit in (
            ("folders with names in another spelling", _in_another_spelling),
            ("rows in the folder of no partition", _in_the_folder("tp=none")),
            ("rows in the folder of another partition", _in_the_folder("tp=elsewhere-0")),
            ("statistics that are not those of the rows", _with_false_statistics),
            ("a file that is none of its own", lambda run: (run / "recording" / "read.me").write_text("fine") and None),
        )
    ]


def _in_another_spelling(folder: Path) -> None:
    for table in ("sends", "reads", "logs"):
        for one in sorted((folder / "recording" / table).glob("tp=*-*")):
            one.rename(one.with_name(one.name.replace("-", "%2D")))


def _in_the_folder(name: str) -> Callable[[Path], None]:
    def commit(folder: Path) -> None:
        for table in ("sends", "reads", "logs"):
            for one in sorted((folder / "recording" / table).glob("tp=*-*")):
                (one.parent / name).mkdir(exist_ok=True)
                for number, path in enumerate(sorted(one.iterdir())):
                    path.rename(one.parent / name / f"part-{number + 1:05}.parquet")
                one.rmdir()
        recording_made_to_fit(folder)

    return commit


def _with_false_statistics(folder: Path) -> None:
    """Say in a footer of `logs` that no offset is above 1."""
    (path, *_) = sorted((folder / "recording" / "logs").glob("tp=*-*/*.parquet"))
    with pq.ParquetFile(path) as file:
        stated = file.metadata.row_group(0).column(file.schema_arrow.names.index("log_offset")).statistics
    content, highest = path.read_bytes(), stated.max.to_bytes(8, "little")
    at = content.rindex(highest)
    path.write_bytes(content[:at] + (1).to_bytes(8, "little") + content[at + len(highest) :])
    recording_made_to_fit(folder)


def made_to_fit(folder: Path, again: Path) -> None:
    """Have verdict, report and list made of a forged recording by our own tools, as a forger would."""
    content = msgspec.json.decode((folder / LIST).read_bytes(), type=Bundle)
    run = again / content.run_id
    anew = made_anew(folder, run, "inline")
    for name in ("verdict.json", "permitted.parquet"):
        (folder / name).unlink(missing_ok=True)
        if (run / name).exists():
            (folder / name).write_bytes((run / name).read_bytes())
    (folder / "report.html").write_bytes(anew.report)
    verdict = anew.verdict
    content = msgspec.structs.replace(content, verdict=verdict.verdict, claim=verdict.claim, findings=counted(verdict))
    (folder / LIST).write_bytes(msgspec.json.encode(content))
    hashes_made_to_fit(folder)


def hashes_made_to_fit(folder: Path) -> None:
    """Name every file of an unpacked archive as it is now."""
    content = msgspec.json.decode((folder / LIST).read_bytes(), type=Bundle)
    files = [
        File(path.relative_to(folder).as_posix(), path.stat().st_size, hashlib.sha256(path.read_bytes()).hexdigest())
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != LIST
    ]
    if files != content.files:  # else the list may be what is forged
        (folder / LIST).write_bytes(msgspec.json.encode(msgspec.structs.replace(content, files=files)))


def without_sends(folder: Path) -> None:
    """Take acknowledged records out of the recording, as one would those that were lost."""
    _rewritten(folder, "sends", lambda rows: rows.filter(pa.compute.not_equal(rows["outcome"].cast(pa.string()), "ok")))


def without_sends_and_counts(folder: Path) -> None:
    """Take them out, and change what the phases counted."""
    without_sends(folder)
    _rewritten(folder, "phases", _without_counts)


def without_calls(folder: Path) -> None:
    """Take calls that a system answered out of the recording."""
    answered = pa.scalar("ok")
    _rewritten(
        folder,
        "operations",
        lambda rows: rows.filter(pa.compute.not_equal(rows["outcome"].cast(pa.string()), answered)),
    )


def recording_made_to_fit(folder: Path) -> None:
    """Write the manifest of the recording as it is now."""
    manifest = msgspec.json.decode((folder / MANIFEST).read_bytes(), type=Manifest)
    files = _files(folder / "recording")
    tables = {
        name: _fingerprint(folder, [path for part in parts.values() for path in part]) for name, parts in files.items()
    }
    hashed = recording_hash(Recording(folder, manifest.run_id, None, files))
    changed = msgspec.structs.replace(manifest, tables=tables, recording_hash=hashed)
    (folder / MANIFEST).write_bytes(msgspec.json.encode(changed))


def _without_counts(rows: pa.Table) -> pa.Table:
    changed = [row | {"load": [one | {"ok": 0} for one in row["load"] or ()]} for row in rows.to_pylist()]
    return pa.Table.from_pylist(changed, schema=rows.schema)


def _rewritten(folder: Path, table: str, change: Callable[[pa.Table], pa.Table]) -> None:
    for path in sorted((folder / "recording" / table).rglob("*.parquet")):
        with pq.ParquetFile(path) as file:
            rows = file.read()
        pq.write_table(change(rows), path)
    recording_made_to_fit(folder)


def _of_another_run(folder: Path) -> None:
    def renamed(rows: pa.Table) -> pa.Table:
        position = rows.schema.get_field_index("run_id")
        field = rows.schema.field(position)
        names = pa.array(["another run"] * rows.num_rows, pa.string()).cast(field.type)
        return rows.set_column(position, field, names)

    _rewritten(folder, "sends", renamed)


def _without_last_block(folder: Path) -> None:
    blocks = msgspec.msgpack.decode((folder / "trace.msgpack").read_bytes(), type=list[bytes])
    (folder / "trace.msgpack").write_bytes(msgspec.msgpack.encode(blocks[:-1]))


def _missing(name: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).unlink()


def _in_text(name: str, old: bytes, new: bytes) -> Callable[[Path], None]:
    def commit(folder: Path) -> None:
        content = (folder / name).read_bytes()
        assert old in content
        (folder / name).write_bytes(content.replace(old, new, 1))

    return commit


def _in_json(name: str, place: tuple[str | int, ...]) -> Callable[[Path], None]:
    def commit(folder: Path) -> None:
        content = msgspec.json.decode((folder / name).read_bytes())
        (folder / name).write_bytes(msgspec.json.encode(_changed(content, place)))

    return commit


def _with(name: str, place: tuple[str, ...], value: object) -> Callable[[Path], None]:
    def commit(folder: Path) -> None:
        content = msgspec.json.decode((folder / name).read_bytes())
        (folder / name).write_bytes(msgspec.json.encode(content | {place[0]: value}))

    return commit


def _twice(name: str) -> Callable[[Path], None]:
    """Say something else before what is said: some readers take the first value of a name."""

    def commit(folder: Path) -> None:
        content = (folder / name).read_bytes()
        first = next(key for key, value in msgspec.json.decode(content).items() if isinstance(value, str))
        lie = msgspec.json.encode({first: "nothing was lost"})[:-1] + b","
        (folder / name).write_bytes(content.replace(b"{", lie, 1))

    return commit


def _in_line(name: str, place: tuple[str | int, ...]) -> Callable[[Path], None]:
    def commit(folder: Path) -> None:
        first, *others = (folder / name).read_bytes().splitlines()
        changed = msgspec.json.encode(_changed(msgspec.json.decode(first), place))
        (folder / name).write_bytes(b"\n".join([changed, *others]) + b"\n")

    return commit


def _leaves(content: object, place: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    if isinstance(content, Mapping):
        for name, value in content.items():
            yield from _leaves(value, (*place, name))
    elif isinstance(content, Sequence) and not isinstance(content, str) and content:
        yield from _leaves(content[0], (*place, 0))  # of many alike one
    else:
        yield place


def _named(place: tuple[str | int, ...]) -> str:
    return ".".join(str(part) for part in place)


def _changed(content: object, place: tuple[str | int, ...]) -> object:
    if not place:
        return _lie(content)
    if (
        len(place) == 1
        and str(place[0]).endswith("_ms")
        and isinstance(content, dict)
        and isinstance(content[place[0]], int)
    ):
        return content | {place[0]: content[place[0]] + A_SECOND_MS}
    head, *rest = place
    if isinstance(content, dict):
        return content | {head: _changed(content[head], tuple(rest))}
    assert isinstance(content, list)
    assert isinstance(head, int)
    return [_changed(value, tuple(rest)) if index == head else value for index, value in enumerate(content)]


def _lie(value: object) -> object:
    match value:
        case bool():
            return not value
        case int():
            return value + 1
        case float():
            return value / 2
        case str():
            return OTHER.get(value, f"{value}x")
        case None:
            return 7
        case list():
            return ["x"]
        case _:
            return {"x": 1}


OTHER = {"PASS": "PERMITTED", "kraft": "zookeeper", "simulated": "processes", "ci": "jvm", "kill": "pause", "broker": "controller",
         "leader(p0)": "follower(p0)", "note": "permitted", "produce-consume": "transactions", "inline": "spark", "auto": "proxies"}  # fmt: skip
