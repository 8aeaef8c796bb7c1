"""A night as JUnit XML for a CI server: a case per finding, canary, scenario, signature and run on real nodes, and one for the night itself.

A signature fails one case, its own, however many runs showed it: the same bug must not open thirty red cases.
"""

import re
from collections.abc import Iterator
from typing import Final

from junitparser import Error, Failure, JUnitXml, Skipped, TestCase, TestSuite

from tribunal.results.night import NOTHING_RUN, SIMULATED, Night
from tribunal.results.verdict import counted

NOT_XML: Final = re.compile("[^\t\n\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit(night: Night) -> JUnitXml:
    """Return a night as JUnit XML."""
    report = JUnitXml(night.name)
    for name, cases in (
        ("night", _night_cases(night)),
        ("findings", _past_cases(night)),
        ("canaries", _canary_cases(night)),
        ("sweep", _sweep_cases(night)),
        ("found", _found_cases(night)),
        ("probes", _probe_cases(night)),
        ("sensitivity", _sensitivity_cases(night)),
        ("confirmations", _confirmation_cases(night)),
    ):
        suite = TestSuite(f"{night.name}.{name}")
        suite.timestamp = night.began
        for case in cases:
            suite.add_testcase(case)
        if len(suite):
            report.add_testsuite(suite)
    return report


def _case(name: str, group: str, seconds: float = 0.0) -> TestCase:
    return TestCase(_printable(name), f"tribunal.{group}", round(seconds, 3))


def _printable(text: str) -> str:
    """Return text without the characters that XML cannot hold."""
    return NOT_XML.sub("?", text)


def _failed(case: TestCase, message: str, text: str, kind: type[Failure] | type[Error] = Failure) -> TestCase:
    result = kind(_printable(message))
    result.text = _printable(text)
    case.result = [result]
    return case


def _night_cases(night: Night) -> Iterator[TestCase]:
    """Yield the case of the night itself: that it ended, and that nothing broke on the way."""
    case = _case("the night", "night", night.seconds)
    lines = "\n".join([*night.errors, *night.left_out])
    if not night.has_ended:
        at = f"{night.state.value} at {night.under_way or 'its beginning'}"
        yield _failed(case, f"the night did not end: {at}", lines or at, Error)
    elif night.errors:
        yield _failed(case, night.errors[0], lines, Error)
    elif night.has_nothing_to_say:
        yield _failed(case, NOTHING_RUN, lines, Error)
    else:
        case.system_out = _printable(f"{night.word}\n{lines}")
        yield case


def _past_cases(night: Night) -> Iterator[TestCase]:
    for one in night.past:
        case = _case(one.name, "findings", one.seconds)
        if one.is_bad:
            yield _failed(case, one.outcome, f"{one.signature}\nfound besides: {', '.join(one.others) or 'nothing'}")
        elif one.is_lost:
            why = "".join(f"; {reason}" for reason in one.reasons)
            yield _failed(case, one.words, f"{one.signature} was not shown by {one.runs} runs{why}", Error)
        else:
            yield case


def _canary_cases(night: Night) -> Iterator[TestCase]:
    for one in night.canaries:
        case = _case(one.mutant, "canaries", one.seconds)
        text = f"{one.scenario}: {one.seeds} seeds found nothing; {one.note}"
        why = (one.note or "no time was left for a seed") if one.is_untried else "the canary is green"
        yield case if one.found else _failed(case, why, text, Error)


def _sweep_cases(night: Night) -> Iterator[TestCase]:
    unjudged = {
        one.scenario: f"INCONCLUSIVE {one.inconclusive} of {one.runs}: more than its quarantine allows"
        for one in night.unjudged
        if one.cluster == SIMULATED and one.is_too_many
    }
    for one in night.swept:
        case = _case(one.scenario, "simulated", one.seconds)
        if one.scenario in unjudged:
            yield _failed(case, unjudged[one.scenario], counted(one.verdicts), Error)
            continue
        if shortfall := night.shortfall(one):
            yield _failed(case, f"not enough seeds: {shortfall}", counted(one.verdicts), Error)
            continue
        if one.runs:
            case.system_out = (
                f"{one.runs} runs, {one.simulated_ms / 3_600_000:.2f} simulated hours, {counted(one.verdicts)}"
            )
        else:
            case.result = [Skipped("the budget was used up before its first run")]
        yield case


def _found_cases(night: Night) -> Iterator[TestCase]:
    for one in night.found:
        case = _case(one.signature, f"found.{one.state}")
        if one.state == "known":
            about = ", ".join(filter(None, (one.known_as, one.owner, one.link, one.expires and f"until {one.expires}")))
            case.system_out = _printable(f"known as {about}; {one.count} runs")
            yield case
        else:
            yield _failed(case, f"{one.state}: {one.claim}", f"{one.count} runs, seeds {one.seeds}\nagain: {one.again}")


def _probe_cases(night: Night) -> Iterator[TestCase]:
    for name in night.cold:
        yield _failed(_case(name, "probes"), "never reached", f"{night.runs} runs did not reach it", Error)


def _sensitivity_cases(night: Night) -> Iterator[TestCase]:
    fell = {line.partition(":")[0]: line for line in night.fallen}
    for name, figure in night.sensitivity.figures.items():
        case = _case(name, "sensitivity")
        text = f"{figure.seen} of {figure.injected} anomalies were seen"
        if name in fell:
            yield _failed(case, f"fell below the last figure: {fell[name]}", text, Error)
        elif figure.injected:
            case.system_out = text
            yield case


def _confirmation_cases(night: Night) -> Iterator[TestCase]:
    passed_over = {(one.scenario, one.cluster) for one in night.unjudged if not one.is_too_many}
    known = {one.signature for one in night.found if one.is_known}
    for one in night.confirmations:
        case = _case(f"{one.scenario} seed {one.seed}", one.cluster, one.seconds)
        text = "\n".join([one.claim, *one.reasons, one.run_dir])
        if one.verdict == "VIOLATION" and one.signatures and known.issuperset(one.signatures):
            case.system_out = _printable(f"known: {text}")
            yield case
        elif one.verdict == "INCONCLUSIVE" and (one.scenario, one.cluster) in passed_over:
            case.result = [Skipped(_printable(f"INCONCLUSIVE, in quarantine: {one.claim}"))]
            yield case
        elif one.verdict == "VIOLATION":
            yield _failed(case, one.verdict, text)
        elif one.verdict in ("ERROR", "INCONCLUSIVE"):
            yield _failed(case, one.verdict, text, Error)
        else:
            yield case
