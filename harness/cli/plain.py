"""What strangers wrote, as one line of a terminal: it begins no line of its own, moves no cursor, clears and hides nothing."""


def plain(line: str) -> str:
    """Return a line with all that is no printable character as its code."""
    return line if line.isprintable() else "".join(one if one.isprintable() else _code(one) for one in line)


def _code(character: str) -> str:
    return character.encode("unicode_escape", "surrogatepass").decode()
