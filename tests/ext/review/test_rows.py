"""The rows of a fork, as the page and the terminal have them."""

from __future__ import annotations

import pytest

from conftest import Place
from mounted_fork import sh
from mudroom.core.settings import Settings, ViewChoice
from mudroom.errors import NotReviewed
from mudroom.ext.review.rows import difference, picture_of, review_fork
from mudroom.vault.forks import review
from test_looks import landed, storing
from tiers import each


@pytest.mark.both_users
def test_the_fingerprint_of_a_fork_in_use_is_that_of_a_look(place: Place) -> None:
    session = place.session()
    background = storing(session)
    reviewed = review_fork(session, "f")
    assert reviewed.in_use == session.changes.look("f").in_use
    background.end()
    assert reviewed.fingerprint.startswith(review.LOOK)
    with pytest.raises(NotReviewed):
        session.changes.apply("f", reviewed=reviewed.fingerprint)
    assert landed(place) is None


@pytest.mark.both_users
@pytest.mark.parametrize("view", ["overlay", "copy"])
def test_the_rest_of_an_apply_has_its_texts(place: Place, view: ViewChoice) -> None:
    place.write("a.txt", "one\n")
    session = place.session(Settings(view=view))
    sh(session, "echo theirs > a.txt; echo new > new.txt")
    place.write("a.txt", "mine\n")
    assert session.changes.apply("f").applied.conflicts
    assert difference(session, "f", b"a.txt").texts is not None


@each(
    ("head", "media_type"),
    [
        (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", "image/png"),
        (b"\xff\xd8\xff\xe0\0\x10JFIF", "image/jpeg"),
        (b"GIF89a\1\0\1\0", "image/gif"),
        (b"RIFF\x24\0\0\0WEBPVP8L", "image/webp"),
        (b"\0\0\0\x1cftypavif\0\0\0\0", "image/avif"),
        (b"BM\x46\0\0\0\0\0\0\0", "image/bmp"),
        (b"\0\0\1\0\1\0", "image/x-icon"),
        (b"BM is a word", ""),
        (b"RIFF\x24\0\0\0WAVEfmt ", ""),
        (b"<html><script>", ""),
        (b"", ""),
    ],
)
def test_by_its_first_bytes(head: bytes, media_type: str) -> None:
    assert picture_of(head, b"a.html") == media_type


def test_svg_by_its_name_and_what_it_is() -> None:
    assert picture_of(b'<?xml version="1.0"?><svg/>', b"docs/A.SVG") == "image/svg+xml"
    assert picture_of(b"<html>", b"a.svg") == ""
    assert picture_of(b"<svg/>", b"a.html") == ""
