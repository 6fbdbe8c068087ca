"""The comparison of system call filters, docs/evidence/SYSCALLS.md."""

from __future__ import annotations

from pathlib import Path

from conformance.syscalls.__main__ import QUESTIONS, document
from conformance.syscalls.decision import ALLOWED, OWN, Profile, decide, is_conditional, load
from conformance.syscalls.left_open import LEFT_OPEN
from mudroom.sandbox.linux.syscall import NUMBERS
from tiers import each

CALLS, OTHERS = load()
BY_TITLE = {profile.title: profile for profile in (*OWN, *OTHERS)}


def test_the_document_is_what_the_generator_gives() -> None:
    """python -m tests.conformance.syscalls > docs/evidence/SYSCALLS.md"""
    assert (Path(__file__).parents[3] / "docs/evidence/SYSCALLS.md").read_text() == document()


def test_every_call_of_our_tables_is_compared() -> None:
    assert {name for name, (number, _other) in NUMBERS.items() if number is not None} <= set(CALLS)
    assert set(LEFT_OPEN) <= set(CALLS)
    assert len(set(CALLS)) == len(CALLS)


def test_every_call_with_conditions_has_a_question() -> None:
    profiles = (*OWN, *OTHERS)
    assert {question.call for question in QUESTIONS} == {call for call in CALLS if is_conditional(profiles, call)}


def test_the_profiles_name_only_calls_that_exist() -> None:
    assert {rule.call for profile in OTHERS for rule in profile.rules} <= set(CALLS)


@each(
    ("title", "call", "arguments", "expected"),
    [
        ("Docker", "ptrace", (), ALLOWED),
        ("Docker", "socket", (40, 1, 0), "EPERM"),
        ("Docker", "socket", (2, 1, 132), ALLOWED),
        ("Docker", "clone", (0x10000011,), "EPERM"),
        ("Docker", "io_uring_setup", (), "EPERM"),
        ("Flatpak", "socket", (40, 1, 0), "EAFNOSUPPORT"),
        ("Flatpak", "modify_ldt", (), "EPERM"),
        ("Flatpak", "io_uring_setup", (), ALLOWED),
        ("Codex, no network", "connect", (), "EPERM"),
        ("Codex, proxy", "socket", (2, 1, 0), ALLOWED),
        ("sandbox-runtime", "socket", (1, 1, 0), "EPERM"),
        ("sandbox-runtime", "mount", (), ALLOWED),
        ("mudroom 1", "socket", (2, 1, 132), "EPROTONOSUPPORT"),
        ("mudroom 1", "mount", (), "EPERM"),
        ("mudroom 0", "mount", (), ALLOWED),
    ],
)
def test_decisions(title: str, call: str, arguments: tuple[int, ...], expected: str) -> None:
    profile: Profile = BY_TITLE[title]
    assert decide(profile, call, arguments) == expected
