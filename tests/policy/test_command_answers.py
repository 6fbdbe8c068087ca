"""Answers about commands that are kept: one line at a time, and nothing else of the file changes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mudroom.core.command.policy import CommandPolicy, decide, exact_pattern
from mudroom.core.command.verdict import CommandPart, join_parts
from mudroom.errors import MudroomError, UsageError
from mudroom.policy import command_answers
from mudroom.policy.command_answers import CommandAnswerFile, load, parse, remember


@pytest.fixture
def project(tmp_path: Path) -> bytes:
    return os.fsencode(tmp_path)


def file_of(project: bytes) -> Path:
    return Path(os.fsdecode(project)) / ".mudroom/local/rules.yaml"


def test_an_answer_is_one_line(project: bytes) -> None:
    assert remember(project, "rm -rf 'a b'", "claude, 2026-01-02") == CommandAnswerFile(("rm -rf 'a b'",), ())
    text = file_of(project).read_text()
    assert text.endswith("allow:\n  - \"rm -rf 'a b'\"  # claude, 2026-01-02\n")
    assert text.startswith("# What is done about agents' commands")
    (rule,) = load(project)
    assert (rule.pattern, rule.exact, rule.action) == (((b"rm",), (b"-rf",), (b"a b",)), True, "allow")
    assert rule.source == f"rules.yaml:{text.count(chr(10))}"
    assert file_of(project).stat().st_mode & 0o777 == 0o600


def test_several_parts_are_several_lines(project: bytes) -> None:
    assert remember(project, "npm ci ; npm test").texts == ("npm ci", "npm test")
    remember(project, "npm test")
    assert [" ".join(word[0].decode() for word in rule.pattern) for rule in load(project)] == ["npm ci", "npm test"]


def test_the_last_answer_counts(project: bytes) -> None:
    remember(project, "git push")
    remember(project, "git push *")
    assert remember(project, "git push", action="deny") == CommandAnswerFile(("git push",), (("allow", "git push"),))
    assert [(rule.action, rule.exact) for rule in load(project)] == [("allow", False), ("deny", True)]


def test_a_rule_may_be_bound_to_its_question(project: bytes) -> None:
    bound = f"(as of {'0a' * 16})"
    for action in ("allow", "allow_with_checkpoint"):
        assert remember(project, f"a b ; c {bound}", action=action).texts == (f"a b {bound}", f"c {bound}")
    assert {(rule.bound, rule.exact) for rule in load(project)} == {("0a" * 16, True)}
    assert remember(project, "a b", action="deny").replaced == (
        ("allow", f"a b {bound}"),
        ("allow_with_checkpoint", f"a b {bound}"),
    )
    assert [rule.bound for rule in load(project) if rule.action == "deny"] == [""]


@pytest.mark.parametrize("line", ["deny: [x BOUND]", "require_approval: [x BOUND]", "allow: [x * BOUND]"])
def test_only_a_whole_command_that_is_allowed_is_bound(line: str) -> None:
    """A denial that held for one content only would let the next one through."""
    with pytest.raises(UsageError):
        parse(line.replace("BOUND", f"(as of {'0a' * 16})").encode(), "rules.yaml")


@pytest.mark.parametrize("digest", ["", "0", "0A" * 16, "0a" * 17, "g" * 32])
def test_what_is_no_digest_is_no_command(digest: str) -> None:
    with pytest.raises(UsageError, match="a shell would do something about"):
        parse(f"allow: ['x (as of {digest})']".encode(), "rules.yaml")


def test_comments_stay(project: bytes) -> None:
    before = "# mine\nallow:   # these\n  - make   # always\n  # and\n  - 'ls *'\ndeny: [sudo]\n"
    path = file_of(project)
    path.parent.mkdir(parents=True)
    path.write_text(before)
    remember(project, "npm ci")
    assert path.read_text() == before.replace("deny:", '  - "npm ci"\ndeny:').replace(
        "  - 'ls *'\n  -", "  - 'ls *'\n  -"
    )
    path.write_text(before)
    remember(project, "make", action="deny")
    assert path.read_text() == before.replace("  - make   # always\n", "").replace("[sudo]", '[sudo, "make"]')


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("alow: [x]", "rules.yaml:1: there is no action alow (did you mean allow?)"),
        ("allow: x", "rules.yaml:1: allow must be a list of texts (one a line, behind '- ')"),
        ("allow: ['a | b']", "rules.yaml:1: allow: a shell would do something about '|'"),
        ("allow: ['a; b']", "rules.yaml:1: allow: ';' separates commands"),
        ("allow: ['']", "rules.yaml:1: allow: the pattern has no word"),
        ('allow: ["a\\tb\\nc"]', "it holds a control character"),
        ("allow: [ls]\nallow: [x]", "rules.yaml:2: allow is given twice"),
        ("allow: ['*']", "a shell would do something about '*'"),
        ("allow: ['" + "x " * 65 + "']", "a command has 1 to 64 words"),
    ],
)
def test_what_is_no_file_of_answers(project: bytes, text: str, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse(text.encode(), "rules.yaml")
    assert said in str(caught.value)
    path = file_of(project)
    path.parent.mkdir(parents=True)
    path.write_text(text)
    with pytest.raises(UsageError):
        remember(project, "make")
    assert path.read_text() == text


def test_a_file_written_otherwise_is_left_alone(project: bytes) -> None:
    path = file_of(project)
    path.parent.mkdir(parents=True)
    path.write_text("{allow: [a]}")
    with pytest.raises(MudroomError, match="cannot be changed by mudroom: it is written in braces"):
        remember(project, "make", action="deny")
    assert path.read_text() == "{allow: [a]}"


@pytest.mark.parametrize("pattern", ["", "a | b", "$(x)", "'", "a\nb"])
def test_what_is_no_command(project: bytes, pattern: str) -> None:
    with pytest.raises(UsageError, match="this is no command"):
        remember(project, pattern)
    assert not file_of(project).exists()


_word = st.binary(min_size=0, max_size=8) | st.text(max_size=8).map(lambda text: text.encode("utf-8", "surrogatepass"))


@given(words=st.lists(_word, min_size=1, max_size=4), note=st.text(st.characters(codec="utf-8"), max_size=20))
def test_what_always_writes_is_what_was_asked_about(
    tmp_path_factory: pytest.TempPathFactory, words: list[bytes], note: str
) -> None:
    """Whatever the words: the very same command is allowed from then on, and no other."""
    project = os.fsencode(tmp_path_factory.mktemp("rules"))
    part = CommandPart(tuple(words), True, ("host_escape_risk",), "")
    policy = CommandPolicy()
    pattern = exact_pattern(join_parts([part]), policy)
    if pattern is None:
        return
    remember(project, pattern, note)
    kept = CommandPolicy(rules=tuple(load(project)))
    assert decide(join_parts([part]), kept).action == "allow"
    for other in (
        part._replace(complete=False),
        part._replace(words=(*words, b"x")),
        part._replace(words=(b"x", *words)),
    ):
        assert decide(join_parts([other]), kept).action == "require_approval"
    assert exact_pattern(join_parts([part]), kept) is None


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        ('echo a"b', "a quote never closes"),
        (" ", "the pattern has no word"),
        ("make \\", "it ends in a backslash"),
        ("echo '\x7f'", "it holds what no line can"),
    ],
)
def test_an_answer_about_what_is_no_command(project: bytes, pattern: str, why: str) -> None:
    with pytest.raises(UsageError) as raised:
        remember(project, pattern)
    assert str(raised.value) == f"this is no command: {why} (write it as a shell takes it: git push)"
    assert not file_of(project).exists()


def test_a_row_that_would_not_be_read_as_it_was_meant_is_not_written(project: bytes) -> None:
    """The rows of the file are compared with what was asked for: here a text that is not in its canonical form."""
    remember(project, "make")
    before = file_of(project).read_text()
    with pytest.raises(MudroomError) as raised:
        command_answers._FILE.change(project, None, lambda _key, _text: False, [("allow", "make  all", "")])
    assert str(raised.value) == (
        f"{file_of(project)} cannot be changed by mudroom without changing its other content "
        "(edit it by hand: under each key a list of texts, one a line)"
    )
    assert file_of(project).read_text() == before
