"""What is decided about a conflict, told to whoever looks again, and edited as a whole."""

from __future__ import annotations

import os
from typing import Any

import pytest
from pageside import changed, pick

from conftest import tick
from mudroom.ext.web.api.region import EDITABLE
from test_conflict_api import TEXT, Two, edit, page, places, two

__all__ = ["page", "places", "two"]
MERGED = edit(TEXT, l2="theirs 2\n", l12="only ours\n", l18="only theirs\n", l25="by\nhand\n")


def result(two: Two, name: str = "f") -> dict[str, Any]:
    found = two.look(name)
    assert found["decided"] is True
    shown: dict[str, Any] = found["result"]
    return shown


def test_nothing_is_told_before_it_is_decided(places: Two) -> None:
    assert places.look()["result"] is None
    assert places.decide("text", lines=["x"], status=400)["hint"] == "decide it first"


def test_place_by_place(places: Two) -> None:
    places.decide("regions", regions=["theirs", ["by", "hand"]])
    assert result(places) == {
        "size": len(MERGED), "choices": ["theirs", ["by", "hand"]], "lines": [], "more": 0, "text": MERGED,
        "unseen": False,
    }  # fmt: skip
    (row,) = places.page.get(places.path("conflicts"))["conflicts"]
    assert (row["take"], row["result"]) == ("content", None)


def test_decided_in_a_terminal(places: Two) -> None:
    session = places.place.session()
    (conflict,) = session.changes.conflicts("agent-1")
    session.changes.decide("agent-1", conflict, "content", b"something else\n")
    found = result(places)
    assert (found["choices"], found["text"]) == (None, "something else\n")
    assert [line[2:4] for line in found["lines"]] == [[1, "something else"]]


@pytest.mark.parametrize(("take", "text"), [("ours", "ours 2\n"), ("theirs", "theirs 2\n")])
def test_one_side_of_all_of_it(places: Two, take: str, text: str) -> None:
    """With what only that side has changed: no choice at the places alone comes to that."""
    places.decide(take)
    found = result(places)
    assert (found["choices"], len(found["lines"])) == (None, 30)
    assert text in found["text"]


def test_one_side_where_nothing_else_is_changed(two: Two) -> None:
    two.make("one\n", "ours\n", "theirs\n")
    two.decide("theirs")
    assert result(two)["choices"] == ["theirs"]
    two.decide("delete")
    assert (two.look()["take"], two.look()["result"]) == ("delete", None)


def test_what_a_side_has_become_meanwhile_is_not_decided(places: Two) -> None:
    places.decide("regions", regions=["theirs", "ours"])
    tick()
    places.place.write("f", edit(TEXT, l2="again\n"))
    assert (places.look()["decided"], places.look()["result"]) == (False, None)


def test_all_of_it_edited(places: Two) -> None:
    places.decide("regions", regions=["theirs", "ours"])
    lines = MERGED.splitlines()
    places.decide("text", lines=lines)
    assert result(places)["choices"] == ["theirs", ["by", "hand"]]
    places.decide("text", lines=["first", *lines])
    assert result(places)["choices"] is None
    assert places.apply().decode() == "first\n" + MERGED


def test_one_that_was_overtaken_is_not_edited(places: Two) -> None:
    places.decide("regions", regions=["theirs", "ours"])
    versions = places.look()["versions"]
    places.decide("regions", regions=["theirs", "theirs"])
    assert places.decide("text", lines=["x"], versions=versions, status=409)["code"] == "decided"
    assert result(places)["choices"] == ["theirs", "theirs"]


def test_what_has_come_since_an_edit_began_is_merged_with_it(places: Two) -> None:
    places.decide("regions", regions=["theirs", "ours"])
    begun = result(places)["text"].splitlines()
    places.decide("regions", regions=["theirs", "theirs"])
    now = result(places)["text"]
    places.decide("text", lines=["first", *begun], begun=begun)
    assert places.apply().decode() == "first\n" + now


