"""An answer file (``local_directory.py``): under each key a list of texts, one a line.

Rules of this file: users edit such files, too, so all other content stays, comments included. The new content is parsed
before it is written. If it does not hold exactly the old rows and the change, the file is not changed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence

from mudroom.core.tree.path import show
from mudroom.errors import MudroomError, UsageError
from mudroom.policy.local_directory import LocalDirectory
from mudroom.typing import NamedTuple

Row = tuple[str, str]
"""(key, text in its canonical form)."""
_HINT = "edit it by hand: under each key a list of texts, one a line"


class AnswerFile(NamedTuple):
    name: bytes
    head: bytes
    """Content that a new file begins with."""
    keys: tuple[str, ...]
    rows: Callable[[bytes, str], Sequence[Row]]
    """Parse a file's rows, in order; ``name`` is shown in error messages. Raises UsageError."""

    def change(
        self,
        project: bytes,
        state: bytes | None,
        removes: Callable[[str, str], bool],
        additions: Iterable[tuple[str, str, str]] = (),
    ) -> list[bytes]:
        """Remove the rows for which ``removes`` returns True, also from the user's file, add the missing ``additions``
        (key, text, comment) to mudroom's, and return the files' previous contents. Without ``state``, both are the
        user's. Raise UsageError as ``rows`` does, MudroomError if a file's style does not allow the change; that file
        is then unchanged."""
        contents = []
        users = project + b"/.mudroom/local/" + self.name
        if state is not None and os.path.lexists(users):
            contents += self.change(project, None, removes)
            additions = [row for row in additions if row[:2] not in self.rows(contents[0], show(users))]
        with LocalDirectory(project, state, write=True) as local:
            name = local.shown(self.name)
            data = local.read(self.name) or b""
            before = self.rows(data, name)
            new = [row for row in additions if row[:2] not in before]
            after = self._edit(data, name, before, removes, new)
            if after != data:
                local.replace(self.name, after)
        return [*contents, data]

    def _edit(
        self,
        data: bytes,
        name: str,
        before: Sequence[Row],
        removes: Callable[[str, str], bool],
        additions: Sequence[tuple[str, str, str]],
    ) -> bytes:
        from mudroom.policy.edit_yaml import CannotEdit, insert_text, remove_text

        try:
            for key in self.keys:
                texts = [text for own, text in before if own == key]
                for number in reversed(range(len(texts))):
                    if removes(key, texts[number]):
                        data = remove_text(data, name, key, number)
            for row in additions:
                data = insert_text(data or self.head, name, *row)
            changed_rows = self.rows(data, name)
        except (CannotEdit, UsageError) as error:  # the result cannot be parsed as rules
            raise MudroomError(f"{name} cannot be changed by mudroom: {error}", _HINT) from error
        expected = [row for row in before if not removes(*row)] + [row[:2] for row in additions]
        if sorted(changed_rows) != sorted(expected):
            raise MudroomError(f"{name} cannot be changed by mudroom without changing its other content", _HINT)
        return data
