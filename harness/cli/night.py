"""The commands of the night: nightly, and merge for its shards."""

import os
import re
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Final

import msgspec
import typer

from tribunal.clusters.spec import ClusterSpec
from tribunal.harness.campaign.night_file import Config, read_config
from tribunal.harness.campaign.night_findings import ADDRESSES, Announcement, announce, must_be_program
from tribunal.harness.campaign.night_search import FOLDER as CORPORA
from tribunal.harness.campaign.nightly import Earlier, Folders, Nightly, Outside, Shard, Terms, first_seed_of
from tribunal.harness.cli.session import conduct
from tribunal.harness.cli.stored import fetched, storage_at
from tribunal.harness.cli.trends import can_be_store, can_keep, keep
from tribunal.harness.cli.usage import known_engine, must_not_be_file
from tribunal.harness.run import commit
from tribunal.harness.scenario import BadScenario, duration
from tribunal.harness.terminal import as_json, echo
from tribunal.results.guards import DamagedTable, Table, added
from tribunal.results.guards import read as read_guards
from tribunal.results.guards import write as write_guards
from tribunal.results.night import Night, compared, part_of_name
from tribunal.results.night_files import (
    INDEX,
    JUNIT,
    NIGHT,
    POWER,
    SUMMARY,
    UnderWay,
    held,
    killed,
    load,
    save,
    summary,
)
from tribunal.results.night_merge import of_shards
from tribunal.results.power import Power
from tribunal.results.power import of_shards as power_of_shards
from tribunal.results.power import read as read_power
from tribunal.results.power import write as write_power
from tribunal.results.report.index import write as write_index
from tribunal.results.scratch import Scratch
from tribunal.results.storage import NoStorage
from tribunal.results.unreadable import UNREADABLE

RUNS: Final = "runs"

Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON on stdout.")]
Last = Annotated[Path | None, typer.Option(help="Last night's nightly.json, to compare with.")]
Engine = Annotated[str, typer.Option(help="Who judges runs on real nodes: spark, inline or spark-sql.")]


