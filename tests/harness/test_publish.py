"""A campaign's page: what is counted agrees with the runs, what is not said is said to be unsaid, others can verify."""

import re
import shutil
from pathlib import Path

import msgspec
import pytest

from tribunal.checkers.api import properties
from tribunal.checkers.guarantees import OF_MEMORY, OF_SYSTEMS, RULES, Excuse
from tribunal.harness.cli.main import exit_code
from tribunal.harness.evidence.publish import most_informative, read_statement
from tribunal.harness.evidence.verify import verified
from tribunal.harness.scenario import BadScenario
from tribunal.results.report.campaign import Statement, campaign, write
from tribunal.results.report.index import RunRow, index
from tribunal.results.report.rules import IN_PLAIN_WORDS, rules_of
from tribunal.results.sensitivity import measured
from tribunal.results.verdict import Detail, Finding, RunVerdict, Verdict, load, save

SCENARIO = """scenario: small
about: a short run to look at
workload: {name: produce-consume, rate: 60, partitions: 2}
time: 2s
warm_up: 500ms
steps:
  - {kill: leader(p0), for: 1s}
"""
STATEMENT = "campaign: A small one\nsystem: replog\nversion: <b>1</b>\nnot_covered: [clocks]\n"


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("campaign")
    (folder / "small.yaml").write_text(SCENARIO)
    for seed in ("1", "2"):
        out = ["--out", str(folder / "runs"), "--engine", "inline", "-q"]
        assert exit_code(["run", str(folder / "small.yaml"), "--cluster", "simulated", "--seed", seed, *out]) == 0
    return folder / "runs"


@pytest.fixture
def statement(tmp_path):
    path = tmp_path / "campaign.yaml"
    path.write_text(STATEMENT)
    return path


def test_a_site_says_all_of_it_and_its_evidence_verifies(runs, statement, tmp_path):
    site = tmp_path / "site"

    assert exit_code(["publish", str(runs), "--statement", str(statement), "-o", str(site), "--evidence", "1"]) == 0

    page = (site / "index.html").read_text()
    assert "&lt;b&gt;1&lt;/b&gt;" in page  # text stays text
    assert "<li>clocks</li>" in page
    assert re.search(r"kill</th><td>[^<]+</td><td class=\"n\">2</td><td class=\"n\">2</td>", page)
    assert "77.6 %" in page  # two runs without a violation: 1 - 0.05 ** (1 / 2)
    assert "Power was not measured" in page
    assert "Sensitivity was not measured" in page
    assert "How many anomalies the judge would have seen in these runs is not known" in page
    elsewhere = measured()
    assert f"In {elsewhere.recordings} recordings of replog" in page
    assert f"(tribunal calibrate, commit {elsewhere.commit})" in page
    assert "No promise was broken: no record that had to survive was lost." in page
    assert "2 of 2 injected faults of 1 kinds provably took effect" in page
    claimed = dict(re.findall(r'<tr><th scope="row">(\w+)</th><td>[^<]+</td><td class="n">(\d+)</td>', page))
    assert claimed["lost_writes"] == "2"
    assert not {"bank", "transactions", "exactly_once", "group_members"} & {*claimed}
    assert re.search(r"Not claimed, because no run had anything for it to look at: [^.]*\bbank\b", page)
    assert re.search(r'lost_writes</th><td>[^<]+</td><td class="n">2</td><td class="n">4 of 4</td>', page)
    (archive,) = (site / "evidence").iterdir()
    assert archive.name in page
    assert verified(archive, "inline").is_same


def test_what_is_being_made_is_said(runs, statement, tmp_path, capsys):
    """Twenty archives are minutes of work."""
    words = ["publish", str(runs), "--statement", str(statement), "-o", str(tmp_path / "site"), "--evidence", "1"]

    assert exit_code(words) == 0

    first, second = capsys.readouterr().err.splitlines()
    assert first.startswith("archive 1 of 1: ")
    assert second == "the page, of 2 runs"


