"""Folders in storage by URL: what is fetched is what was put there, and half of it is never taken for the whole."""

import json
import resource
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.results.s3_server import BUCKET, KEY, SECRET, objects, s3_server
from tribunal.results.storage import LIST, BadUrl, NoStorage, Storage, put_or_kept

FILES = {"manifest.json": b"{}", "recording/sends/tp=t-0/part-00001.parquet": b"PAR1" * 1000, "zz.txt": b""}


@pytest.fixture(params=["file", "s3"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The URL of a place that is empty, on this machine and on a server that speaks S3."""
    if request.param == "file":
        yield (tmp_path / "storage").as_uri()
        return
    with s3_server() as address:
        yield f"{address}/nights"


def a_folder(path: Path) -> Path:
    for name, content in FILES.items():
        file = path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
    return path


def contents(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_what_is_fetched_is_what_was_put_there(url: str, tmp_path: Path) -> None:
    where = Storage(url).put(a_folder(tmp_path / "run"), "run")

    Storage(where).fetch(tmp_path / "copy")

    assert where == f"{url}/run"
    assert contents(tmp_path / "copy") == FILES


def test_a_folder_whose_upload_was_interrupted_is_not_taken_for_the_whole(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage, folder = Storage(url), a_folder(tmp_path / "run")
    storage.put(folder, "run")  # an earlier one, which was whole
    put, names = storage._put, []

    def interrupted(file: Path, name: str) -> object:
        names.append(name)
        if len(names) == len(FILES):
            raise KeyboardInterrupt
        return put(file, name)

    monkeypatch.setattr(storage, "_put", interrupted)
    with pytest.raises(KeyboardInterrupt):
        storage.put(folder, "run")

    assert names[-1] == "run/manifest.json"
    with pytest.raises(NoStorage, match=f"no folder stands there as a whole: it has no {LIST}"):
        Storage(f"{url}/run").fetch(tmp_path / "copy")


def test_a_folder_whose_list_found_no_room_is_not_taken_for_the_whole(tmp_path: Path) -> None:
    folder = tmp_path / "0000000008"
    folder.mkdir()
    for number in range(100):
        (folder / f"{number}.json").touch()
    storage = Storage((tmp_path / "storage").as_uri())
    most = resource.getrlimit(resource.RLIMIT_FSIZE)

    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, most[1]))  # a disk that is full; the list is the largest file
    try:
        with pytest.raises(NoStorage):
            storage.put(folder, folder.name)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, most)

    assert storage.folders() == []
    storage.put(folder, folder.name)
    assert storage.folders() == [folder.name]
    assert max(path.name for path in (tmp_path / "storage" / folder.name).iterdir()) == LIST


@pytest.mark.parametrize("content", [b"PAR", b"PAR1" * 999 + b"PAR2"], ids=["shorter", "other bytes"])
def test_a_file_that_was_changed_there_is_refused(url: str, content: bytes, tmp_path: Path) -> None:
    storage = Storage(url)
    storage.put(a_folder(tmp_path / "run"), "run")
    changed = tmp_path / "changed" / "part-00001.parquet"
    changed.parent.mkdir()
    changed.write_bytes(content)

    Storage(f"{url}/run/recording/sends/tp=t-0").put_file(changed)

    with pytest.raises(NoStorage, match=r"part-00001\.parquet is not as it was put there"):
        Storage(f"{url}/run").fetch(tmp_path / "copy")


def test_a_list_names_no_file_outside_of_the_folder(tmp_path: Path) -> None:
    storage = Storage((tmp_path / "storage").as_uri())
    storage.put(a_folder(tmp_path / "run"), "run")
    path = tmp_path / "storage" / "run" / LIST
    listed = json.loads(path.read_bytes())
    listed["files"]["../../outside"] = listed["files"]["manifest.json"]
    path.write_text(json.dumps(listed))

    with pytest.raises(NoStorage, match=r"names a file outside of the folder: \.\./\.\./outside"):
        Storage(f"{storage.url}/run").fetch(tmp_path / "copy")

    assert not (tmp_path / "outside").exists()


def test_what_stands_there_keeps_its_name(url: str, tmp_path: Path) -> None:
    storage = Storage(url)
    storage.put(a_folder(tmp_path / "run"), "run")

    assert [storage.free("run"), storage.free("other")] == ["run.2", "other"]


def test_what_storage_does_not_take_stays_on_this_machine(tmp_path: Path) -> None:
    (tmp_path / "storage").write_text("a file where the folder should be")

    where, problem = put_or_kept(
        Storage((tmp_path / "storage").as_uri()), a_folder(tmp_path / "run"), tmp_path / "kept"
    )

    assert where == str(tmp_path / "kept" / "run")
    assert contents(tmp_path / "kept" / "run") == FILES
    assert problem is not None
    assert "\n" not in problem


@pytest.mark.parametrize(
    ("url", "words"),
    [
        (f"s3://{KEY}:{SECRET}@bucket/nights", "^s3://bucket/nights: a URL of storage has no credentials"),
        (f"s3://bucket/nights?secret_key={SECRET}", "^s3://bucket/nights: a URL of storage has no credentials"),
        ("s3:///nights", "names no bucket"),
        ("nowhere://nights", "nowhere://nights: no storage that pyarrow knows"),
        (f"s3://{KEY}:{SECRET}@[x/nights", "^no URL of storage .*: write s3://BUCKET/FOLDER"),
    ],
)
def test_a_url_that_cannot_be_used_is_refused_and_its_credentials_are_not_repeated(url: str, words: str) -> None:
    with pytest.raises(BadUrl, match=words) as refused:
        Storage(url)

    assert SECRET not in str(refused.value)


def test_credentials_are_in_nothing_that_is_stored(tmp_path: Path) -> None:
    with s3_server() as address:
        Storage(address).put(a_folder(tmp_path / "run"), "run")

        stored = objects()

    assert {name.removeprefix(f"{BUCKET}/run/") for name in stored} == {*FILES, LIST}
    assert not [name for name, content in stored.items() if SECRET.encode() in content or KEY.encode() in content]


def test_a_bucket_that_is_not_there_is_said_before_the_work_begins() -> None:
    with s3_server() as address:
        missing = address.replace(BUCKET, "missing")

        with pytest.raises(NoStorage, match="there is no bucket missing"):
            Storage(missing).must_answer()
