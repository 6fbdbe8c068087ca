"""The deeds of certification and those of the escape suite, each of which stands alone."""

from __future__ import annotations

from types import CodeType, FunctionType

from conformance.escapes import deed as escape
from mudroom.ext.certify import deed


def code(function: FunctionType) -> tuple[object, ...]:
    found: CodeType = function.__code__
    return found.co_code, found.co_names, found.co_varnames, found.co_consts


def test_what_both_try_is_the_same() -> None:
    shared = {name: value for name, value in vars(escape).items() if isinstance(value, FunctionType)}
    assert len(shared) == 21 and escape.UP == deed.UP
    assert {name: code(getattr(deed, name)) for name in shared} == {name: code(value) for name, value in shared.items()}
