"""Remarks as JSON and as lines for people. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from mudroom.core.result import path_fields, text
from mudroom.core.text.invisible_characters import escaped
from mudroom.ext.remarks.core.prompt import LocatedRemark
from mudroom.typing import Any, NamedTuple


class ListedRemarks(NamedTuple):
    remarks: tuple[LocatedRemark, ...]
    """Oldest first."""
    damaged: tuple[str, ...]
    round: int
    """The last round; 0: nothing was sent."""
    point: str
    """The checkpoint made before it; empty if there is none (any more)."""
    cut_off: tuple[str, ...]
    """Remarks that the agent has read or not: mudroom was killed, or the agent ended badly."""

    @property
    def unsent(self) -> list[LocatedRemark]:
        return [one for one in self.remarks if one.remark.is_unsent and one.name not in self.cut_off]


PLACES = {
    "answered": "the lines have changed",
    "outdated": "the lines are gone",
    "unknown": "the lines cannot be read",
}


def listed_to_json(fork: str, listed: ListedRemarks) -> dict[str, Any]:
    return {
        "schema": "mudroom.remarks/1",
        "fork": fork,
        "round": listed.round,
        "checkpoint": listed.point or None,
        "remarks": [remark_to_json(one, listed.cut_off) for one in listed.remarks],
        "damaged": list(listed.damaged),
    }


def remark_to_json(one: LocatedRemark, cut_off: Sequence[str]) -> dict[str, Any]:
    remark, sent = one.remark, one.remark.sent
    return {
        "name": one.name,
        **path_fields(remark.place),
        "first": one.first,
        "last": one.last,
        "side": remark.side,
        "where": one.where,
        "lines": [text(line.rstrip(b"\r\n")) for line in one.lines],
        "text": remark.text,
        "suggestion": remark.suggestion,
        "answers": [{"text": answer.text, "by": answer.by, "time": answer.time} for answer in remark.answers],
        "settled": remark.settled,
        "unsent": one.remark.is_unsent and one.name not in cut_off,
        "sent": None
        if sent is None
        else {"round": sent.round, "state": "unknown" if one.name in cut_off else sent.state},
        "time": remark.time,
    }


def state_words(one: LocatedRemark, cut_off: Sequence[str]) -> str:
    """Return the remark's state: whether it is sent, and what became of its lines."""
    remark, sent = one.remark, one.remark.sent
    if remark.settled:
        return "settled"
    if one.name in cut_off:
        word = "perhaps sent: the sending was cut off"
    elif remark.is_unsent:
        word = "not sent" if sent is None else f"sent in round {sent.round}, your answer not yet"
    elif sent is not None and sent.state == "waiting":
        word = "waits for the agent's look"
    elif sent is not None and sent.state == "sending":
        word = "is being sent"
    else:
        word = f"sent in round {sent.round if sent is not None else 0}"
    place = PLACES.get(one.where, "")
    return f"{word}; {place}" if place else word


def remark_lines(one: LocatedRemark, cut_off: Sequence[str]) -> Iterator[str]:
    """Yield a remark and its thread as lines that are safe on a terminal."""
    yield f"{one.name}  {one.label}  ({state_words(one, cut_off)})"
    yield from _marked(">", one.remark.text)
    for answer in one.remark.answers:
        yield from _marked(">" if answer.by == "reviewer" else "<", answer.text)
    if one.remark.suggestion == "":
        yield "    (suggests to remove the lines)"
    elif one.remark.suggestion is not None:
        yield from _marked("+", one.remark.suggestion.removesuffix("\n"))


def first_line(one: LocatedRemark) -> str:
    """Return the first line of a thread's last text."""
    texts = [one.remark.text, *(answer.text for answer in one.remark.answers)]
    return escaped(texts[-1].split("\n")[0].expandtabs(4))


def _marked(mark: str, words: str) -> Iterator[str]:
    for line in words.split("\n"):
        yield f"    {mark} {escaped(line.expandtabs(4))}".rstrip()
