"""Random small recordings with injected anomalies, for comparing engines and for brute force."""

from pathlib import Path
from random import Random

from tests.checkers.recorded import Run


def random_run(run_dir: Path, seed: int) -> Path:
    """A run with sends of all kinds, elections, reads that miss, repeat and invent records, watermarks that go back."""
    random = Random(seed)
    run = Run(run_dir)
    log: dict[int, int | None] = {}
    at = 100
    for sequence in range(random.randrange(1, 25)):
        at += random.choice([10, 10, 700])
        acks = random.choice([0, 1, -1])
        outcome = "sent" if acks == 0 else random.choice(["ok", "ok", "ok", "info", "fail"])
        known = outcome == "ok" and random.random() < 0.9
        value = run.send(
            sequence,
            at,
            acks=acks,
            outcome=outcome,
            offset=len(log) if known else None,
            log_offset=len(log) if known else None,
            worker_class=random.choice(["idempotent", "plain"]),
            attempts=random.choice([1, 2, None]),
        )
        if outcome != "fail" or random.random() < 0.1:
            log[len(log)] = value
    if random.random() < 0.5:
        run.change(150, leader=2, isr=[2, 3])
    seen = {offset: value for offset, value in log.items() if random.random() < 0.4}
    if seen:
        run.read(seen, 400)
    final = {offset: value for offset, value in log.items() if random.random() < 0.9}
    if random.random() < 0.3 and log:
        final[len(log)] = random.choice(list(log.values()))
    if random.random() < 0.2:
        final[len(log) + 1] = random.choice([None, 5 << 40])
    if random.random() < 0.8:
        run.final_read(final)
    for node in random.choice([(), (1, 2), (1, 2, 3), (2, 3)]):
        run.log(node, {o: v for o, v in log.items() if v is not None and random.random() < 0.95})
    for at in range(random.randrange(8)):
        source = random.choice(["fetch", "list_offsets", "node"])
        run.watermark(
            random.randrange(9),
            500 + random.randrange(5),
            epoch=random.choice([0, 1, None]),
            observer=f"{source}-{random.randrange(2)}",
            source=source,
            log_end_offset=random.choice([None, random.randrange(9)]),
            last_stable_offset=random.choice([None, random.randrange(9)]),
            log_start_offset=random.choice([None, 0, at]),
        )
    for at in range(random.randrange(4)):
        start = random.randrange(12)
        some = {offset: value for offset, value in log.items() if start <= offset < start + 4}
        if some:
            run.read(some, 420 + at)
    return run.finish() if random.random() < 0.9 else run.cut_off()
