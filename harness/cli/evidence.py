"""The commands about runs that exist: bundle, verify, publish, diff, bisect."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tribunal.harness.campaign.confirm import plan_of
from tribunal.harness.cli.cluster import Place
from tribunal.harness.cli.findings import first_signature, signature_named
from tribunal.harness.cli.repeated import Confidence, Share, repeated_at
from tribunal.harness.cli.stored import storage_at
from tribunal.harness.cli.usage import UsageError, known_engine, must_hold_run
from tribunal.harness.plan import read_plan
from tribunal.harness.terminal import as_json, echo, plain
from tribunal.results.scratch import Scratch
from tribunal.results.storage import is_url
from tribunal.results.verdict import EXIT_ERROR, Verdict

if TYPE_CHECKING:
    from tribunal.harness.evidence.verify import Verified

Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON on stdout.")]
MOST_LINES = 20


def bundle(
    run: Annotated[
        Path, typer.Argument(help="Folder of a judged run.", exists=True, file_okay=False, resolve_path=True)
    ],
    out: Annotated[Path | None, typer.Option("--out", "-o", help="The archive; default: beside the run.")] = None,
    sign: Annotated[
        Path | None, typer.Option(help="Sign it with this key, of ssh or minisign; the signature is put beside it.")
    ] = None,
    json: Json = False,
) -> None:
    """Make an evidence archive of a run: recording, plan, schedule, versions, hashes, report."""
    from tribunal.harness.evidence import signing
    from tribunal.harness.evidence.bundle import bundle as bundled
    from tribunal.harness.evidence.bundle import damage_of, sha256_of

    must_hold_run(run)
    target = out or run.with_name(f"{run.name}.zip")
    content = bundled(run, target)
    if content.verdict != Verdict.ERROR and (problem := damage_of(run)) is not None:
        echo(f"tribunal: verify will refuse it: the recording is not as it was when it was judged: {problem}", err=True)
    summary = {
        "bundle": str(target),
        "sha256": sha256_of(target),
        "files": len(content.files),
        "verdict": content.verdict,
    }
    if sign is not None:
        summary["signature"] = str(signing.sign(target, sign))
    if json:
        echo(as_json(summary))
        return
    echo(f"{target}  {len(content.files)} files, {target.stat().st_size / 1e6:.1f} MB\nsha256 {summary['sha256']}")
    for line in _without(run):
        echo(line)
    if sign is not None:
        echo(f"signature {summary['signature']}")
    echo(f"verify    tribunal verify {target}")


def _without(run: Path) -> list[str]:
    """Say which files of a described system's folder are not in its run's archive."""
    from tribunal.results.recording import DamagedRecording
    from tribunal.results.store import Recording

    try:
        manifest = Recording.open(run, compare=False).manifest
    except DamagedRecording:
        return []
    described = None if manifest is None else manifest.described
    left_out = [] if described is None else described.left_out
    return [plain(f"without   {one.name}: {one.why}") for one in left_out]


def verify(
    archive: Annotated[Path, typer.Argument(help="An archive made by `tribunal bundle`.", exists=True, dir_okay=False)],
    engine: Annotated[
        str | None, typer.Option(help="Who judges: spark, inline or spark-sql; default: who judged it before.")
    ] = None,
    replay: Annotated[
        bool, typer.Option("--replay", help="Run a simulated run's plan again; all bits must agree.")
    ] = False,
    signers: Annotated[
        Path | None,
        typer.Option(help="Who may have signed it: an allowed_signers file of ssh, or a public key of minisign."),
    ] = None,
    json: Json = False,
) -> None:
    """Judge an evidence archive again, without a cluster, and compare everything that it states. Refuses one that was changed."""
    from tribunal.harness.evidence.verify import verified

    if engine is not None:
        known_engine(engine)
    result = verified(archive, engine, is_replayed=replay, signers=signers, notify=partial(echo, err=True))
    if json:
        echo(as_json(result))
    else:
        echo("\n".join(plain(line) for line in _lines(result)))
    raise typer.Exit(0 if result.is_same else EXIT_ERROR)


def _lines(result: "Verified") -> list[str]:
    verdicts = f"{result.stated} stated, {result.found} found"
    word = "the same verdict" if result.stated is result.found else "ANOTHER verdict"
    lines = [f"{word}: {verdicts}"]
    if result.differences:
        lines.append("NOT as stated:")
    lines += [f"  {line}" for line in result.differences]
    lines += [f"  note: {line}" for line in result.remarks]
    lines.append(f"hashes     {result.files} files as listed; sha256 {result.sha256}")
    if result.unchecked is not None:
        lines.append(f"signature  {result.unchecked} was NOT checked: that needs the public key (--signers KEY.pub)")
    elif result.signature is None:
        lines.append("signature  nobody signed it: whoever made it could write what he likes into it")
    elif result.signature.signer is None:
        lines.append(f"signature  by {result.signature.key}; whose that is, nobody said (--signers)")
    else:
        lines.append(f"signature  by {result.signature.signer}, {result.signature.key}")
    return lines


def publish(
    folder: Annotated[Path, typer.Argument(help="Folder of judged runs, nights and power.json.")],
    statement: Annotated[Path, typer.Option(help="campaign.yaml: campaign, system, version, summary, not_covered ...")],
    out: Annotated[str, typer.Option("--out", "-o", help="Folder for the site, or a URL; must not exist.")],
    evidence: Annotated[
        int,
        typer.Option(min=0, help="Archives of at most so many runs: the gravest first, of every kind and scenario."),
    ] = 20,
    json: Json = False,
) -> None:
    """Make a static site of a campaign: claims, fault model, volume, power, bound, findings, limits, evidence."""
    from tribunal.harness.evidence.publish import published

    notify = partial(echo, err=True)
    if is_url(out):
        storage = storage_at("--out", out)
        if storage.is_whole():
            raise UsageError(f"{out}: there already; give an address that has nothing")
        with Scratch("site") as scratch:
            made = published(folder, statement, scratch / "site", evidence, notify)
            path = f"{storage.put(made.parent)}/{made.name}"
    else:
        path = str(published(folder, statement, Path(out), evidence, notify))
    echo(as_json({"site": path}) if json else path)


def diff(
    one: Annotated[Path, typer.Argument(help="Folder of a run.")],
    other: Annotated[Path, typer.Argument(help="Folder of another run.")],
    json: Json = False,
) -> None:
    """Say how two runs differ: plan, executed schedule, versions, verdict, and the first event that differs."""
    from tribunal.harness.evidence.diff import compared

    result = compared(one, other)
    if json:
        echo(as_json(result))
    else:
        for title in ("plan", "schedule", "made_with", "verdict"):
            differences = getattr(result, title)
            for found in differences[:MOST_LINES]:
                echo(f"{title.replace('_', ' '):<10} {found.what}: {found.one} | {found.other}")
            if len(differences) > MOST_LINES:
                echo(f"{title.replace('_', ' '):<10} … and {len(differences) - MOST_LINES} more (--json has all)")
        echo(f"trace      {result.trace}")
        for line in result.first_lines:
            echo(line)
    raise typer.Exit(0 if result.is_same else 1)


def bisect(  # noqa: PLR0917 - options
    run: Annotated[Path, typer.Argument(help="Folder of a run that found something, or its plan.json.")],
    good: Annotated[str, typer.Option(help="A commit that does not show it.")],
    bad: Annotated[str, typer.Option(help="A commit that shows it.")] = "HEAD",
    signature: Annotated[str | None, typer.Option(help="What must show; default: the run's first finding.")] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Seeds that each commit is asked with.")] = 1,
    share: Share = None,
    confidence: Confidence = None,
    build: Annotated[
        str, typer.Option(help="Of a described system: run beside its file before a commit is asked.")
    ] = "",
    json: Json = False,
) -> None:
    """Find the commit that broke it: git bisect, with a replay of the run's plan as its test.

    Of a described system the commits are those of the repository that its file lies in, and a commit is asked by running the plan until a sequential test has decided.
    """
    from tribunal.harness.campaign.bisect import bisected, bisected_by_runs

    def notify(line: str) -> None:
        echo(line, err=True)

    sought = first_signature(run) if signature is None else signature_named(signature)
    plan = read_plan(plan_of(run))
    if plan.spec.system:
        if seeds > 1:
            raise UsageError("--seeds: a described system's runs are not repeated by a seed: --share, --confidence")
        here = Place(cluster=None, python="", with_packages=False)
        with repeated_at(here, None, sought, share, confidence, notify) as runner:
            result = bisected_by_runs(plan, runner, good, bad, notify, build=build)
    elif share is not None or confidence is not None or build:
        raise UsageError("--share, --confidence, --build: are for described systems")
    else:
        result = bisected(run, str(sought), good, bad, notify, seeds=seeds)
    if json:
        echo(as_json(result))
    else:
        echo(f"{result.commit}  {result.subject}\n  the first commit that shows {result.signature}")
