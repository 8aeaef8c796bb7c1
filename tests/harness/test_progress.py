"""What a run says while it goes on never ends it."""

import os

from tribunal.harness.progress import Plain, Screen


def test_a_reader_that_goes_away_does_not_end_the_run(monkeypatch):
    """`tribunal run ... 2>&1 | head` ended with ERROR: BrokenPipeError, in the middle of the faults."""
    reader, writer = os.pipe()
    with os.fdopen(writer, "w", buffering=1) as pipe:
        monkeypatch.setattr("sys.stderr", pipe)
        with Plain("a run") as progress:
            progress.phase("warm-up", 800)
            os.close(reader)
            progress.phase("faults", 2_300)
            progress.say("kill broker 1")
        monkeypatch.undo()
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, writer)  # what the pipe still holds
        os.close(nowhere)


def test_lines_say_now_and_then_how_something_stands_that_lasts(capsys):
    """A builder says hundreds of lines; a log of CI gets one in ten seconds."""
    with Plain("a run") as progress:
        for at_ms in range(2_000, 25_000, 1_000):
            progress.lasts(at_ms, f"building\x1b[2J, {at_ms} ms")

    assert capsys.readouterr().err.splitlines()[1:] == [
        f"{at_ms / 1000:6.1f} s    building\\x1b[2J, {at_ms} ms" for at_ms in (2_000, 12_000, 22_000)
    ]


def test_time_does_not_go_back_when_the_judge_begins(capsys):
    """The last line said `0.0 s  check`, below `41.6 s  collect`."""
    with Plain("a run") as progress:
        progress.phase("collect", 41_600)
        progress.phase("check", 0)

    assert capsys.readouterr().err.splitlines()[1:] == ["  41.6 s  collect", "  41.6 s  check"]


def test_what_is_no_fault_is_not_called_one():
    """On a terminal it said `fault  Spark is starting`."""
    screen = Screen("a run")
    screen.say("  36.9 s  kill broker 2  took effect ✓")
    screen.say("         Spark is starting; on a busy machine that takes its time")

    shown = [str(line) for line in screen._lines().renderables]

    assert shown[2:4] == [
        "fault      36.9 s  kill broker 2  took effect ✓",
        "         Spark is starting; on a busy machine that takes its time",
    ]
