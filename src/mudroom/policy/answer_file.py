"""A file of ``.mudroom/local`` to which answers are written: under each key a list of texts, one a line.

Rules of this file: people write such files, too, so what else stands in them stays, comments included. What is to be
written is read first: it says the old and the new and nothing else, or it is not written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from mudroom.errors import MudroomError, UsageError
from mudroom.policy.local import Local

Row = tuple[str, str]
"""(key, text as it is compared)."""
_HINT = "edit it by hand: under each key a list of texts, one a line"


class AnswerFile(NamedTuple):
    name: bytes
    head: bytes
    """What a new one begins with."""
    keys: tuple[str, ...]
    rows: Callable[[bytes, str], Sequence[Row]]
    """What a file holds, in order; ``name`` is what error messages call it. Raises UsageError."""

    def change(
        self, project: bytes, going: Callable[[str, str], bool], coming: Iterable[tuple[str, str, str]] = ()
    ) -> bytes:
        """Replace the file by one without what is ``going`` and with what is ``coming`` (key, text, comment), which may
        be there already. Returns what it held before. Raises UsageError as ``rows``, MudroomError where the file is
        written in a way in which nothing can be added: nothing is changed then."""
        with Local(project, write=True) as local:
            name = local.shown(self.name)
            data = local.read(self.name) or b""
            before = self.rows(data, name)
            new = [one for one in coming if one[:2] not in before]
            after = self._amended(data, name, before, going, new)
            if after != data:
                local.replace(self.name, after)
        return data

    def _amended(
        self,
        data: bytes,
        name: str,
        before: Sequence[Row],
        going: Callable[[str, str], bool],
        coming: Sequence[tuple[str, str, str]],
    ) -> bytes:
        from mudroom.policy.edit_yaml import CannotAmend, put_in, take_out

        try:
            for key in self.keys:
                found = [text for own, text in before if own == key]
                for number in reversed(range(len(found))):
                    if going(key, found[number]):
                        data = take_out(data, name, key, number)
            for row in coming:
                data = put_in(data or self.head, name, *row)
            said = self.rows(data, name)
        except (CannotAmend, UsageError) as error:  # what came of it is no file of rules any more
            raise MudroomError(f"{name} cannot be changed by mudroom: {error}", _HINT) from error
        expected = [row for row in before if not going(*row)] + [row[:2] for row in coming]
        if sorted(said) != sorted(expected):
            raise MudroomError(f"{name} cannot be changed by mudroom without changing what else it says", _HINT)
        return data
