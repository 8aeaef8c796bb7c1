"""Evidence that travels: a bundle says the same again, and one of which a byte was changed is refused by name."""

import shutil
import subprocess
import zipfile

import msgspec
import pytest

from tribunal.harness.cli.main import exit_code
from tribunal.harness.evidence.bundle import LIST, Tampered, bundle, unpacked
from tribunal.harness.evidence.diff import compared
from tribunal.harness.evidence.signing import Unsigned, sign
from tribunal.harness.evidence.verify import verified
from tribunal.results.heal import Look, PartitionSeen, Unhealed
from tribunal.results.verdict import Verdict
from tribunal.results.violation import CommittedPartition

SCENARIO = """scenario: small
about: a short run to look at
workload: {name: produce-consume, rate: 60, partitions: 2}
time: 2s
warm_up: 500ms
steps:
  - {kill: leader(p0), for: 1s}
"""


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Two simulated runs of different seeds, judged."""
    folder = tmp_path_factory.mktemp("evidence")
    scenario = folder / "small.yaml"
    scenario.write_text(SCENARIO)
    for seed in ("1", "2"):
        code = exit_code(
            ["run", str(scenario), "--cluster", "simulated", "--seed", seed, "--engine", "inline", "-q",
             "--out", str(folder / "runs")]
        )  # fmt: skip
        assert code == 0
    return sorted((folder / "runs").iterdir())


@pytest.fixture
def archive(runs, tmp_path):
    path = tmp_path / "run.zip"
    bundle(runs[0], path)
    return path


def rewritten(archive, target, *, change=lambda name, content: content, more=()):
    with zipfile.ZipFile(archive) as source, zipfile.ZipFile(target, "w") as out:
        for name in source.namelist():
            content = change(name, source.read(name))
            if content is not None:
                out.writestr(name, content)
        for name, content in more:
            out.writestr(name, content)
    return target


def test_a_bundle_says_the_same_again(archive):
    result = verified(archive, "inline")

    assert result.is_same
    assert result.stated is result.found
    assert result.stated in (Verdict.PASS, Verdict.PERMITTED)


def test_the_same_run_gives_the_same_archive(runs, archive, tmp_path):
    bundle(runs[0], tmp_path / "again.zip")

    assert (tmp_path / "again.zip").read_bytes() == archive.read_bytes()


def test_a_bundle_does_not_say_where_the_run_was(runs, tmp_path):
    run_dir = tmp_path / "somewhere" / runs[0].name
    shutil.copytree(runs[0], run_dir)
    (run_dir / "logs").mkdir(exist_ok=True)
    (run_dir / "logs" / "1.log").write_text(f"no space in {run_dir}/nodes/1")
    assert exit_code(["report", str(run_dir)]) == 0
    bundle(run_dir, tmp_path / "run.zip")

    unpacked(tmp_path / "run.zip", tmp_path / "unpacked")

    contents = {path.name: path.read_bytes() for path in (tmp_path / "unpacked").rglob("*") if path.is_file()}
    assert contents["1.log"] == f"no space in {run_dir.name}/nodes/1".encode()
    assert f"tribunal run --plan {run_dir.name}/plan.json".encode() in contents["report.html"]
    assert [name for name, content in contents.items() if str(tmp_path).encode() in content] == []


def test_a_bundle_has_what_a_reader_needs_and_no_disks(runs, archive):
    (runs[0] / "nodes").mkdir(exist_ok=True)
    names = zipfile.ZipFile(archive).namelist()

    assert {LIST, "plan.json", "schedule.jsonl", "manifest.json", "verdict.json", "report.html"} <= set(names)
    assert "requirements.lock" in names
    assert not [name for name in names if name.startswith("nodes/")]


def flipped(victim):
    def change(name, content):
        return bytes([content[0] ^ 1, *content[1:]]) if name == victim else content

    return change


@pytest.mark.parametrize("victim", ["plan.json", "verdict.json", "schedule.jsonl", "requirements.lock"])
def test_a_changed_byte_is_refused_by_name(archive, tmp_path, victim):
    with pytest.raises(Tampered, match=victim):
        unpacked(rewritten(archive, tmp_path / "bad.zip", change=flipped(victim)), tmp_path / "out")


def test_a_changed_table_is_refused_by_name(archive, tmp_path):
    victim = next(name for name in zipfile.ZipFile(archive).namelist() if name.startswith("recording/sends/"))

    with pytest.raises(Tampered, match="recording/sends/"):
        unpacked(rewritten(archive, tmp_path / "bad.zip", change=flipped(victim)), tmp_path / "out")


def test_a_missing_file_is_refused_by_name(archive, tmp_path):
    bad = rewritten(archive, tmp_path / "bad.zip", change=lambda n, c: None if n == "schedule.jsonl" else c)

    with pytest.raises(Tampered, match=r"schedule\.jsonl: in the list, but not in the archive"):
        unpacked(bad, tmp_path / "out")


@pytest.mark.parametrize("name", ["../evil", "extra.txt", "/etc/evil"])
def test_a_file_nobody_named_is_refused(archive, tmp_path, name):
    bad = rewritten(archive, tmp_path / "bad.zip", more=[(name, b"x")])

    with pytest.raises(Tampered, match="not in its list"):
        unpacked(bad, tmp_path / "out")
    assert not (tmp_path / "evil").exists()


@pytest.mark.parametrize(
    "forged", [lambda b: b"#!/bin/sh\n" + b, lambda b: b[:-2] + b"\x04\x00PASS"], ids=["before it", "a comment"]
)
def test_bytes_that_are_no_file_of_the_archive_are_refused(archive, tmp_path, forged):
    """It was a script, or said a verdict of its own, and was verified."""
    target = tmp_path / "forged.zip"
    target.write_bytes(forged(archive.read_bytes()))

    with pytest.raises(Tampered, match="bytes that are no file of the archive"):
        unpacked(target, tmp_path / "out")


def with_a_gap(source, target):
    """Copy an archive with bytes between its entries that no entry names."""
    with zipfile.ZipFile(source) as archive, zipfile.ZipFile(target, "w") as out:
        for name in archive.namelist():
            out.writestr(name, archive.read(name))
            out.start_dir += out.fp.write(b"PASS")


def with_words(field):
    """Copy an archive with something beside the content of its entries."""

    def copied(source, target):
        with zipfile.ZipFile(source) as archive, zipfile.ZipFile(target, "w") as out:
            for name in archive.namelist():
                entry = zipfile.ZipInfo(name)
                setattr(entry, field, b"\xfe\xca\x04\x00PASS")
                out.writestr(entry, archive.read(name))

    return copied


@pytest.mark.parametrize(
    "copied", [with_a_gap, with_words("extra"), with_words("comment")], ids=["gap", "extra", "comment"]
)
def test_bytes_between_the_files_of_an_archive_are_refused(archive, tmp_path, copied):
    copied(archive, tmp_path / "forged.zip")

    with pytest.raises(Tampered, match="bytes that are no file of the archive"):
        unpacked(tmp_path / "forged.zip", tmp_path / "out")


class _Continued:
    """A deflate stream that others follow in the same entry."""

    def __init__(self, stream):
        self.compress = stream.compress
        self.flush = lambda: stream.flush() + b"PASS"


@pytest.mark.parametrize("name", [LIST, "verdict.json"])
def test_bytes_behind_the_end_of_a_files_content_are_refused(archive, tmp_path, name):
    """Who unpacks does not see them: a deflate stream says itself where it ends."""
    with zipfile.ZipFile(archive) as source, zipfile.ZipFile(tmp_path / "forged.zip", "w") as out:
        for entry in source.namelist():
            kind = zipfile.ZipInfo(entry)
            kind.compress_type = zipfile.ZIP_DEFLATED
            with out.open(kind, "w") as target:
                target.write(source.read(entry))
                if entry == name:
                    target._compressor = _Continued(target._compressor)

    with pytest.raises(Tampered, match=f"{name}: bytes that are no file of the archive: behind"):
        unpacked(tmp_path / "forged.zip", tmp_path / "out")


def test_the_sizes_of_a_large_entry_are_no_such_bytes(archive, tmp_path):
    with zipfile.ZipFile(archive) as source, zipfile.ZipFile(tmp_path / "large.zip", "w") as out:
        for name in source.namelist():
            with out.open(name, "w", force_zip64=True) as entry:
                entry.write(source.read(name))

    assert unpacked(tmp_path / "large.zip", tmp_path / "out").files


def test_a_listed_name_outside_the_archive_is_refused(archive, tmp_path):
    def change(name, content):
        if name != LIST:
            return content
        listed = msgspec.json.decode(content)
        listed["files"].append({"name": "../evil", "size": 1, "sha256": "x"})
        return msgspec.json.encode(listed)

    bad = rewritten(archive, tmp_path / "bad.zip", change=change, more=[("../evil", b"x")])

    with pytest.raises(Tampered, match="outside of the archive"):
        unpacked(bad, tmp_path / "out")


@pytest.mark.parametrize(
    ("name", "size", "words"),
    [
        ("logs/x.log", -5, "size"),  # of a negative size all is read at once, however large it is
        ("logs/x/", 1, "a folder"),
        ("logs//x.log", 1, "a folder"),
        ("trace.msgpack/x", 1, "a file in a file"),
        ("logs/\x1b[2J.log", 1, "no name of a file"),
        (f"logs/{'x' * 300}", 1, "no name of a file"),
        ("trace.msgpack", 1, "there twice"),
    ],
)
def test_a_listed_file_that_cannot_be_one_is_refused(archive, tmp_path, name, size, words):
    def change(own, content):
        if own != LIST:
            return content
        listed = msgspec.json.decode(content)
        listed["files"].append({"name": name, "size": size, "sha256": "x"})
        return msgspec.json.encode(listed)

    more = [] if name == "trace.msgpack" else [(name, b"x")]
    bad = rewritten(archive, tmp_path / "bad.zip", change=change, more=more)

    with pytest.raises(Tampered, match=words):
        unpacked(bad, tmp_path / "out")


@pytest.mark.parametrize("run_id", ["x" * 300, "x\x1b[2J", "x\nthe same verdict"])
def test_a_run_whose_name_is_none_is_refused(archive, tmp_path, run_id):
    def change(own, content):
        return msgspec.json.encode(msgspec.json.decode(content) | {"run_id": run_id}) if own == LIST else content

    with pytest.raises(Tampered, match="is no name of a run"):
        unpacked(rewritten(archive, tmp_path / "bad.zip", change=change), tmp_path / "out")


@pytest.mark.timeout(20)
def test_an_archive_of_very_many_files_is_refused_soon(archive, tmp_path):
    """Names were counted once for each name."""
    more = [(f"logs/{number}.log", b"") for number in range(60_000)]

    def change(own, content):
        if own != LIST:
            return content
        listed = msgspec.json.decode(content)
        listed["files"] += [{"name": name, "size": 0, "sha256": "x"} for name, _ in more]
        return msgspec.json.encode(listed)

    bad = rewritten(archive, tmp_path / "bad.zip", change=change, more=more)

    with pytest.raises(Tampered, match="was changed"):
        unpacked(bad, tmp_path / "out")


def test_what_is_said_of_an_archive_moves_no_cursor_and_begins_no_line(archive, tmp_path, capsys):
    def change(own, content):
        if own != LIST:
            return content
        listed = msgspec.json.decode(content)
        listed["findings"]["\x1b[2J\x1b[H\nthe same verdict: PASS stated, PASS found"] = 1
        return msgspec.json.encode(listed)

    bad = rewritten(archive, tmp_path / "bad.zip", change=change)

    assert exit_code(["verify", str(bad), "--engine", "inline"]) == 3
    said = capsys.readouterr().out
    assert r"\x1b[2J\x1b[H\nthe same verdict: PASS stated" in said
    assert "\x1b" not in said


def test_a_verdict_that_was_made_better_is_found_by_judging_again(runs, tmp_path):
    """Hashes that were made to fit do not help: the recording is judged, not the verdict."""
    run = shutil.copytree(runs[0], tmp_path / "run")
    content = msgspec.json.decode((run / "verdict.json").read_bytes())
    content["verdict"] = "VIOLATION"
    (run / "verdict.json").write_bytes(msgspec.json.encode(content))
    bundle(run, tmp_path / "lie.zip")

    result = verified(tmp_path / "lie.zip", "inline")

    assert not result.is_same
    assert "VIOLATION stated" in result.differences[0]


def test_what_was_seen_of_a_heal_that_did_not_come_about_has_known_names(runs, tmp_path):
    """Log ends are stated by node; JSON has such names as text."""
    run = shutil.copytree(runs[0], tmp_path / "run")
    state = CommittedPartition(leader=-1, leader_epoch=1, partition_epoch=4, replicas=(1, 2), isr=())
    lacking = PartitionSeen(name="t-0", state=state, log_ends={1: 7, 2: None})
    look = Look(at_ns=1, answering=(1, 2), unfenced=(1, 2), lacking=(lacking,))
    unhealed = Unhealed(timeout_ms=5, nodes=(1, 2), brokers=(1, 2), not_undone=(), on_disks=(), first=look, second=look)
    content = msgspec.json.decode((run / "manifest.json").read_bytes())
    content["unhealed"] = msgspec.to_builtins(unhealed, str_keys=True)
    (run / "manifest.json").write_bytes(msgspec.json.encode(content))
    bundle(run, tmp_path / "unhealed.zip")

    differences = verified(tmp_path / "unhealed.zip", "inline").differences

    assert [one for one in differences if "no such name" in one] == []


@pytest.mark.parametrize("content", [b"", b"no archive", b"PK\x03\x04 half"])
def test_what_is_no_archive_is_one_line_and_3(tmp_path, capsys, content):
    (tmp_path / "x.zip").write_bytes(content)

    assert exit_code(["verify", str(tmp_path / "x.zip"), "--engine", "inline"]) == 3
    assert capsys.readouterr().err.count("\n") == 1


def test_a_cut_off_archive_is_refused(archive, tmp_path, capsys):
    (tmp_path / "cut.zip").write_bytes(archive.read_bytes()[:-200])

    assert exit_code(["verify", str(tmp_path / "cut.zip"), "--engine", "inline"]) == 3
    assert "not a complete archive" in capsys.readouterr().err


def test_runs_of_two_seeds_differ_in_plan_and_from_some_event_on(runs):
    result = compared(*runs)

    assert "seed" in [one.what for one in result.plan]
    assert not result.made_with
    assert sorted(result.first_event) == sorted(run.name for run in runs)
    assert all(result.first_event.values())
    ends = [line for line in result.first_lines if line.startswith("    > ")]
    roles = [line.rpartition("<- ")[2] for line in ends]
    assert roles == ["the first event that differs, in the one run", "what the other run did instead"]
    assert len({line.partition("<-")[0] for line in ends}) == 2


def test_runs_of_one_name_in_two_folders_are_distinguished(runs, tmp_path):
    copies = tmp_path / "a" / "run", tmp_path / "b" / "run"
    for source, copy in zip(runs, copies, strict=True):
        shutil.copytree(source, copy)
    with (copies[1] / "schedule.jsonl").open("ab") as schedule:
        schedule.write(b'{"index":')  # its harness was killed

    assert set(compared(*copies).first_event) == {str(copy) for copy in copies}


def test_an_encrypted_archive_is_refused(archive, tmp_path):
    content = bytearray(archive.read_bytes())
    content[6] |= 1
    entry = content.index(b"PK\x01\x02")
    content[entry + 8] |= 1
    (tmp_path / "x.zip").write_bytes(content)

    with pytest.raises(Tampered, match="encrypted"):
        verified(tmp_path / "x.zip", "inline")


def test_a_run_does_not_differ_from_itself(runs):
    result = compared(runs[0], runs[0])

    assert result.is_same
    assert result.trace == "the same history, event by event"


def test_a_run_that_was_unpacked_gives_the_same_archive_under_any_name(archive, tmp_path):
    with zipfile.ZipFile(archive) as packed:
        packed.extractall(tmp_path / "by another name")

    bundle(tmp_path / "by another name", tmp_path / "again.zip")

    assert (tmp_path / "again.zip").read_bytes() == archive.read_bytes()


def test_a_simulated_run_is_run_again(archive, runs, tmp_path):
    run = shutil.copytree(runs[0], tmp_path / "run")
    known = msgspec.json.decode((run / "simulation.json").read_bytes())
    (run / "simulation.json").write_bytes(msgspec.json.encode(known | {"leader_epochs": 7}))
    bundle(run, tmp_path / "lie.zip")

    assert verified(archive, None, is_replayed=True).differences == []
    assert verified(tmp_path / "lie.zip", None).is_same  # nothing else in the archive says how many there were
    reported = verified(tmp_path / "lie.zip", None, is_replayed=True).differences
    assert len(reported) == 1
    assert "leader_epochs: 7 stated" in reported[0]


@pytest.fixture
def key(tmp_path):
    if shutil.which("ssh-keygen") is None:
        pytest.skip("ssh-keygen is not installed here")
    order = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", str(tmp_path / "key")]
    subprocess.run(order, check=True)
    return tmp_path / "key"


def test_who_signed_is_another_matter_than_whether_hashes_fit(archive, key, tmp_path, capsys):
    (tmp_path / "allowed").write_text(f"judge@example.org {key.with_suffix('.pub').read_text()}")
    assert verified(archive, "inline").signature is None
    sign(archive, key)

    known = verified(archive, "inline", signers=tmp_path / "allowed")
    unknown = verified(archive, "inline")

    assert known.is_same
    assert known.signature.signer == "judge@example.org"
    assert unknown.signature.signer is None
    assert unknown.signature.key == known.signature.key
    (tmp_path / "others").write_text(
        "nobody@example.org ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
    )
    assert exit_code(["verify", str(archive), "--engine", "inline", "--signers", str(tmp_path / "others")]) == 3
    assert "does not name" in capsys.readouterr().err


def test_a_signature_of_other_bytes_is_refused(archive, runs, key, tmp_path):
    sign(archive, key)
    bundle(runs[1], tmp_path / "other.zip")
    shutil.copy(f"{archive}.sig", f"{tmp_path / 'other.zip'}.sig")

    with pytest.raises(Unsigned, match="not a signature of this archive"):
        verified(tmp_path / "other.zip", "inline")


def test_an_unsigned_archive_is_refused_where_signers_are_named(archive, key):
    with pytest.raises(Unsigned, match="nobody signed it"):
        verified(archive, "inline", signers=key.with_suffix(".pub"))


def test_a_signature_that_nobody_checked_is_none(archive, capsys):
    """A signature of minisign does not say with which key it was made."""
    archive.with_name(f"{archive.name}.minisig").write_text("untrusted comment: signed by the judge himself")

    assert exit_code(["verify", str(archive), "--engine", "inline"]) == 0
    assert "run.zip.minisig was NOT checked" in capsys.readouterr().out
    assert verified(archive, "inline").signature is None


@pytest.mark.parametrize("is_torn", [True, False])
def test_whoever_bundles_a_recording_that_was_damaged_since_learns_it_before_the_reader(
    runs, tmp_path, is_torn, capsys
):
    run = tmp_path / runs[0].name
    shutil.copytree(runs[0], run)
    if is_torn:
        victim = min((run / "recording").rglob("*.parquet"))
        victim.write_bytes(victim.read_bytes()[:50])

    assert exit_code(["bundle", str(run), "-o", str(tmp_path / "run.zip")]) == 0

    assert ("verify will refuse it: the recording is not as it was" in capsys.readouterr().err) is is_torn


def test_no_archive_is_written_over_another(runs, tmp_path, capsys):
    (tmp_path / "run.zip").write_text("mine")

    assert exit_code(["bundle", str(runs[0]), "-o", str(tmp_path / "run.zip")]) == 64

    assert capsys.readouterr().err.endswith("run.zip: there already; give another name with --out\n")
    assert (tmp_path / "run.zip").read_text() == "mine"


@pytest.mark.parametrize("command", ["shrink", "likelihood"])
def test_of_a_run_that_passed_there_is_nothing_to_be_made_small(runs, command, capsys):
    """It was run again, and then it was said, with 3, that its plan shows nothing."""
    assert exit_code([command, str(runs[0])]) == 64

    assert "found nothing; give --signature" in capsys.readouterr().err
