"""Loads behaviour cases (data) for the thin adapters beside it; it knows nothing of any family.

A family's cases are `data/<family>.yaml` and, when the environment names a folder in
TRIBUNAL_CASES, `<folder>/<family>.yaml` too. Unknown keys are refused, never skipped.
"""

import os
from pathlib import Path
from typing import Any

import pytest
import yaml

TOP_LEVEL = {"family", "schema", "cases"}
CASE_KEYS = {"id", "kip", "source", "profile", "note", "given", "when", "then"}
PROFILES = {None, "kip", "choice", "impl"}


class UnknownKeys(AssertionError):
    """A case says something that its adapter does not understand."""


def load(
    family: str, *, contradicting: dict[str, str] | None = None, more_keys: frozenset[str] = frozenset()
) -> list[Any]:
    """Return the family's cases as pytest parameters, id by id.

    contradicting: ids of `impl` cases that our profile (KIP text, our choices) contradicts, each with
    the D-row of SPEC 0.1 that decided so. They are left out; anything else that is left out is a bug.
    more_keys: keys of a case that only this family has.
    """
    parameters = []
    for folder in [Path(__file__).parent / "data", *_more_folders()]:
        path = folder / f"{family}.yaml"
        if path.exists():
            parameters += [
                pytest.param(case, id=f"{case['id']}") for case in _read(path, family, CASE_KEYS | more_keys)
            ]
    assert parameters, f"no cases of family {family}"
    left_out = contradicting or {}
    for parameter in parameters:
        case = parameter.values[0]
        if case["id"] in left_out:
            assert case.get("profile") == "impl", f"{case['id']} is not an impl case: it must hold"
    return [parameter for parameter in parameters if parameter.values[0]["id"] not in left_out]


def _more_folders() -> list[Path]:
    folder = os.environ.get("TRIBUNAL_CASES")
    return [Path(folder)] if folder else []


def _read(path: Path, family: str, case_keys: set[str]) -> list[dict[str, Any]]:
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    content = yaml.load(path.read_text(), Loader=loader)
    only(content, TOP_LEVEL, path.name)
    assert content["family"] == family, f"{path}: family is {content['family']}"
    assert content["schema"] == 1, f"{path}: schema {content['schema']}"
    for case in content["cases"]:
        only(case, case_keys, f"{path.name} {case.get('id')}")
        assert case.get("profile") in PROFILES, case
    return list(content["cases"])


def only(mapping: dict[Any, Any] | None, allowed: set[str], where: str) -> dict[Any, Any]:
    """Return the mapping (an empty one for None); refuse keys outside `allowed`."""
    mapping = mapping or {}
    unknown = sorted(str(key) for key in mapping if key not in allowed)
    if unknown:
        raise UnknownKeys(f"{where}: unknown keys {unknown}")
    return mapping
