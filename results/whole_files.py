"""Files that are written whole or not at all: whoever reads them meanwhile, or after a crash, has the former one."""

import contextlib
from pathlib import Path

import msgspec


def put(path: Path, content: bytes) -> Path:
    """Write a file in the place of the former one; return its path. What fails leaves the former one, and nothing beside it."""
    beside = path.with_name(f"{path.name}.tmp")
    try:
        beside.write_bytes(content)
        beside.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):  # what kept it from being written is what is said
            beside.unlink(missing_ok=True)
        raise
    return path


def put_json(path: Path, value: object) -> Path:
    """Write a value as JSON that people can read, too."""
    return put(path, msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n")