def test_what_does_not_go_together_with_it_is_told_and_nothing_saved(places: Two) -> None:
    places.decide("regions", regions=["theirs", "ours"])
    begun = result(places)["text"].splitlines()
    edited = [line.replace("ours 25", "edited") for line in begun]
    places.decide("regions", regions=["theirs", "theirs"])
    refused = places.decide("text", lines=edited, begun=begun, status=409)
    assert (refused["code"], refused["error"]) == (
        "overlaps", "the edit conflicts with changes since, from line 25 of the edit on",
    )  # fmt: skip
    assert result(places)["choices"] == ["theirs", "theirs"]
    places.decide("text", lines=edited)
    assert places.apply().decode().splitlines() == edited


def test_what_cannot_be_merged_with_what_has_come_since_is_told(places: Two) -> None:
    places.decide("ours")
    for lines, begun in (["a\0b"], ["x"]), (["x"], ["a\0b"]), (["x"], ["two\nlines"]):
        assert places.decide("text", lines=lines, begun=begun, status=400)["code"] == "bad-request"
    assert result(places)["text"].startswith("line 1\nours 2\n")


ENDS = [
    (b"1\r\n2\r\n", b"1\r\nours\r\n", ["new", "1", "ours", ""], b"new\r\n1\r\nours\r\n\r\n"),
    (b"1\n2", b"1\nours", ["1", "ours", "more"], b"1\nours\nmore"),
    (b"1\n2\r\n3\n", b"1\nours\r\n3\n", ["ours", "new", "3"], b"ours\r\nnew\n3\n"),
    (b"1\n2\n", b"1\nours\n", [], b""),
]


@pytest.mark.parametrize(("base", "ours", "lines", "expected"), ENDS)
def test_lines_end_as_they_did(two: Two, base: bytes, ours: bytes, lines: list[str], expected: bytes) -> None:
    two.make(base, ours, ours.replace(b"ours", b"theirs"))
    two.decide("ours")
    two.decide("text", lines=lines)
    assert two.apply() == expected


def test_lines_end_as_they_do_by_now(two: Two) -> None:
    """Of what an edit began from no ends are known: they are no change of it."""
    two.make(b"1\n2\n3\n4\n", b"1\nours\n3\n4\n", b"1\r\ntheirs\r\n3\r\n4")
    two.decide("ours")
    two.decide("theirs")
    two.decide("text", lines=["first", "1", "ours", "3", "4"], begun=["1", "ours", "3", "4"])
    assert two.apply() == b"first\r\n1\r\ntheirs\r\n3\r\n4"


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"a\rb\n", "a browser makes a line's end of it"),
        (b"a\xff\n", "it is no text"),
        (b"a\0\n", "it is no text"),
        (b"a" * (EDITABLE + 1) + b"\n", "it is too long"),
    ],
    ids=["returns", "bytes", "nul", "long"],
)
def test_what_is_not_edited(two: Two, content: bytes, why: str) -> None:
    two.make("one\n", "ours\n", "theirs\n")
    session = two.place.session()
    (conflict,) = session.changes.conflicts("agent-1")
    session.changes.decide("agent-1", conflict, "content", content)
    found = result(two)
    assert (found["text"], found["size"], found["choices"]) == (None, len(content), None), why
    refused = two.decide("text", lines=["x"], status=400)
    assert refused["error"] == "f cannot be edited as a whole"


@pytest.mark.parametrize("line", ["two\nlines", "\ud800"])
def test_lines_that_are_none(places: Two, line: str) -> None:
    places.decide("ours")
    asked = {"versions": places.look()["versions"], "take": "text", "lines": [line], **pick("f")}
    body = str(asked).replace("'", '"').replace("\n", "\\n").encode("utf-8", "backslashreplace")
    status, found = places.page.try_("POST", places.path("decide"), body)
    assert (status, found["code"]) == (400, "bad-request")
    assert result(places)["text"].startswith("line 1\nours 2\n")


