"""Names of images, as policies and cards have them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mudroom.core.confinement.container import name_error
from tiers import each

DIGEST = "sha256:" + "0a" * 32
RIGHT = [
    "debian", "debian:bookworm", "library/debian", "docker.io/library/debian:12", "localhost:5000/a/b-c_d.e:V1.0",
    "my__tool", "a--b", f"debian@{DIGEST}", f"r.io/x:1@{DIGEST}", DIGEST, "host",
]  # fmt: skip
WRONG = [
    "-v", "--privileged", "", " ", "a b", "Debian", "a:", "a:-x", ":1", "/a", "a/", "../a", "./a", "a//b", "a\n", "a\0",
    "a:b:c", "a@sha256:12", "é", "a_-b", "a;b", "$a", "r.io:port/x",
]  # fmt: skip


@each("name", RIGHT)
def test_what_a_name_is(name: str) -> None:
    assert name_error(name) == ""


@each("name", WRONG)
def test_what_no_name_is(name: str) -> None:
    assert name_error(name) == ("is empty" if not name else "is not the name of an image")
    assert name_error("a" * 256) == "is longer than 255 characters"


@given(st.text(max_size=40))
def test_a_name_is_never_an_option_and_always_one_printable_word(name: str) -> None:
    if not name_error(name):
        assert name.isascii()
        assert name.isprintable()
        assert not name.startswith(("-", ".", "/"))
        assert name.split() == [name]
