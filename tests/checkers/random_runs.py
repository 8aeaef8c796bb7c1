"""Random small recordings with injected anomalies of every property, for comparing engines and for brute force."""

import json
from pathlib import Path
from random import Random

from tests.checkers.recorded import MS, Run
from tribunal.results.values import value_of


def random_run(run_dir: Path, seed: int | Random) -> Path:
    """A run with sends of all kinds, elections, transactions, reads that miss, repeat and invent, watermarks that go back."""
    random = seed if isinstance(seed, Random) else Random(seed)
    settings = {"unclean.leader.election.enable": random.random() < 0.3, "transaction.max.timeout.ms": 1000}
    run = Run(run_dir, **settings)
    log = _sends(run, random)
    if random.random() < 0.5:
        run.change(150, leader=2, isr=[2, 3])
    if random.random() < 0.4:
        _control_plane(run, random)
    if log and random.random() < 0.2:
        content = random.choice(["a1: other key", "b2: other timestamp"])
        place = {"topic": "t", "partition": 0, "log_offset": 0, "value": log[0], "content": content}
        run.recorder.row("reads", process=95, poll_index=0, phase="tail", **place)
        run.recorder.row("logs", node=1, **place | {"log_offset": 500, "leader_epoch": 9})
    if random.random() < 0.5:
        run.change(600, **random.choice([{"isr": [1]}, {"isr": [2], "leader": -1}]))
    if random.random() < 0.5:
        run.metadata("NoOpRecord", random.choice([1_000, 9_000]))
    _consumers(run, random, log)
    for node in random.choice([(), (1, 2), (1, 2, 3), (2, 3)]):
        run.log(
            node,
            {o: v for o, v in log.items() if v is not None and random.random() < 0.95},
            turn=random.choice([0, 9, 99]),
        )
    _watermarks(run, random)
    if random.random() < 0.4:
        _group(run, random)
    if random.random() < 0.3:
        _requests(run, random)
    if random.random() < 0.3:
        _faults(run, random)
    for node in random.choice([(), (1, 2, 3), (3,)]):
        run.dump(node)
    run.phase("faults", 0, 500)
    return run.finish() if random.random() < 0.9 else run.cut_off()


def _sends(run: Run, random: Random) -> dict[int, int | None]:
    log: dict[int, int | None] = {}
    transactional = random.random() < 0.4
    classes = ["transactional-bank"] if transactional and random.random() < 0.5 else ["idempotent", "plain"]
    ends: dict[int, tuple[str, int]] = {}
    at = 100
    for sequence in range(random.randrange(1, 25)):
        at += random.choice([10, 10, 700])
        acks = -1 if transactional else random.choice([0, 1, -1])
        outcome = "sent" if acks == 0 else random.choice(["ok", "ok", "ok", "info", "fail"])
        known = outcome == "ok" and random.random() < 0.9
        txn = sequence // 3 if transactional else None
        value = run.send(
            sequence,
            at,
            acks=acks,
            outcome=outcome,
            offset=len(log) if known else None,
            log_offset=len(log) if known else None,
            worker_class=random.choice(classes),
            key=f"a{sequence % 3}:{random.choice([1, -1])}",
            attempts=random.choice([1, 2, None]),
            txn_id=None if txn is None else f"x{txn}",
        )
        if txn is not None:
            ends.setdefault(txn, (random.choice(["committed", "committed", "aborted", "info"]), at))
        if outcome != "fail" or random.random() < 0.1:
            log[len(log)] = value
    _transactions(run, random, log, ends)
    return log


def _transactions(run: Run, random: Random, log: dict[int, int | None], ends: dict[int, tuple[str, int]]) -> None:
    for txn, (outcome, begin) in ends.items():
        place = {"topic": "t", "partition": 0}
        sent = [value_of(7, 3 * txn + number) for number in range(3)]
        steps = [
            {"kind": "append" if txn % 4 == 3 else "send", "log_offset": None, "value": value} | place for value in sent
        ]
        for _ in range(random.randrange(3)):
            if log:
                offset = random.randrange(len(log))
                steps.append({"kind": "poll", "log_offset": offset, "value": log[offset]} | place)
        begin_ns = begin * MS - MS
        run.recorder.row(
            "txns",
            process=7,
            txn_id=f"x{txn}",
            begin_ns=begin_ns,
            end_ns=None if outcome == "info" and random.random() < 0.5 else begin_ns + 5 * MS,
            outcome=outcome,
            operations=steps,
            timeout_ms=(None, 500, 40_000)[txn % 3],
        )
        if random.random() < 0.5:
            _commit(run, random.randrange(5), begin_ns + MS, process=7)


def _commit(run: Run, offset: int, at_ns: int, *, process: int, kind: str = "commit", outcome: str = "ok") -> None:
    run.recorder.row(
        "commits",
        process=process,
        group="g",
        topic="t",
        partition=0,
        kind=kind,
        committed_offset=offset,
        invoke_ns=at_ns,
        complete_ns=at_ns + MS,
        outcome=outcome,
    )


def _group(run: Run, random: Random) -> None:
    for place in range(random.randrange(1, 9)):
        at_ns = (100 + 3 * place + random.randrange(3)) * MS
        kind = random.choice(["commit", "fetch"])
        outcome = random.choice(["ok", "ok", "fail", "info"])
        offset = random.randrange(-1, 4)
        # (no draw of its own: the runs of all seeds stay what they were otherwise)
        far = 600 if offset == 3 and place % 3 == 0 else offset
        _commit(run, far, at_ns, process=50 + place % 2, kind=kind, outcome=outcome)