def test_what_cannot_be_seen_is_told(two: Two) -> None:
    two.make("one\n", "ours\n", "the\u202eirs\n")
    two.decide("theirs")
    assert result(two)["unseen"] is True
    two.decide("ours")
    assert result(two)["unseen"] is False


def test_what_cannot_be_seen_in_a_line_of_a_long_text_is_told(two: Two) -> None:
    long = ("x" * 1023 + "\n") * 260
    assert len(long) > EDITABLE
    two.place.write("f", "one\n" + long)
    changed(two.place, "sed -i 's/^one$/theirs/' f", "agent-1")
    tick()
    two.place.write("f", "ours\n" + long)
    two.decide("regions", regions=[["a\u202eb"]])
    assert (result(two)["text"], result(two)["choices"], result(two)["unseen"]) == (None, [["a\u202eb"]], True)


def test_what_is_no_text(two: Two) -> None:
    two.make(b"a\0base", b"a\0ours", b"a\0theirs", "f.bin")
    two.decide("theirs", "f.bin")
    found = result(two, "f.bin")
    assert (found["size"], found["text"], found["lines"], found["choices"]) == (8, None, [], None)


def test_very_many_lines_are_sent_in_part(two: Two) -> None:
    two.make("one\n", "ours\n", "theirs\n")
    session = two.place.session()
    (conflict,) = session.changes.conflicts("agent-1")
    session.changes.decide("agent-1", conflict, "content", b"x" * 300 + b"\n" + b"y\n" * 300_000)
    found = result(two)
    assert (len(found["lines"]), found["more"], found["choices"], found["text"]) == (2_000, 298_001, None, None)


def test_a_secret_that_is_decided_is_shown_to_nobody(two: Two) -> None:
    changed(two.place, "echo theirs > .env", "agent-1")
    tick()
    two.place.write(".env", "TOKEN=swordfish\n")
    two.decide("ours", ".env")
    looked = two.look(".env")
    assert (looked["decided"], looked["take"], looked["result"]) == (True, "ours", None)
    assert "swordfish" not in repr(looked)
    assert two.decide("text", ".env", lines=["x"], status=400)["error"] == ".env cannot be edited as a whole"
    assert os.listdir(two.place.project) == [".env"]


# --- lines that nobody has changed ---


def unchanged(two: Two, name: str = "f", *, status: int = 200, versions: str = "", **more: int) -> Any:
    asked = "".join(f"&{key}={value}" for key, value in more.items())
    versions = versions or two.look(name)["versions"]
    return two.page.get(two.path(f"conflict/lines?file={pick(name)['id']}&versions={versions}{asked}"), status=status)


def test_lines_that_nobody_has_changed(places: Two) -> None:
    found = unchanged(places, first=12, count=3)
    assert (found["first"], found["total"]) == (12, 30)
    assert [line[:4] for line in found["lines"]] == [
        [" ", 12, 12, "only ours"], [" ", 13, 13, "line 13"], [" ", 14, 14, "line 14"],
    ]  # fmt: skip
    assert [line[3] for line in unchanged(places, first=30)["lines"]] == ["line 30"]
    assert unchanged(places, first=31)["lines"] == []
    assert unchanged(places, first=0, status=400)["code"] == "bad-request"
    versions = places.look()["versions"]
    places.decide("ours")
    assert unchanged(places, versions=versions)["total"] == 30, "the sides are what they were"
    tick()
    places.place.write("f", edit(TEXT, l2="again\n"))
    assert unchanged(places, versions=versions, status=409)["code"] == "moved"


def test_lines_of_what_is_not_shown(two: Two) -> None:
    changed(two.place, "echo theirs > .env; printf 'a\\0' > bin", "agent-1")
    tick()
    two.place.write(".env", "TOKEN=swordfish\n")
    two.place.write("bin", "b\0")
    for name in (".env", "bin"):
        refused = unchanged(two, name, status=400)
        assert refused["error"] == f"{name} has no lines that are shown"
