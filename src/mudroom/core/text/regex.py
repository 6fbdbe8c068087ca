"""Regular expressions that are compiled when they are first used.

Most commands use none of the expressions that their modules define. Compiling costs 50 to 500 us each, and importing
``re`` costs a third of the interpreter's start.
"""

from __future__ import annotations

from mudroom.typing import TYPE_CHECKING, Any, AnyStr

if TYPE_CHECKING:
    import re


_METHODS = ("match", "fullmatch", "search", "sub", "subn", "split", "findall", "finditer", "pattern", "flags", "groups")


def regex(source: AnyStr) -> re.Pattern[AnyStr]:
    """Return a regular expression; flags are written in it, as ``(?i)``. The first use raises ``re.error`` if it is not
    valid: tests/core/text/test_regex.py compiles all of them."""
    lazy: Any = _Pattern(source)
    return lazy  # type: ignore[no-any-return]


class _Pattern:
    """A pattern that is compiled on first use, which stores the methods as attributes. Two threads may compile it at
    once, with the same result. Owner of the attributes: the first caller."""

    def __init__(self, source: Any) -> None:
        self._source = source

    def __getattr__(self, name: str) -> Any:
        if name not in _METHODS:
            raise AttributeError(name)
        import re

        compiled = re.compile(self._source)
        self.__dict__.update({method: getattr(compiled, method) for method in _METHODS})
        return self.__dict__[name]
