"""The one door to a reader's terminal: what strangers wrote moves no cursor, clears, colours and hides nothing, and turns no line round.

Recordings, archives, plans, logs and names of files come from others. All that is no printable character (control characters, those that change the
direction of writing, odd spaces) is shown as its code; what is printable goes out as it is. `tests/tidy/test_terminal.py` keeps the door the only one.
"""

import msgspec
import typer


def echo(text: str, *, err: bool = False) -> None:
    """Print lines on stdout, or on stderr. Who joins them of others' words makes each `plain` before: a line break in it would begin another."""
    typer.echo("\n".join(map(plain, text.split("\n"))), err=err)


def plain(line: str) -> str:
    """Return a line with all that is no printable character as its code."""
    return line if line.isprintable() else "".join(one if one.isprintable() else _code(one) for one in line)


def as_json(value: object) -> str:
    """Return a value as JSON that can be looked at: the same value, its unprintable characters escaped."""
    text = msgspec.json.encode(value).decode()
    return text if text.isprintable() else "".join(one if one.isprintable() else _json_code(one) for one in text)


def _code(character: str) -> str:
    return character.encode("unicode_escape", "surrogatepass").decode()


def _json_code(character: str) -> str:
    units = character.encode("utf-16-be").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))
