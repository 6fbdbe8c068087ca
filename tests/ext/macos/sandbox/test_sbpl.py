"""The reader and evaluator of profiles that other tests rely on."""

from __future__ import annotations

import pytest
from sbpl import READINGS, AmbiguousError, MalformedError, parse, read

from tiers import each

HEAD = b"(version 1)(deny default)"


def allows(rules: bytes, operation: str, **context: object) -> bool:
    return parse(HEAD + rules).allows(operation, **context)


@each(
    ("rules", "permitted"),
    [
        (b"", False),
        (b'(allow file-read-data (literal "/a/b"))', True),
        (b'(allow file-read-data (literal "/a"))', False),
        (b'(allow file-read* (subpath "/a"))', True),
        (b'(allow file-read* (subpath "/a/b"))', True),
        (b'(allow file-read* (subpath "/"))', True),
        (b'(allow file-read* (subpath "/a/"))', True),
        (b'(allow file-read* (subpath "/aa"))', False),
        (b'(allow file-read-metadata (subpath "/a"))', False),
        (b'(allow file-read*)(deny file-read-data (literal "/a/b"))', False),
        (b'(deny file-read-data (literal "/a/b"))(allow file-read* file-read-data (subpath "/a"))', True),
        (b'(allow file-read* (regex #"^/a/[a-z]$"))', True),
        (b'(allow file-read* (require-all (subpath "/a") (require-not (literal "/a/b"))))', False),
        (b'(allow file-read* (require-any (literal "/x") (literal "/a/b")))', True),
        (b'(allow file-read* (literal "/x") (literal "/a/b"))', True),
        (b'(allow file-write* file-read-data\n ; why\n (literal "/a/b"))', True),
    ],
)
def test_the_last_rule_that_fits_decides(rules: bytes, permitted: bool) -> None:
    assert allows(rules, "file-read-data", path=b"/a/b") is permitted


@each(
    ("rules", "readings"),
    [
        (b'(allow file-read-data (subpath "/a"))(deny file-read* (literal "/a/b"))', {"last", "filter"}),
        (b'(deny file-read-data (literal "/a/b"))(allow file-read*)', set(READINGS) - {"last"}),
        (b'(allow file-read* (subpath "/a"))(deny file-read*)', {"last", "operation"}),
        (b'(allow file-read* (subpath "/a"))(deny file-read-data)', set(READINGS) - {"filter", "filter, operation"}),
    ],
)
def test_a_profile_that_depends_on_the_reading_is_found(rules: bytes, readings: set[str]) -> None:
    profile = parse(HEAD + rules)
    denied = {reading for reading in READINGS if not profile.decide(reading, "file-read-data", path=b"/a/b")}
    assert denied == readings
    with pytest.raises(AmbiguousError):
        profile.allows("file-read-data", path=b"/a/b")


def test_a_rule_for_systems_that_know_its_operation() -> None:
    rule = b"(if (defined? 'file-test-existence) (allow file-test-existence))"
    assert allows(rule, "file-test-existence", path=b"/a")
    for bad in (b"(if (defined? 'file-reed) (allow file-read*))", b"(if #t (allow file-read*))", b"(if (defined? 'x))"):
        with pytest.raises(MalformedError):
            parse(HEAD + bad)


@each(
    "text",
    [
        b"",
        b"(deny default)",
        b"(version 1)",
        b"(version 1)(allow default)",
        HEAD + b"(allow file-read*",
        HEAD + b")",
        HEAD + b"(allow file-reed*)",
        HEAD + b"(allow)",
        HEAD + b'(permit file-read* (literal "/a"))',
        HEAD + b'(allow file-read* (litteral "/a"))',
        HEAD + b'(allow file-read* (literal "a"))',
        HEAD + b'(allow network-outbound (remote tcp "10.0.0.1:80"))',
        HEAD + b'(allow file-read* "/a")',
        HEAD + b'(allow file-read* (literal "/a))',
    ],
)
def test_what_is_malformed_is_refused(text: bytes) -> None:
    with pytest.raises(MalformedError):
        parse(text)


def test_an_operation_that_is_not_known_is_a_mistake_of_the_test() -> None:
    with pytest.raises(KeyError):
        parse(HEAD).allows("file-reed-data")


def test_some_operations_are_open_by_default() -> None:
    assert parse(HEAD).allows("process-info-pidinfo", target="others")
    assert not allows(b"(deny process-info*)", "process-info-pidinfo", target="others")


def test_escapes() -> None:
    assert read(rb'("a\"b" "a\\b" "(;" sym #"^\.")') == [[b'a"b', rb"a\b", b"(;", "sym", (rb"^\.",)]]
