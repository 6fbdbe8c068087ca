"""One apply, undo or redo in several vaults: all of its parts are performed, or none.

Each part prepares as it does alone, but its complete plan is written as ``plan.tied``, which no recovery performs by
itself. The parts are nested: when one is prepared, it lets the next one prepare. The last lets the operation be
decided: ``joint`` in the first vault's apply directory is replaced, durably, by one with the operation's number. From
there on each part goes forward, the last one first, and so does each recovery; without the decision each recovery takes
its part back. The first part ends last, and its mark (``ApplyDirectory.begin``) stays until all parts have ended.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence

from mudroom.core.tree.path import show
from mudroom.errors import MudroomError
from mudroom.stage import safe_open
from mudroom.typing import Literal, NamedTuple
from mudroom.vault.record import ApplyRecord, JointNote, write

DECISION = b"/joint"
Following = Literal["ready", "done", "undoing", "undone", "redoing"]


class JointPart(NamedTuple):
    vault: bytes
    """Name of the vault's directory."""
    apply: str


class Joint:
    """One operation. Owner: the thread that has all its vaults alone."""

    def __init__(self, rest: Sequence[Callable[[Joint], object]]) -> None:
        """``rest``: perform the parts after the first."""
        self._rest = list(rest)
        self._number = os.urandom(8).hex()
        self._first = b""
        """The first part's apply directory."""
        self._parts: list[JointPart] = []
        self.is_decided = False

    @property
    def is_first(self) -> bool:
        """Whether no part has been prepared."""
        return not self._parts

    def note(self, place: bytes, following: Following) -> JointNote:
        """Add a part, and return the note for its record. ``place``: its apply directory. The first comes first."""
        self._first = self._first or place
        self._parts.append(_part(place))
        first = self._parts[0]
        return JointNote(first.vault, first.apply, self._number, following)

    def prepared(self) -> None:
        """Prepare the other parts, and decide. An error before the decision means that no part is performed."""
        while self._rest:
            self._rest.pop(0)(self)
        if not self.is_decided:
            rows = [[os.fsdecode(part.vault), part.apply] for part in self._parts]
            write(self._first + DECISION, json.dumps({"number": self._number, "parts": rows}).encode(), durable=True)
            self.is_decided = True


def _part(place: bytes) -> JointPart:
    above, _slash, name = place.rpartition(b"/")
    return JointPart(os.path.basename(os.path.dirname(above)), os.fsdecode(name))


def first_place(place: bytes, note: JointNote) -> bytes:
    """Return the apply directory of an operation's first part. ``place``: that of another part. Raise MudroomError if
    its vault is missing."""
    vault = os.path.dirname(os.path.dirname(os.path.dirname(place))) + b"/" + note.vault
    if not os.path.isfile(vault + b"/format"):
        raise MudroomError(
            f"{os.fsdecode(os.path.basename(place))} is a part of {note.apply} in {show(vault)}, which is missing",
            "put that directory back: it says whether the apply was decided",
        )
    return vault + b"/applies/" + os.fsencode(note.apply)


def is_decided(place: bytes, note: JointNote) -> bool:
    """Return whether the operation of a part was decided. Raise MudroomError as ``first_place`` does, or if the
    decision is damaged."""
    return _decision(first_place(place, note))[0] == note.number


def parts_of(place: bytes, record: ApplyRecord) -> list[JointPart]:
    """Return the other parts of an apply that is the first part of a decided operation."""
    if record.joint is None or not is_first(place, record.joint):
        return []
    return [part for part in _decision(place)[1] if part != _part(place)]


def is_first(place: bytes, note: JointNote) -> bool:
    return _part(place) == JointPart(note.vault, note.apply)


def _decision(place: bytes) -> tuple[str, list[JointPart]]:
    try:
        data = json.loads(safe_open.read(place + DECISION))
        return str(data["number"]), [JointPart(os.fsencode(vault), str(apply)) for vault, apply in data["parts"]]
    except FileNotFoundError:
        return "", []
    except (ValueError, KeyError, TypeError) as error:
        raise MudroomError(
            f"{show(place + DECISION)} is damaged: {error}", "mudroom vault check says what is"
        ) from error
