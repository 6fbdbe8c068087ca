"""The sign that questions wait: which terminals show it, and where it may go in a program's output."""

from __future__ import annotations

from mudroom.sandbox.client.terminal_sign import SignKind, TerminalSign, is_between, sign_kinds
from tiers import each

BETWEEN = [
    b"",
    b"text",
    b"\x1b[31m",
    b"\x1b[?2026h\x1b[1;1Hx\x1b[?2026l",
    b"\x1b]0;title\x07",
    b"\x1b]8;;http://a\x1b\\link\x1b]8;;\x1b\\",
    b"\x1bPq#0;2;0;0;0\x1b\\",
    b"\x1b(B\x1b7\x1b8\x1bc",
    "é€𝄞".encode(),
]
INSIDE = [
    b"\x1b",
    b"\x1b[",
    b"\x1b[31",
    b"\x1b[31m\x1b[?25",
    b"\x1b]0;title",
    b"\x1b]0;title\x1b",
    b"\x1bPq#0;2\x07",
    b"\x1b(",
    "é".encode()[:1],
    "€".encode()[:2],
    "𝄞".encode()[:3],
]


@each("tail", BETWEEN)
def test_between(tail: bytes) -> None:
    assert is_between(tail)


@each("tail", INSIDE)
def test_inside(tail: bytes) -> None:
    assert not is_between(tail)


@each(
    ("environ", "kinds"),
    [
        ({}, ("bell",)),
        ({b"TERM": b"dumb"}, ("bell",)),
        ({b"TERM": b"linux"}, ("bell",)),
        ({b"TERM": b"xterm-256color"}, ("title", "bell")),
        ({b"TERM": b"xterm-256color", b"TERM_PROGRAM": b"WezTerm"}, ("title", "bell", "notification")),
        ({b"TERM": b"tmux-256color", b"TERM_PROGRAM": b"WezTerm"}, ("title", "bell")),
        ({b"TERM": b"xterm-kitty"}, ("title", "bell", "notification")),
    ],
)
def test_a_terminal_gets_what_it_shows(environ: dict[bytes, bytes], kinds: tuple[str, ...]) -> None:
    assert sign_kinds(environ) == kinds


def test_the_bell_and_the_notification_come_once() -> None:
    sign = TerminalSign(("title", "bell", "notification"))
    assert sign.change("one") == b"\x1b[22;0t\x1b]0;one\x07\x1b]9;one\x07\x07"
    assert sign.change("one") == b""
    assert sign.change("two") == b"\x1b]0;two\x07"
    assert sign.change("") == b"\x1b[23;0t" and not sign.is_shown
    assert sign.change("") == b""
    assert sign.change("one").endswith(b"\x07\x07")


def test_without_a_title_there_is_the_bell_alone() -> None:
    kinds: tuple[SignKind, ...] = ("bell",)
    sign = TerminalSign(kinds)
    assert (sign.change("one"), sign.change("two"), sign.change("")) == (b"\x07", b"", b"")


def test_the_programs_last_title_comes_back() -> None:
    sign = TerminalSign(("title", "bell"))
    sign.heard(b"\x1b]0;before\x07")
    sign.change("one")
    sign.heard(b"\x1b]0;first\x07 text \x1b]2;second\x1b\\")
    sign.heard(b"more")
    assert sign.change("") == b"\x1b[23;0t\x1b]0;second\x07"
    sign.change("one")
    assert sign.change("") == b"\x1b[23;0t"