def test_a_site_that_cannot_be_finished_leaves_nothing(runs, statement, tmp_path, monkeypatch):
    """The next attempt was refused: the folder was there already."""
    with monkeypatch.context() as disk:
        disk.setattr("tribunal.harness.evidence.publish.sha256_of", full)
        assert exit_code(["publish", str(runs), "--statement", str(statement), "-o", str(tmp_path / "site")]) == 3
    assert [path.name for path in tmp_path.iterdir()] == ["campaign.yaml"]

    assert exit_code(["publish", str(runs), "--statement", str(statement), "-o", str(tmp_path / "site")]) == 0


def full(path):
    raise OSError(28, "No space left on device", str(path))


def test_a_site_says_how_many_anomalies_would_have_been_seen(runs, statement, tmp_path):
    folder = tmp_path / "runs"
    shutil.copytree(runs, folder)
    own = next(one for one in folder.iterdir() if one.is_dir())
    chosen = ["--classes", "hole,changed-key", "--out", str(folder / "sensitivity.json")]
    assert exit_code(["calibrate", str(own), *chosen]) == 0
    site = tmp_path / "site"

    assert exit_code(["publish", str(folder), "--statement", str(statement), "-o", str(site), "--evidence", "1"]) == 0

    page = (site / "index.html").read_text()
    assert "no rule permits them: 2 of 2 were seen, in copies of 1 recording." in page
    assert "Of 2 anomalies that were put into copies of 1 recording of this campaign, the judge saw 2." in page
    assert re.search(r'hole</th><td class="n">1</td><td class="n">1</td>', page)


def permitted(rule, count, kind="lost", words=None):
    return Finding(
        property_name="p", kind=kind, severity="permitted", explanation="e", rule=rule, count=count, detail=Detail(promise=words)
    )  # fmt: skip


def test_an_abstract_says_in_words_why_what_is_lost_may_be(tmp_path):
    """It said "as the settings permit (rules R1, R5, gone_by_order)", also of rules that had permitted no loss."""
    findings = [permitted("R5", 3), permitted("gone_by_order", 9), permitted("R1", 1, kind="latest_offset_back")]
    (tmp_path / "run").mkdir()
    verdict = RunVerdict(run_id="run", verdict=Verdict.PERMITTED, claim="", findings=findings)
    save(verdict, tmp_path / "run" / "verdict.json")
    said = Statement(campaign="c", system="s", version="1")

    found = campaign(tmp_path, said, [], {}, {}, 0.5, {})

    sentence = found.abstract[2]
    assert sentence.words == "12 records were lost, each for a reason that permits it:"
    assert [(one.name, one.plain) for one in sentence.rules] == [
        (name, IN_PLAIN_WORDS[name]) for name in ("gone_by_order", "R5")
    ]
    assert [(one.name, one.count) for one in found.permitted] == [("gone_by_order", 9), ("R5", 3), ("R1", 1)]


@pytest.mark.parametrize("verdict", [Verdict.INCONCLUSIVE, Verdict.PASS])
def test_a_campaign_without_an_answer_is_not_green(tmp_path, verdict):
    (tmp_path / "run").mkdir()
    save(RunVerdict(run_id="run", verdict=verdict, claim=""), tmp_path / "run" / "verdict.json")
    said = Statement(campaign="c", system="s", version="1")

    page = write(tmp_path, said, claims=[], faults={}, evidence={}, bound=1.0, target=tmp_path, made_with={})

    assert f'id="result" class="verdict {verdict}"' in page.read_text()


def test_every_rule_that_the_judge_may_name_is_known_in_plain_words():
    brought = {own.name for one in properties().values() for own in one.rules}

    assert {*RULES, *OF_MEMORY, *OF_SYSTEMS, *brought, *map(str, Excuse)} == {*IN_PLAIN_WORDS}


