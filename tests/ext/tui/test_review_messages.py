"""Messages of the review: a fork that changes before a part of it is applied, and an error that ends it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from textual.app import App

from conftest import Place
from mudroom.core.merge.pick import Pick
from mudroom.errors import ForkMoved, MudroomError
from mudroom.ext.tui import app as app_module
from mudroom.ext.tui.base_app import ReviewHooks
from mudroom.ext.tui.choice import Choice
from mudroom.ext.tui.review_model import ReviewModel

TEXT = "".join(f"line {number}\n" for number in range(1, 41))


@pytest.mark.parametrize("script", ["printf 'a\\0b' > text", "sed -i 's/^three$/line 3/' text"])
def test_a_part_of_a_file_that_has_changed(place: Place, script: str) -> None:
    """Between the choice and the answer a second command makes the file binary, or gives it its old content."""
    place.write("text", TEXT)
    session, result = place.sh("sed -i 's/^line 3$/three/' text; echo 1 > other")
    model = ReviewModel(session, result.fork)
    seen, part = model.see(), {b"text": Pick(frozenset([0]))}
    place.session().run([b"sh", b"-c", script.encode()], fork=result.fork)
    with pytest.raises(ForkMoved) as raised:
        model.apply(seen, Choice((b"other", b"text"), part, ()), lambda _command: lambda _output: None)
    assert raised.value.path == b"text"
    assert (place.project / "text").read_text() == TEXT and not (place.project / "other").exists()
    model.close()


def test_a_part_of_a_file_whose_conflict_is_decided(place: Place) -> None:
    """The decision is about the whole file. A part would conflict again."""
    place.write("text", TEXT)
    session, result = place.sh("sed -i 's/^line 3$/three/; s/^line 30$/thirty/' text")
    place.write("text", TEXT.replace("line 3\n", "drei\n"))
    model = ReviewModel(session, result.fork)
    (conflict,) = model.conflicts()
    model.decide(conflict, "theirs")
    seen, part = model.see(), {b"text": Pick(frozenset([1]))}
    with pytest.raises(MudroomError) as raised:
        model.apply(seen, Choice((b"text",), part, ()), lambda _command: lambda _output: None)
    assert str(raised.value) == (
        "the conflict of text is decided as a whole (choose all of it, or take the decision back)"
    )
    landed = model.apply(seen, Choice((), {}, ()), lambda _command: lambda _output: None)
    assert not landed.conflicts and "thirty" in (place.project / "text").read_text()
    model.close()


def test_another_change_than_that_of_the_list_is_not_shown(place: Place) -> None:
    """A command puts another file in the place of the listed one. Renamed directories change no time of a file."""
    place.write("d/made", "old\n")
    session, result = place.sh("rm -r d; mkdir d; echo planted > d/made")
    model = ReviewModel(session, result.fork)
    seen = model.see()
    (item,) = (item for item in seen.items if item.path == b"d/made")

    def new() -> bytes:
        rows = asyncio.run(model.show(item))
        assert rows is not None and rows.text is not None
        return b"".join(rows.text.new).strip()

    assert new() == b"planted"
    place.session().run([b"sh", b"-c", b"mv d e; mkdir d; echo seen > d/made"], fork=result.fork)
    with pytest.raises(ForkMoved):
        new()
    place.session().run([b"sh", b"-c", b"rm -r d; mv e d"], fork=result.fork)
    assert new() == b"planted" and model.fingerprint() == seen.fingerprint
    model.close()


def test_an_error_ends_the_review(
    place: Place, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    session, result = place.sh("echo 1 > a")

    def fail(_self: object) -> None:
        raise RuntimeError("a defect")

    def run(self: App[Any], **_options: object) -> None:
        App.run(self, headless=True)

    monkeypatch.setattr(app_module.ReviewApp, "run", run)
    monkeypatch.setattr(app_module.ReviewApp, "on_mount", fail)
    hooks = ReviewHooks(edit=lambda *_words: None, tell=lambda event: event.kind)
    with pytest.raises(MudroomError) as raised:
        app_module.review(session, result.fork, hooks)
    assert str(raised.value) == (
        "the review ended by an error; nothing was applied by that (mudroom status shows the forks)"
    )
    assert "a defect" in capsys.readouterr().err
