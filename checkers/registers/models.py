"""Small sequential objects: what one operation does to a state, or that it cannot have happened there.

A model is a pure function `step(state, function, argument, result) -> state or IMPOSSIBLE`. A result of UNKNOWN fits
any state: the caller never learned it.
"""

from collections.abc import Callable, Hashable
from typing import Final

import msgspec


class Marker:
    """A value that equals nothing else."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __repr__(self) -> str:
        return self._name


State = Hashable
IMPOSSIBLE: Final = Marker("IMPOSSIBLE")
UNKNOWN: Final = Marker("UNKNOWN")


class Model(msgspec.Struct, frozen=True):
    """An object: its name, its first state, what operations do, and which of them never change it."""

    name: str
    initial: State
    step: Callable[[State, str, Hashable, Hashable], State]
    reads: frozenset[str]


def _register(state: State, function: str, argument: Hashable, result: Hashable) -> State:
    if function == "read":
        return state if result is UNKNOWN or result == state else IMPOSSIBLE
    if function == "write":
        return argument
    if not isinstance(argument, tuple):
        raise TypeError("cas takes the old value and the new one")
    old, new = argument
    return new if state == old else IMPOSSIBLE


def _mutex(state: State, function: str, argument: Hashable, result: Hashable) -> State:
    if function == "acquire":
        return IMPOSSIBLE if state is True else True
    return False if state is True else IMPOSSIBLE


def _text(state: State, function: str, argument: Hashable, result: Hashable) -> State:
    if function == "get":
        return state if result is UNKNOWN or ("" if result is None else result) == state else IMPOSSIBLE
    if function == "put":
        return argument
    if not isinstance(state, str) or not isinstance(argument, str):
        raise TypeError("only text can be appended to text")
    return state + argument


CAS_REGISTER: Final = Model("cas-register", None, _register, frozenset({"read"}))
REGISTER: Final = Model("register", None, _register, frozenset({"read"}))
MUTEX: Final = Model("mutex", initial=False, step=_mutex, reads=frozenset())
KV_APPEND: Final = Model("kv-append", "", _text, frozenset({"get"}))
MODELS: Final = {model.name: model for model in (CAS_REGISTER, REGISTER, MUTEX, KV_APPEND)}