def _control_plane(run: Run, random: Random) -> None:
    at = 160
    for _ in range(random.randrange(1, 8)):
        at += 20
        kind = random.randrange(6)
        some = random.sample([1, 2, 3, 4], random.randrange(4))
        if kind == 0:
            run.change(at, isr=some, leader=random.choice([1, 2, 3, -1]))
        elif kind == 1:
            run.change(at, isr=some, eligible_leader_replicas=random.sample([1, 2, 3], random.randrange(3)))
        elif kind == 2:
            leader = random.choice([1, 2, 3])
            run.change(at, isr=[leader, *some][: random.choice([1, 2])], leader=leader, leader_recovery_state=1)
        elif kind == 3:
            run.registered(random.choice([1, 2, 3]), at, random.choice([-1, 0]), fenced=random.random() < 0.5)
        elif kind == 4:
            run.change(at, isr=[], leader=-1, eligible_leader_replicas=[], last_known_elr=[random.choice([1, 2, 3])])
        else:
            epoch = random.randrange(4)
            run.metadata(
                "RegisterBrokerRecord", at, broker_id=1, broker_epoch=epoch, incarnation_id=random.choice("ab")
            )


def _consumers(run: Run, random: Random, log: dict[int, int | None]) -> None:
    seen = {offset: value for offset, value in log.items() if random.random() < 0.4}
    isolation = random.choice(["read_committed", "read_uncommitted"])
    if seen:
        run.read(seen, 400, isolation=isolation)
    final = {offset: value for offset, value in log.items() if random.random() < 0.9}
    if random.random() < 0.3 and log:
        final[len(log)] = random.choice(list(log.values()))
    if random.random() < 0.2:
        final[len(log) + 1] = random.choice([None, 5 << 40])
    if random.random() < 0.8:
        run.final_read(final, isolation=isolation)
    for at in range(random.randrange(4)):
        start = random.randrange(12)
        some = {offset: value for offset, value in log.items() if start <= offset < start + 4}
        if some:
            run.read(some, 420 + at, isolation=isolation)
    if random.random() < 0.3:
        position, end = random.randrange(6), random.randrange(12)
        turn = random.choice([0, 2_000, 99_000])  # the next leader epoch begins then; 0: nobody said which one it is
        for at in (1_000, 2_500, 8_000, 13_000):
            epoch = {"leader_epoch": int(at > turn)} if turn else {}
            run.poll(90, "tail", position, 0, at, high_watermark=end + at // 1_000, isolation=isolation, **epoch)


def _watermarks(run: Run, random: Random) -> None:
    for at in range(random.randrange(8)):
        source = random.choice(["fetch", "list_offsets", "node"])
        run.watermark(
            random.randrange(9),
            random.choice([500, 30_000]) + random.randrange(5),
            epoch=random.choice([0, 1, None]),
            observer=f"{source}-{random.randrange(1, 3)}",
            source=source,
            log_end_offset=random.choice([None, random.randrange(9)]),
            last_stable_offset=random.choice([None, random.randrange(9)]),
            log_start_offset=random.choice([None, 0, at]),
        )
    _answers_of_leaders(run, Random(random.randrange(1_000)))


def _answers_of_leaders(run: Run, random: Random) -> None:
    """Leaders' own journals, and answers of which it is known when they were asked for."""
    for _ in range(random.randrange(12)):
        source, epoch, at = (
            random.choice(["fetch", "fetch", "list_offsets", "node"]),
            random.randrange(2),
            random.randrange(600, 1_800, 100),
        )
        leader = random.choice([epoch + 1, epoch + 1, epoch + 1, 3])
        asked = {"answered_by": leader, "asked_ns": random.choice([None, (at - random.choice([0, 100, 300])) * MS])}
        run.watermark(
            random.randrange(9),
            at,
            epoch=epoch,
            observer=f"node-{leader}" if source == "node" else f"client-{random.randrange(3)}",
            source=source,
            log_end_offset=random.choice([None, random.randrange(9)]),
            last_stable_offset=random.choice([None, random.randrange(9)]),
            **({} if source == "node" else asked),
        )


def _requests(run: Run, random: Random) -> None:
    for number in range(random.randrange(1, 6)):
        api, broker = random.choice([4, 56, 63]), random.choice([1, 2, 3])
        ends = {"from": 101, "to": broker} if api == 4 else {"from": broker, "to": 101}
        named = {"broker_id": broker, "broker_epoch": random.randrange(-1, 9)}
        if api == 56:
            named["members"] = [[node, random.randrange(-1, 5)] for node in (1, 2)]
        common = {"api_key": api, "correlation_id": number // 2, "fate": "delivered"}
        at_ns = (140 + 10 * number) * MS
        run.recorder.row(
            "requests", **ends, **common, direction="request", at_ns=at_ns, summary=json.dumps(named)
        )  # fmt: skip
        back = {"from": ends["to"], "to": ends["from"]}
        answer = json.dumps({"error": random.choice(["NONE", "STALE_BROKER_EPOCH"])})
        run.recorder.row("requests", **back, **common, direction="response", at_ns=at_ns + MS, summary=answer)


def _faults(run: Run, random: Random) -> None:
    for at in range(random.randrange(1, 4)):
        start = 150 + 60 * at
        run.fault(
            random.choice(["isolate", "kill"]),
            start,
            node=random.choice([1, 2]),
            target=random.choice(["controller 101", "broker 1"]),
            lost_from=random.choice([None, None, 3]),
            index=at,
        )
        run.metadata_epoch += random.choice([0, 0, 1])
        run.metadata("NoOpRecord", start + 12 + random.randrange(4))
    if random.random() < 0.2:
        run.metadata_epoch = 0
        run.metadata("NoOpRecord", 600)