def test_a_rule_that_a_plugin_brings_has_the_plugins_own_words():
    (rule,) = rules_of([permitted("X1", 2, words="it is so")])

    assert (rule.plain, rule.own, rule.count) == ("it is so", "it is so", 2)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("campaign: x\n", "`system` is missing"),
        (STATEMENT + "extra: 1\n", "unknown field `extra`"),
        ("[", "campaign.yaml"),
    ],
)
def test_a_bad_statement_is_one_line(runs, tmp_path, capsys, text, line):
    path = tmp_path / "campaign.yaml"
    path.write_text(text)

    assert exit_code(["publish", str(runs), "--statement", str(path), "-o", str(tmp_path / "site")]) == 64
    said = capsys.readouterr().err
    assert line in said
    assert said.count("\n") == 1


def test_a_statement_is_read_as_any_file_that_people_write(tmp_path):
    """Brackets without end ended in a traceback, and a version that is a date was no text."""
    path = tmp_path / "campaign.yaml"
    path.write_text("campaign: x\nsystem: y\nversion: 2026-11-30\n")
    assert read_statement(path).version == "2026-11-30"

    path.write_text("campaign: " + "[" * 3_000)
    with pytest.raises(BadScenario, match=r"campaign\.yaml: not YAML: brackets nested deeper than"):
        read_statement(path)
    with pytest.raises(BadScenario, match="No such file or directory; write campaign, system and version into it"):
        read_statement(tmp_path / "nowhere.yaml")


def test_nothing_is_overwritten_and_nothing_published_of_nothing(runs, statement, tmp_path, capsys):
    (tmp_path / "empty").mkdir()

    for folder, out, words in (
        (runs, "empty", "empty: there already; give a folder that does not exist\n"),
        (tmp_path / "empty", "s", "empty: no judged run in it; tribunal check RUN...\n"),
        (tmp_path / "nowhere", "s", "nowhere: no such folder of runs\n"),
    ):
        code = exit_code(["publish", str(folder), "--statement", str(statement), "-o", str(tmp_path / out)])

        assert (code, capsys.readouterr().err.endswith(words)) == (64, True)
    assert not (tmp_path / "s").exists()


def a_run(folder, number, verdict, cluster, scenario, size):
    recording = folder / str(number) / "recording" / "sends"
    recording.mkdir(parents=True)
    (recording / "part-00000.parquet").write_bytes(bytes(size))
    return RunRow(
        run_id=str(number), place=str(number), has_report=True, verdict=verdict, claim="", scenario=scenario,
        cluster=cluster, seed=1, began="", mutants=[], signatures=[], probes={},
    )  # fmt: skip


def test_evidence_is_of_what_says_most(tmp_path):
    rows = [
        ("PASS", "simulated", "a", 1),
        ("VIOLATION", "simulated", "a", 90),
        ("VIOLATION", "simulated", "a", 30),
        ("VIOLATION", "simulated", "b", 60),
        ("VIOLATION", "processes", "a", 80),
        ("PERMITTED", "simulated", "a", 1),
    ]
    runs = [a_run(tmp_path, number, *row) for number, row in enumerate(rows)]

    assert [run.run_id for run in most_informative(runs, tmp_path, 5)] == ["2", "4", "3", "1", "5"]


PUBLISHED = sorted((Path(__file__).resolve().parents[2] / "docs" / "published").glob("*/evidence/*.zip"))


@pytest.mark.parametrize("archive", PUBLISHED, ids=lambda path: path.stem)
def test_what_we_have_published_can_be_verified(archive):
    result = verified(archive, "inline")

    assert result.found == result.stated, result.differences
    site = archive.parents[1]
    pages = [site / "index.html", site.with_suffix(".md")]  # of a campaign; of what a maintainer should read
    assert any(result.sha256 in page.read_text() for page in pages if page.is_file())


FAULTS_OF_KAFKA = [one for one in PUBLISHED if one.parents[1].with_suffix(".md").is_file()]


