"""What a sweep says of its seeds: findings, and why nothing could be said, each with names that can be replayed."""

from tribunal.harness.campaign.sweep import SeedResult, Sweep
from tribunal.harness.cli.simulate import finding_lines
from tribunal.results.signature import Signature
from tribunal.results.verdict import Verdict


def result(seed, verdict, *, signatures=(), reasons=()):
    return SeedResult(
        scenario="fast-bounce",
        seed=seed,
        verdict=verdict,
        claim="too little",
        signatures=[*signatures],
        reasons=[*reasons],
    )


def test_findings_and_what_stayed_unclear_are_grouped_without_their_numbers():
    account = Sweep()
    for seed in (1, 2):
        account.add(
            result(seed, Verdict.INCONCLUSIVE, reasons=[f"fault {seed} `kill 1` was planned but never injected"])
        )
    account.add(result(3, Verdict.VIOLATION, signatures=[Signature("invariant", "differs", "I4")]))
    account.add(result(4, Verdict.PASS, reasons=["not asked"]))
    account.add(result(5, Verdict.INCONCLUSIVE))

    assert finding_lines(account) == [
        "finding  1 x invariant/differs/I4  (fast-bounce:3)",
        "unclear  2 x fault # `kill #` was planned but never injected  (fast-bounce:1, fast-bounce:2)",
        "unclear  1 x too little  (fast-bounce:5)",
    ]
