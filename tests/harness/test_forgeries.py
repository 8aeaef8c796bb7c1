"""Every forgery is reported: of each file and each fact of an archive one lie whose hashes fit.

What is not reported has to stand in docs/security.md as what cannot be known from an archive alone.
"""

import re
import shutil
import zipfile
from pathlib import Path

import msgspec
import pytest

from tests.harness.forger import (
    Forgery,
    beside_the_rows,
    forgeries,
    hashes_made_to_fit,
    made_to_fit,
)
from tribunal.harness.cli.main import exit_code
from tribunal.harness.evidence.bundle import LIST, Bundle, Tampered, bundle, unpacked
from tribunal.harness.evidence.verify import Anew, compared, made_anew, verified
from tribunal.results.manifest import Manifest
from tribunal.results.verdict import Verdict

SECURITY = Path(__file__).parents[2] / "docs" / "security.md"
SCENARIO = """scenario: small
about: a short run to look at
workload: {name: produce-consume, rate: 60, partitions: 1}
time: 1s
warm_up: 300ms
steps:
  - {kill: leader(p0), for: 500ms}
"""
HISTORY = """{:type :invoke, :f :txn, :value [[:append 1 1]], :process 0, :time 0, :index 0}
{:type :ok, :f :txn, :value [[:append 1 1]], :process 0, :time 1, :index 1}
{:type :invoke, :f :txn, :value [[:r 1 nil]], :process 1, :time 2, :index 2}
{:type :ok, :f :txn, :value [[:r 1 [1]]], :process 1, :time 3, :index 3}
"""
# What the judge sees, or what it is reported: after such a lie the recording has to be judged again.
JUDGED = ("manifest.json", "simulation.json", "recording")
# Facts of the manifest that the judge never looks at, or never beyond the comparison with the plan.
LABELS = ("seed", "scenario", "cluster", "mode", "mutants", "commit", "lock_sha256", "python", "platform", "place")


@pytest.fixture(scope="module")
def stated(tmp_path_factory):
    """An unpacked archive of a simulated run, and what is made of it anew."""
    folder = tmp_path_factory.mktemp("forged")
    (folder / "small.yaml").write_text(SCENARIO)
    order = ["run", str(folder / "small.yaml"), "--cluster", "simulated", "--seed", "3", "--engine", "inline", "-q"]
    assert exit_code([*order, "--out", str(folder / "runs")]) == 0
    (run,) = (folder / "runs").iterdir()
    bundle(run, folder / "run.zip")
    content = unpacked(folder / "run.zip", folder / "stated")
    (folder / "stated" / LIST).write_bytes(zipfile.ZipFile(folder / "run.zip").read(LIST))
    anew = made_anew(folder / "stated", folder / "again" / content.run_id, "inline")
    return folder / "stated", anew


def unknowable() -> list[str]:
    """Return the facts that docs/security.md says an archive alone does not prove: `file`: `fact`, a fact may end in `*`."""
    rows = re.findall(r"^\| `([^`]+)` \| ((?:`[^`]+`(?:, )?)+) \|", SECURITY.read_text(), re.MULTILINE)
    return [f"{file}: {fact}" for file, facts in rows for fact in re.findall(r"`([^`]+)`", facts)]


def is_listed(forgery: Forgery) -> bool:
    said = f"{forgery.file}: {forgery.fact}"
    return any(said == known or (known.endswith("*") and said.startswith(known[:-1])) for known in unknowable())


def reported(forgery: Forgery, stated: Path, anew: Anew, folder: Path) -> list[str]:
    """Return what verification says of a forged archive; differences and notes."""
    forged = shutil.copytree(stated, folder / "forged")
    forgery.commit(forged)
    hashes_made_to_fit(forged)
    try:
        content = Bundle.of(forged)
    except Tampered as problem:
        return [str(problem)]
    if forgery.file in JUDGED and forgery.fact.split(".")[0] not in LABELS:
        anew = made_anew(forged, folder / "again" / content.run_id, "inline")
    differences, remarks = compared(content, forged, anew)
    shutil.rmtree(folder)
    return differences + [remark for remark in remarks if remark.startswith(forgery.file)]


def assert_reported(chosen: list[Forgery], stated: Path, anew: Anew, tmp_path: Path) -> None:
    unreported = [
        f"{forgery.file}: {forgery.fact}"
        for number, forgery in enumerate(chosen)
        if not reported(forgery, stated, anew, tmp_path / str(number)) and not is_listed(forgery)
    ]
    assert unreported == []


def test_lies_beside_the_recording_are_reported_or_known_not_to_be(stated, tmp_path):
    folder, anew = stated
    chosen = [one for one in forgeries(folder) if one.file not in JUDGED or one.fact.split(".")[0] in LABELS]

    assert len(chosen) > 140
    assert_reported(chosen[::5], folder, anew, tmp_path)  # all of them in the nightly


