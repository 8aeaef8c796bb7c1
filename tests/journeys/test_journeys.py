"""The three journeys that the product is for, each walked as its user would, from an empty folder, by commands alone."""

import json
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ElementTree

import pytest

TRIBUNAL = [sys.executable, "-m", "tribunal.harness.cli.main"]
pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]


def tribunal(folder, line, *, code=0):
    """Call `tribunal` in a folder; return what it printed."""
    done = subprocess.run([*TRIBUNAL, *line.split()], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == code, f"{line}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.mark.nightly
def test_a_night_in_ci(tmp_path):
    """A job of a CI server: one command, then its summary, its red cases and what it kept are looked at."""
    (tmp_path / "nightly.yaml").write_text(
        "nightly: my-log\ncanaries: {mutants: [M01], share: 40}\nsweeps: {pause-kill: 1}\nbound: 97\n"
    )

    first = tribunal(tmp_path, "nightly nightly.yaml --budget 30s --first-seed 11 --out out --engine inline")
    tribunal(
        tmp_path,
        "nightly nightly.yaml --budget 30s --first-seed 11 --last out/nightly.json --out again --engine inline",
    )

    assert first.startswith("## my-log: green")
    root = ElementTree.parse(tmp_path / "out" / "junit.xml").getroot()
    assert {suite.get("name") for suite in root} == {"my-log.night", "my-log.canaries", "my-log.sweep"}
    assert not root.findall(".//failure")
    assert not root.findall(".//error")
    assert len((tmp_path / "out" / "summary.md").read_text().splitlines()) <= 40
    assert "runs per CPU minute" in (tmp_path / "again" / "summary.md").read_text()
    assert (tmp_path / "out" / "index.html").is_file()


def test_a_seed_at_the_desk(tmp_path):
    """A red line is pasted, understood, made small, mended (here: its known bug is known) and kept."""
    said = tribunal(
        tmp_path, "run last-replica-standing --cluster simulated --seed 3 --mutant M01 --engine inline --quiet", code=1
    )
    (run,) = (tmp_path / "runs").iterdir()
    again = next(line for line in said.splitlines() if line.startswith("again")).partition("tribunal ")[2]
    pasted = tribunal(tmp_path, f"{again.partition('   (')[0]} --engine inline --quiet --json", code=1)
    explained = tribunal(tmp_path, f"explain runs/{run.name}")
    replayed = tribunal(tmp_path, f"replay runs/{run.name} --out again")
    small = json.loads(tribunal(tmp_path, f"shrink runs/{run.name} --budget 10s --json"))
    tribunal(tmp_path, f"report runs/{run.name}")
    kept = tribunal(tmp_path, f"findings add runs/{run.name} --name forgotten --about x --state known --folder kept")
    found = tribunal(tmp_path, "findings run --folder kept")

    known = json.loads((run / "simulation.json").read_text())
    assert json.loads(pasted)["trace_hash"] == known["trace_hash"]
    assert explained.strip()
    assert "bit-exact" in replayed
    assert small["faults"][1] <= small["faults"][0]
    assert "Drawing of the minimal run" in (run / "report.html").read_text()
    assert kept.strip() == "kept/forgotten.json"
    assert found.startswith("reproduced")


@pytest.mark.nightly
def test_a_report_for_others(tmp_path):
    """An author makes the evidence and the site; a reader, elsewhere and without a cluster, comes to the same verdict."""
    author, reader = tmp_path / "author", tmp_path / "reader"
    author.mkdir()
    reader.mkdir()
    (author / "campaign.yaml").write_text(
        "campaign: A log under pauses\nsystem: replog\nversion: '0'\nnot_covered: [clocks]\n"
    )
    tribunal(author, "new scenario pauses")
    scenario = author / "tribunal_plugins" / "scenarios" / "pauses.yaml"
    scenario.write_text(scenario.read_text().partition("steps:")[0] + "steps:\n  - {pause: leader(p0), for: 500ms}\n")
    for seed in (1, 2):
        tribunal(author, f"run pauses --cluster simulated --seed {seed} --time 2s --engine inline --quiet")

    tribunal(author, "publish runs --statement campaign.yaml -o site")
    shutil.copytree(author / "site", reader / "site")
    (archive, _) = sorted((reader / "site" / "evidence").iterdir())
    said = json.loads(tribunal(reader, f"verify site/evidence/{archive.name} --engine inline --json"))
    broken = bytearray(archive.read_bytes())
    broken[len(broken) // 2] ^= 1
    archive.write_bytes(broken)

    assert said["is_same"]
    assert said["sha256"] in (reader / "site" / "index.html").read_text()
    tribunal(reader, f"verify site/evidence/{archive.name} --engine inline", code=3)
