"""Changes to files that others wrote: in a value, in the tree, in the text, in the bytes; drawn from a seed.

Not a test module.
"""

import json
import re
from collections.abc import Iterator
from copy import deepcopy
from random import Random
from typing import Any, Final

import pyarrow as pa
import yaml

VALUES: Final[tuple[Any, ...]] = (
    *(None, True, False, 0, -1, 1, 2**31, 2**63, 2**64, 10**30, -(2**63), 0.5, -0.0, 1e308, float("inf"), float("nan")),
    *(
        "",
        " ",
        "x",
        "\0",
        "\n",
        "../../etc/passwd",
        "/dev/zero",
        "a" * 5000,
        "é\u202e",
        "{}",
        "[[",
        "%s%n",
        "1e999s",
        "-5s",
    ),
    *("99999999999d", "leader(p99999)", "leader(", "random(0)", "3s", "0s", "nan", "all", "$HOME", "`id`", "{{x}}"),
    *([], {}, [[]], [None], {"x": None}, {"": ""}, [1, "a", None], {"kill": "x"}, [{}] * 30),
)
TOML: Final = (
    *('""', '"x"', "0", "-1", "9223372036854775807", "1e400", "nan", "true", "[]", "{}", '["x", 1]', '[""]'),
    *(
        '"../../x"',
        '"\\u0000"',
        "1979-05-27",
        "0x1",
        '"""a\nb"""',
        "[[1]]",
        '{a = "b"}',
        '"a:b:c"',
        '"127.0.0.1:99999"',
    ),
)
WORDS: Final = re.compile(r"[\w.\-]+")
LINE: Final = re.compile(r"^(\s*(?:- )?[\w.\-\"]+\s*[=:]\s*)(.+)$", re.MULTILINE)
NESTED: Final = 3000


def changed_tree(tree: Any, random: Random) -> Any:
    """Return a tree with one to three changes: a value, a name more, less, twice or another, an item again."""
    tree = json.loads(json.dumps(tree, default=str))
    for _ in range(random.choice((1, 1, 1, 2, 3))):
        places = list(_places(tree))
        if not places:
            return deepcopy(random.choice(VALUES))
        holder, key = random.choice(places)
        match random.randrange(7):
            case 0 | 1 | 2:
                holder[key] = deepcopy(random.choice(VALUES))  # a later change goes into it
            case 3:
                del holder[key]
            case 4 if isinstance(holder, dict):
                holder[random.choice(("x", "", "kill", f"{key} ", str(key) * 50))] = holder.pop(key)
            case 5 if isinstance(holder, list):
                holder += [holder[key]] * random.choice((1, 50))
            case _:
                other, place = random.choice(places)
                holder[key] = json.loads(
                    json.dumps(other.get(place) if isinstance(other, dict) else _item(other, place))
                )
    return tree


def _item(items: list[Any], place: int) -> Any:
    return items[place] if place < len(items) else None


def _places(tree: Any) -> Iterator[tuple[Any, Any]]:
    if isinstance(tree, dict):
        pairs: list[tuple[Any, Any]] = list(tree.items())
    elif isinstance(tree, list):
        pairs = list(enumerate(tree))
    else:
        return
    for key, value in pairs:
        yield tree, key
        yield from _places(value)


def changed_text(text: str, random: Random, values: tuple[Any, ...] = TOML) -> str:
    """Return a text in which a value, a word or a line is another."""
    for _ in range(random.choice((1, 1, 2))):
        lines = text.splitlines(keepends=True) or [""]
        number = random.randrange(len(lines))
        match random.randrange(6):
            case 0 | 1 | 2:
                lines[number] = LINE.sub(lambda found: found[1] + str(random.choice(values)), lines[number])
            case 3:
                del lines[number]
            case 4:
                lines.insert(number, lines[random.randrange(len(lines))])
            case 5:
                words = [*WORDS.finditer(lines[number])]
                if words:
                    word = random.choice(words)
                    other = random.choice(("x", "0", "-", "", "nan", "{", "]", "\t", "a" * 300))
                    lines[number] = lines[number][: word.start()] + other + lines[number][word.end() :]
        text = "".join(lines)
    return text


def changed_bytes(content: bytes, random: Random) -> bytes:
    """Return content that is cut, lengthened, or has other bytes somewhere."""
    changed = bytearray(content)
    match random.randrange(8):
        case 0:
            del changed[random.randrange(len(changed) + 1) :]
        case 1:
            return b"\xef\xbb\xbf" + content
        case 2:
            return content + random.randbytes(random.randrange(1, 50))
        case 3:
            return b""
        case 4:
            return random.choice((b"[", b'{"a":', b"- ", b"(")) * NESTED
        case 5:
            begin = random.randrange(len(changed) + 1)
            del changed[begin : begin + random.randrange(1, 200)]
        case _:
            for _ in range(random.choice((1, 2, 20)) if changed else 0):
                changed[random.randrange(len(changed))] = random.choice((0, 0xFF, 0x80, 0x0A, random.randrange(256)))
    return bytes(changed)


def as_yaml(tree: Any) -> bytes:
    """Return a tree as YAML."""
    return yaml.safe_dump(tree, allow_unicode=True, sort_keys=False, default_flow_style=None, width=1000).encode(
        errors="surrogatepass"
    )


def as_json(tree: Any) -> bytes:
    """Return a tree as JSON; infinity and NaN as Python writes them."""
    return json.dumps(tree).encode()


def changed_rows(rows: pa.Table, random: Random) -> pa.Table:
    """Return a table with a column less, more, empty or of another type, rows twice, fewer or in another order, or another value."""
    for _ in range(random.choice((1, 1, 2)) if rows.num_columns else 0):
        number = random.randrange(rows.num_columns)
        field = rows.schema.field(number)
        match random.randrange(8):
            case 0 if rows.num_columns > 1:
                rows = rows.remove_column(number)
            case 1:
                rows = rows.set_column(number, pa.field(field.name, pa.string()), pa.array(["x"] * rows.num_rows))
            case 2:
                nothing = pa.nulls(rows.num_rows, field.type)
                rows = rows.set_column(number, pa.field(field.name, field.type), nothing)
            case 3:
                rows = pa.concat_tables([rows, rows])
            case 4:
                rows = rows.slice(0, rows.num_rows // 2)
            case 5:
                rows = rows.append_column(f"more-{random.randrange(1000)}", pa.array([1] * rows.num_rows))
            case 6:
                rows = rows.take(pa.array(random.sample(range(rows.num_rows), rows.num_rows), pa.int64()))
            case _:
                rows = _with_another_value(rows, number, random)
    return rows


def _with_another_value(rows: pa.Table, number: int, random: Random) -> pa.Table:
    values = rows.column(number).to_pylist()
    if values:
        values[random.randrange(len(values))] = random.choice(
            (None, -1, 2**62, -(2**63), 0, "", "x" * 1000, b"\xff", [])
        )
    field = rows.schema.field(number)
    try:
        return rows.set_column(number, field, pa.array(values, field.type))
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        return rows  # this column cannot hold it
