"""Whatever is wrong in a policy is one clean line that names the line and the key."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import product

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mudroom.errors import UsageError
from mudroom.policy import setting_type
from mudroom.policy.config import parse_settings
from mudroom.policy.setting_type import seconds, shown, size
from policy_text import WRONG, loader, refusal
from tiers import each

__all__ = ["loader"]  # fixture


@each("host", ["*.example.com", "*", "**.example.com", "*:22"])
def test_a_star_without_quotes_is_explained(host: str) -> None:
    said = refusal(f"network:\n  allow:\n  - {host}\n")
    assert said.startswith("policy.yaml:3: this is not YAML: ")
    assert said.endswith('(to YAML a * is a reference; put the text in quotes: "*.example.com")')


NOT_ONE = ["", True, None, [], "nan", "inf", "1e999"]
BAD_TIMES = [*NOT_ONE, 0, -1, "0s", "-5m", "soon", "m", "5y", "-inf", 10**400, "1 2"]
BAD_SIZES = [*NOT_ONE, -1, "-1MB", "much", "MB", "1PB", 1e300, 2**63, "1e12GB", "1,5MB"]


@pytest.mark.parametrize(("convert", "bad"), [(seconds, BAD_TIMES), (size, BAD_SIZES)], ids=["times", "sizes"])
def test_what_is_no_time_and_no_size(convert: Callable[[object, str], object], bad: list[object]) -> None:
    for value in bad:
        with pytest.raises(UsageError, match=re.escape(f"here is {shown(value)}, which is not a ")):
            convert(value, "here")


@each(("text", "line", "message"), WRONG)
def test_a_wrong_setting_is_named(text: str, line: int, message: str) -> None:
    where = f"policy.yaml:{line}: "
    assert refusal(text) == where + message


TAGGED = ["!!int x", "!!float x", "!!bool x", "!!timestamp x", "!!python/object:os.system x"]


@each("value", [*TAGGED, "2024-13-45"])
def test_a_value_that_cannot_be_made_of_its_text(value: str) -> None:
    message = "policy.yaml:2: run.timeout cannot be read as what it is tagged or looks like"
    assert refusal(f"run:\n  timeout: {value}\n") == message


@each(
    ("data", "line"),
    [
        (b"run: [\n", 2),
        (b"run:\n\tview: copy\n", 2),
        (b"run: {}\nrun: x: y\n", 2),
        (b"run: {}\n---\ncopy: {}\n", 2),
        (b"%YAML 3.0\n---\nrun: {}\n", 1),
        (b"run: {}\n\x07", 2),
        (b"run: \0", 1),
    ],
)
def test_what_is_not_yaml(data: bytes, line: int) -> None:
    assert refusal(data).startswith(f"policy.yaml:{line}: this is not YAML: ")


@each(
    ("data", "line"), [(b"\xff", 1), (b"run:\n  view: caf\xe9\n", 2), (b"\xff\xfer\0u\0", 1), (b"run: \xed\xa0\x80", 1)]
)
def test_what_is_not_utf8(data: bytes, line: int) -> None:
    assert refusal(data) == f"policy.yaml:{line}: this is not UTF-8"


@each("data", [b"[" * 100_000, b"{a: " * 100_000, b"- " * 100_000, b"run: {view: " + b"[" * 20])
def test_what_is_nested_too_deeply_does_not_reach_the_loader(data: bytes) -> None:
    assert refusal(data) == "policy.yaml:1: nested too deeply"


DIGITS = "9" * 4000
NUMBERS = (
    f"0x{'F' * 4000}",
    DIGITS,
    f"'{DIGITS}'",
    f"'{'9' * 400}'",
    f"[{DIGITS}]",
    f"{DIGITS}.5",
    f"-{'1' * 101}",
    "9" * 90,
    "1:" * 200 + "1.5",
    "1:" * 45 + "1.5",
    "1:" * 100_000 + "1",
    "1e300",
    "1e400",
    ".inf",
    f"!!int '{DIGITS}'",
    f"!!float '{'1:' * 4000}1'",
)


KEYS = [
    "run.timeout", "run.level", "run.output_limit", "limits.processes", "limits.memory", "limits.cpus",
    "limits.open_files", "keep.age", "keep.applies", "keep.journal", "keep.journal_age", "verify.timeout",
    "commands.approval_timeout", "levels.default", "levels.allow", "user_commands.show_diff_threshold",
    "copy.gitignore", "run.view",
]  # fmt: skip


@each(("key", "number"), product(KEYS, NUMBERS))
def test_what_no_number_may_be(key: str, number: str) -> None:
    section, _dot, name = key.partition(".")
    message = refusal(f"{section}:\n  {name}: {number}\n")
    assert message.startswith("policy.yaml:2: " + key)
    assert len(message) < 300


def test_what_no_level_of_an_agent_may_be() -> None:
    for number in NUMBERS:
        assert refusal(f"levels: {{agents: {{a: {number}}}}}").startswith("policy.yaml:1: levels.agents.a")


def test_a_hundred_years_are_the_longest_time() -> None:
    assert parse_settings(b"keep: {age: 36600d}", "p").keep_age == 36600 * 86400
    for text in ("36601d", "1e300", "'4e9'"):
        assert "at most a hundred years: 36600d" in refusal(f"keep: {{age: {text}}}")
    for text in ("-1", "0", "'-1e400'", "'1e400'", ".inf", ".nan", "-.inf"):
        assert "which is not a time" in refusal(f"keep: {{age: {text}}}")


def test_references_are_refused() -> None:
    doubling = "".join(f"  - &a{n} [{f'*a{n - 1}, ' * 9}]\n" for n in range(1, 40))
    for text in ("run: *nowhere", "run: {view: &a [*a]}", f"run: {{}}\ncopy:\n  exclude:\n  - &a0 x\n{doubling}"):
        assert ": references are not read: *" in refusal(text)


PIECES = b"""
run copy network allow presets npm a.com
view timeout environment read limit exclude : - [ ] { } , & * ! !!int !!set !!binary | > ' " # % @
\\0 \\ud800 <<: ? --- ... ~ true 1 -1 1e999 0x1 1:30 .inf 2001-01-01 /a ../b =
""".split()


@given(st.binary(max_size=40) | st.lists(st.sampled_from([*PIECES, b"\n", b"\t"]), max_size=15).map(b" ".join))
@example(b"run: {timeout: !!set {a}}")
@example(b"run: !!python/object:x {view: copy}")
@example(b'run: {environment: ["\\ud800"]}')
def test_nothing_but_a_clean_error_comes_of_any_bytes(data: bytes) -> None:
    try:
        parse_settings(data, "policy.yaml")
    except UsageError as error:
        assert re.match(r"policy\.yaml:[0-9]+: ", error.message)
        assert str(error).isprintable()


@each(
    ("rule", "why"),
    [
        ("{methods: [GET]}", "host is missing"),
        ("{host: a.example, method: [GET]}", "did you mean network.inspect.methods"),
        ("{host: a.example, methods: GET}", "methods must be a list"),
        ("{host: a.example, paths: [a]}", "a is no path"),
        ("{host: a.example, action: maybe}", "allow, ask or deny"),
        ("{host: a.example, set: {host: b}}", "is not a header that a rule can change"),
        ("{host: 'https://a.example/'}", "this is a URL"),
        ("[a.example]", "a host, or keys with values"),
    ],
)
def test_inspect_rules_that_are_wrong(rule: str, why: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_settings(f"network:\n  inspect:\n    - {rule}\n".encode(), "policy.yaml")
    assert "policy.yaml:3" in str(caught.value)
    assert why in f"{caught.value} {caught.value.hint}"


def test_the_rules_between_forks_have_two_sides() -> None:
    with pytest.raises(UsageError, match=r"network\.forks must have show and reach"):
        setting_type._forks([8000], "network.forks")