def nightly(  # noqa: PLR0917 - options
    file: Annotated[Path, typer.Argument(help="What to run.")] = Path("nightly.yaml"),
    budget: Annotated[str, typer.Option(help="Time for all of it, e.g. 60m.")] = "60m",
    shard: Annotated[str, typer.Option(help="Part i of n, e.g. 2/4.")] = "1/1",
    first_seed: Annotated[int | None, typer.Option(min=0, help="Default: drawn from the date.")] = None,
    jobs: Annotated[int, typer.Option(min=1, help="Processes at once; default: one a core.")] = os.cpu_count() or 1,
    last: Last = None,
    out: Annotated[Path, typer.Option(help="Folder for junit.xml, summary.md and runs.")] = Path("nightly"),
    engine: Engine = "spark",
    notify: Annotated[
        str | None, typer.Option(help="A program, or an address: is given each new signature as JSON.")
    ] = None,
    nights: Annotated[
        str | None, typer.Option(help="Add the night to these tables of nights: a folder or an address (see trends).")
    ] = None,
    copy_to: Annotated[
        str | None, typer.Option(help="Put the night's folder into storage when it has ended: s3://BUCKET/FOLDER.")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the night of --out that was killed.")] = False,
    json: Json = False,
) -> None:
    """Spend a fixed time as well as possible: past findings, canaries, sweeps, real nodes; JUnit and a summary."""
    config = read_config(file)
    if notify is not None and (not notify.strip() or ("://" in notify and not notify.startswith(ADDRESSES))):
        raise BadScenario(f"--notify {notify!r}: a program, or an address that begins with http:// or https://")
    if notify is not None and not notify.startswith(ADDRESSES):
        must_be_program(notify)
    known_engine(engine)
    must_not_be_file("--out", out)
    if nights is not None:
        can_be_store("--nights", nights)
        can_keep()
    storage = None if copy_to is None else storage_at("--copy-to", copy_to)
    there = killed(out)
    before = _to_go_on_with(there, config, out) if resume else None
    terms = Terms(
        budget_s=duration(budget, ClusterSpec()).most_ms / 1000 if before is None else before.budget_s,
        shard=_shard(shard if before is None else before.shard),
        first_seed=before.first_seed if before is not None else first_seed_of(time.gmtime()) if first_seed is None else first_seed,
        jobs=jobs,
    )  # fmt: skip
    former = None if last is None else _former(last)
    measured = _measured((out if last is None else last.parent) / POWER)

    def news(content: Announcement) -> None:
        _say(f"{content.state:<12} {content.signature} ({content.scenario}, seed {content.seed})")
        if notify is not None:
            announce(notify, content)

    with _holding(out), Scratch("nightly", in_memory=True) as scratch, _naming(out, scratch):
        night = Nightly(
            config,
            terms=terms,
            folders=Folders(base=file.parent, out=out, scratch=scratch),
            outside=Outside(
                conduct=lambda plan, folder: conduct(plan, folder, engine, quiet=True),
                notify=_say,
                news=news,
                tables=_tables(engine, out, last),
            ),
            earlier=Earlier(
                former=former,
                killed=before,
                power=measured,
                corpora=None if last is None else last.parent / CORPORA,
            ),
        )
        # Not before all that was asked for is known to be possible: a word that was mistyped must not cost what can be gone on with.
        if there is not None and before is None:
            _put_aside(there, out)
        tonight = night.run()
    if nights is not None:
        try:
            keep(nights, tonight)
        except BadScenario as problem:
            _failed(tonight, f"{problem}; add it with: tribunal trends {nights} --add {out}", out, config, file)
        else:
            _say(f"nights       added to {nights}")
    if storage is not None:
        try:
            _say(f"stored       {storage.put(out, storage.free(stored_name(tonight)))}")
        except NoStorage as problem:
            _failed(tonight, f"{problem}; the night is in {out} alone", out, config, file)
    _show(tonight, out, json=json)


def _failed(night: Night, why: str, out: Path, config: Config, file: Path) -> None:
    """Say in all files of a night that has ended what could not be done with it."""
    night.errors.append(why)
    save(night, out)
    write_index(out, None if config.findings is None else file.parent / config.findings)


def stored_name(night: Night) -> str:
    """Return what a night's folder is called in storage: no two nights and no two shards are called the same."""
    return re.sub(r"[^\w.-]", "-", f"{night.name}-{night.began.replace(':', '')}{part_of_name(night.shard)}")


def merge(
    shards: Annotated[
        list[str], typer.Argument(help="Folders that the shards of one night have written, or their URLs.")
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for the whole night; must not exist.")],
    last: Last = None,
    findings: Annotated[Path | None, typer.Option(help="Folder of past failures, for the index page.")] = None,
    engine: Annotated[str, typer.Option(help="spark writes tables too, inline does without.")] = "inline",
    json: Json = False,
) -> None:
    """Make one night of its shards: one verdict, one JUnit file, one index page; a shard that is missing is said."""
    if out.exists():
        raise BadScenario(f"{out}: there already; give a folder that does not exist")
    known_engine(engine)
    former = None if last is None else _former(last)
    with fetched(shards) as given:
        folders = [folder for folder in given if (folder / NIGHT).is_file()]
        empty = [name for name, folder in zip(shards, given, strict=True) if folder not in folders]
        if not folders:
            raise BadScenario(
                f"no night was written to {', '.join(empty)}: name the folders of `tribunal nightly --out`"
            )
        nights = [_former(folder / NIGHT) for folder in folders]
        try:
            of_shards(nights)
        except ValueError as problem:
            raise BadScenario(str(problem)) from None
        guards, power = _guards(folders), _power(folders, nights)
        for corpus in (found for folder in folders for found in sorted((folder / CORPORA).glob("*"))):
            if not (out / CORPORA / corpus.name).exists():  # of a single night that is merged alone it is the only one
                shutil.copytree(corpus, out / CORPORA / corpus.name)
        whole = of_shards([_moved(one, folder, out / RUNS) for one, folder in zip(nights, folders, strict=True)])
    whole.errors = [*(f"{name}: no night was written there" for name in empty), *whole.errors]
    if former is not None:
        compared(whole, former)
    if guards:
        write_guards(out, guards)
    if power:
        write_power(out / POWER, power)
    _tables(engine, out, last)(whole)
    save(whole, out)
    write_index(out, findings)
    _show(whole, out, json=json)


def _guards(folders: Sequence[Path]) -> Table:
    """Return the guards of all shards as one table; those of one that was killed before it wrote any are not in it."""
    try:
        return added(read_guards(folder) for folder in folders)
    except DamagedTable as problem:
        raise BadScenario(str(problem)) from None


def _power(folders: Sequence[Path], nights: Sequence[Night]) -> list[Power]:
    return power_of_shards(
        (_measured(folder / POWER), {one.mutant for one in night.canaries if one.seeds})
        for folder, night in zip(folders, nights, strict=True)
    )


def _moved(shard: Night, folder: Path, runs: Path) -> Night:
    """Copy a shard's runs to those of the whole night; return the shard with the places where they are now.

    Shards come from other machines, so within one its runs are known by their names, which another shard may have given as well.
    """
    now = {run.name: _copied(run, runs) for run in sorted((folder / RUNS).glob("*")) if run.is_dir()}
    return msgspec.structs.replace(
        shard,
        found=[
            msgspec.structs.replace(one, run_dirs=[now[name] for name in map(_name, one.run_dirs) if name in now])
            for one in shard.found
        ],
        confirmations=[
            msgspec.structs.replace(one, run_dir=now.get(_name(one.run_dir), "")) for one in shard.confirmations
        ],
    )


def _name(run_dir: str) -> str:
    return Path(run_dir).name


def _copied(run: Path, runs: Path) -> str:
    runs.mkdir(parents=True, exist_ok=True)
    number, target = 1, runs / run.name
    while target.exists():
        number, target = number + 1, runs / f"{run.name}.{number + 1}"
    shutil.copytree(run, target, symlinks=True)
    return str(target)


def _show(night: Night, out: Path, *, json: bool) -> None:
    echo(as_json(night) if json else summary(night))
    if not json:
        echo(f"→ {out / JUNIT}  {out / SUMMARY}  {out / INDEX}")
    raise typer.Exit(night.exit_code)


def _say(line: str) -> None:
    echo(line, err=True)


@contextmanager
def _holding(out: Path) -> Iterator[None]:
    """Hold a night's folder; wrong usage when another process does."""
    try:
        with held(out):
            yield
    except UnderWay as problem:
        raise BadScenario(str(problem)) from None


@contextmanager
def _naming(out: Path, scratch: Path) -> Iterator[None]:
    """Name where a night writes when a disk is full: the system names no file then. The night's files say that it did not end."""
    try:
        yield
    except OSError as problem:
        if problem.filename is not None:
            raise
        words = f"{problem.strerror or problem}; the night did not end"
        raise OSError(problem.errno, words, f"{out} or {scratch}") from problem


def _to_go_on_with(before: Night | None, config: Config, out: Path) -> Night:
    """Return the night that was killed, or say why this is not one to go on with."""
    if before is None:
        raise BadScenario(f"--resume: no night in {out} was killed")
    if before.name != config.nightly:
        raise BadScenario(f"--resume: {out} has a night of {before.name}, the file is of {config.nightly}")
    if before.commit != commit():
        raise BadScenario(
            f"--resume: the night in {out} ran commit {before.commit[:12]}, this is {commit()[:12]}: one night says one thing of one commit; "
            "begin another one without --resume"
        )
    _say(f"resumed      the night of {before.began}, killed at {before.under_way} after {before.seconds:.0f} s")
    return before


def _put_aside(before: Night, out: Path) -> None:
    """Say that a night was killed here, and keep what it wrote."""
    aside = out / f"killed-{before.began.replace(':', '')}.json"
    (out / NIGHT).replace(aside)
    _say(
        f"killed       the night of {before.began} in {out} did not end: killed at {before.under_way}. What it said is in {aside}"
    )


def _shard(text: str) -> Shard:
    index, slash, count = text.partition("/")
    if not (slash and index.isdecimal() and count.isdecimal() and 1 <= int(index) <= int(count)):
        raise BadScenario(f"shard {text!r}: write i/n, e.g. 2/4")
    return Shard(int(index), int(count))


def _tables(engine: str, out: Path, last: Path | None) -> Callable[[Night], None]:
    """Return what writes a night's tables by Spark; without one the night says so and is what it is."""

    def write(tonight: Night) -> None:
        if engine == "inline":
            return
        from tribunal.checkers.spark import night_tables
        from tribunal.checkers.spark.java import NoJava
        from tribunal.checkers.spark.session import NoSpark, session

        _say("tables       starting Spark")
        try:
            with session() as spark:
                folders = night_tables.write(spark, [tonight], out, None if last is None else last.parent)
        except (NoJava, NoSpark) as problem:
            _say(f"no tables     {problem}")
            return
        _say(f"tables       {', '.join(folders)} in {out / night_tables.FOLDER}")

    return write


def _measured(path: Path) -> tuple[Power, ...]:
    try:
        return tuple(read_power(path))
    except (OSError, *UNREADABLE) as problem:
        raise BadScenario(f"{path}: no measurements of known bugs: {problem}") from None


def _former(path: Path) -> Night:
    try:
        return load(path)
    except OSError as problem:
        raise BadScenario(f"{path}: {problem.strerror}") from None
    except UNREADABLE as problem:
        raise BadScenario(f"{path}: not a nightly.json: {problem}") from None