@pytest.mark.parametrize(
    ("file", "fact"), [("plan.json", "faults.0.index"), ("schedule.jsonl", "index"), ("schedule.jsonl", "broken_off")]
)
def test_lies_about_which_fault_it_was_and_how_it_ended_are_reported(stated, tmp_path, file, fact):
    folder, anew = stated
    (forgery,) = [one for one in forgeries(folder) if (one.file, one.fact) == (file, fact)]

    assert reported(forgery, folder, anew, tmp_path / "lie")


def test_an_archive_that_is_called_an_old_one_is_reported(stated, tmp_path):
    """Of old archives less is compared: that must not be had by saying so."""
    folder, anew = stated
    forged = shutil.copytree(folder, tmp_path / "forged")
    (forged / "report.html").write_text("<p>nothing was lost</p>")
    content = msgspec.structs.replace(Bundle.of(forged), bundle_version=1)

    differences, _ = compared(content, forged, anew)

    assert [line.partition(" stated")[0] for line in differences] == ["bundle.json: bundle_version: 1"]


def test_a_simulation_beside_a_run_on_real_nodes_is_reported(stated, tmp_path):
    """It could accuse a system of an invariant that nobody saw there."""
    folder, anew = stated
    forged = shutil.copytree(folder, tmp_path / "forged")
    for name in ("plan.json", "manifest.json"):
        content = msgspec.json.decode((forged / name).read_bytes())
        (forged / name).write_bytes(msgspec.json.encode(content | {"cluster": "processes"}))
    content = Bundle.of(forged)

    differences, _ = compared(content, forged, anew)

    assert [line for line in differences if line.startswith("simulation.json: is there")]
    assert not [line for line in compared(content, folder, anew)[0] if line.startswith("simulation.json")]


@pytest.mark.parametrize("missing", [("plan.json", "schedule.jsonl"), ("plan.json",), ("schedule.jsonl",)])
def test_a_run_without_what_every_run_writes_is_reported(stated, tmp_path, missing):
    """Also where its manifest names no scenario any more, and verdict and report are made of what is left."""
    folder, _ = stated
    forged = shutil.copytree(folder, tmp_path / "forged")
    for name in (*missing, "simulation.json", "trace.msgpack"):
        (forged / name).unlink()
    manifest = msgspec.json.decode((forged / "manifest.json").read_bytes(), type=Manifest)
    labels = dict.fromkeys(("scenario", "seed", "cluster", "place", "mode"))
    (forged / "manifest.json").write_bytes(msgspec.json.encode(msgspec.structs.replace(manifest, **labels)))
    made_to_fit(forged, tmp_path / "fit")

    content = Bundle.of(forged)
    differences, _ = compared(content, forged, made_anew(forged, tmp_path / "again" / content.run_id, "inline"))

    for name in missing:
        assert any(line.startswith(f"{name}: ") for line in differences), (name, differences)


def test_an_imported_history_has_neither_plan_nor_schedule(tmp_path):
    """Nor has it a recording: nothing is missing there."""
    (tmp_path / "history.edn").write_text(HISTORY)
    run = tmp_path / "imported"
    assert exit_code(["import", str(tmp_path / "history.edn"), "--format", "jepsen-edn", "--out", str(run)]) == 0
    assert exit_code(["check", str(run), "--engine", "inline"]) == 0
    bundle(run, tmp_path / "run.zip")

    result = verified(tmp_path / "run.zip", "inline")

    assert result.differences == []


@pytest.mark.parametrize("hidden", beside_the_rows(), ids=lambda one: one.fact)
def test_rows_that_are_all_there_and_not_seen_are_reported(stated, tmp_path, hidden):
    """Verdict and report are then what the judge makes of the rest, and the hash of the rows is that of the run."""
    folder, _ = stated
    forged = shutil.copytree(folder, tmp_path / "forged")
    hidden.commit(forged)
    made_to_fit(forged, tmp_path / "fit")

    content = Bundle.of(forged)
    anew = made_anew(forged, tmp_path / "again" / content.run_id, "inline")
    differences, remarks = compared(content, forged, anew)

    reported = [line for line in (*differences, *remarks) if line.startswith("recording")]
    assert reported or content.verdict is Verdict.ERROR  # then nothing is claimed of it


@pytest.mark.nightly
@pytest.mark.timeout(600)
def test_every_lie_is_reported_or_known_not_to_be(stated, tmp_path):
    folder, anew = stated

    assert_reported(list(forgeries(folder)), folder, anew, tmp_path)


@pytest.mark.nightly
@pytest.mark.timeout(600)
def test_what_is_said_to_be_unknowable_is_so(stated, tmp_path):
    """A list that says too much would hide what is reported after all."""
    folder, anew = stated
    chosen = [one for one in forgeries(folder) if is_listed(one) and one.file not in JUDGED]

    assert chosen
    for number, forgery in enumerate(chosen):
        assert reported(forgery, folder, anew, tmp_path / str(number)) == [], forgery.fact