@pytest.mark.nightly  # each archive is judged and reported anew
@pytest.mark.parametrize("archive", FAULTS_OF_KAFKA, ids=lambda path: path.stem)
def test_what_a_maintainer_should_read_is_accepted_with_all_that_it_states(archive, capsys):
    """A judge that counts more than the archive states is no excuse: then the evidence is recorded anew."""
    code = exit_code(["verify", str(archive)])

    assert code == 0, capsys.readouterr().out


def test_we_have_published_our_own_system_a_real_kafka_and_those_of_others():
    assert {archive.parents[1].name for archive in PUBLISHED} == {
        *("apache-kafka", "lowered-min-isr", "mixed", "raised-min-isr", "replog", "returned-vote"),
        *("etcd", "nats", "postgresql", "rabbitmq", "redis", "zookeeper"),
    }


def test_runs_of_one_name_in_two_folders_both_have_their_evidence(runs, statement, tmp_path):
    (run, *_) = sorted(runs.glob("*/"))
    for night in ("one", "two"):
        shutil.copytree(run, tmp_path / "nights" / night / run.name)
    site = tmp_path / "site"

    code = exit_code(["publish", str(tmp_path / "nights"), "--statement", str(statement), "-o", str(site)])

    assert code == 0
    archives = sorted(path.name for path in (site / "evidence").iterdir())
    assert archives == [f"{run.name}.2.zip", f"{run.name}.zip"]
    assert all(name in (site / "index.html").read_text() for name in archives)


def test_a_run_with_a_known_bug_adds_nothing_to_what_is_counted(runs, statement, tmp_path):
    """Its hours, its faults and its records stood in the abstract and in the volume of the runs that were counted."""
    for name, more in (("alone", []), ("beside", ["--mutant", "M44", "--seed", "3"])):
        shutil.copytree(runs, tmp_path / name)
        if more:
            out = ["--out", str(tmp_path / name), "--engine", "inline", "-q"]
            small = str(runs.parent / "small.yaml")
            assert exit_code(["run", small, "--cluster", "simulated", *more, *out]) in (0, 1)

    pages = []
    for name in ("alone", "beside"):
        order = ["publish", str(tmp_path / name), "--statement", str(statement), "-o", str(tmp_path / f"{name}-site")]
        assert exit_code(order) == 0
        pages.append((tmp_path / f"{name}-site" / "index.html").read_text())

    counted = [re.search(r"<p>(replog, version .*? were acknowledged\.)", page)[1] for page in pages]
    volumes = [re.findall(r'<tr><th scope="row">([^<]+)</th><td class="n">([\d,.]+)</td>', page) for page in pages]
    faults = [re.findall(r'kill</th><td>[^<]+</td><td class="n">(\d+)</td>', page) for page in pages]
    assert counted[0] == counted[1]
    assert volumes[0]
    assert volumes[0] == volumes[1]
    assert faults == [["2"], ["2"]]
    assert "1 of these runs had a known bug switched on" in pages[1]


def test_a_violation_that_is_older_than_thousands_of_runs_is_neither_forgotten_nor_uncounted(runs, tmp_path):
    """Of more than 2,000 runs the newest were shown and counted: an old violation stood in no figure of the page."""
    for number in range(4):
        folder = shutil.copytree(next(runs.glob("*/")), tmp_path / f"{number}")
        verdict = load(folder / "verdict.json")
        changes = {
            "run_id": f"2026112{number}T090000Z-x",
            "verdict": Verdict.VIOLATION if number == 0 else verdict.verdict,
        }
        save(msgspec.structs.replace(verdict, **changes), folder / "verdict.json")

    few, every = index(tmp_path, most=2), index(tmp_path, most=None)

    assert [(run.place, run.verdict) for run in few.runs] == [("3", every.runs[0].verdict), ("0", "VIOLATION")]
    assert few.left_out == 2
    assert few.counts == every.counts
    assert few.counts["VIOLATION"] == 1
    assert sum(few.counts.values()) == len(every.runs) == 4
