"""The words of the parts: what bash would give the program, as far as that is known; and what runs beside it."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mudroom.core.command.program.classification import classify_line, classify_words
from mudroom.core.command.verdict import CommandPart
from tiers import each, examples

# The lines beside bash are the same in every run: a new one that fails is a finding, not a broken change.
needs_bash = pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
SHOWN = b"command_not_found_handle() { printf '%s\\0' \"$@\" $'\\001' >&2; }; PATH=/nonexistent\n"
"""Before a line: whatever it starts is shown with its words, and not found."""


def ran_by_bash(line: bytes, where: Path) -> list[tuple[bytes, ...]]:
    """What bash starts for a line, where there is nothing to start."""
    done = subprocess.run(
        ["/bin/bash", "--norc", "-c", SHOWN + line],
        capture_output=True,
        check=False,
        cwd=where,
        env={"HOME": str(where)},
        stdin=subprocess.DEVNULL,
        timeout=60,
    )
    found = [one.split(b"\0")[:-1] for one in done.stderr.split(b"\1\0")[:-1]]
    return [tuple(words[:1] and (words[0].rpartition(b"\n")[2], *words[1:])) for words in found]


def part(line: bytes, name: bytes) -> CommandPart:
    return next(part for part in classify_line(line).parts if part.words[:1] == (name,))


@each(
    ("line", "words", "complete"),
    [
        (b"git commit -m 'a b'", (b"git", b"commit", b"-m", b"a b"), True),
        (b'git commit -m "a $x"', (b"git", b"commit", b"-m"), False),
        (b"git add *.py", (b"git", b"add"), False),
        (b"git add a{b,c}", (b"git", b"add"), False),
        (b"git add ~/x", (b"git", b"add"), False),
        (b"git add a\\ b", (b"git", b"add", b"a b"), True),
        (b'git add "it\'s"', (b"git", b"add", b"it's"), True),
        (b"git add $'a\\tb\\x41\\101'", (b"git", b"add", b"a\tbAA"), True),
        (b'git add ""', (b"git", b"add", b""), True),
        (b'git add "a\\"b\\$c\\d"', (b"git", b"add", b'a"b$c\\d'), True),
        (b"git add 'a\\b'", (b"git", b"add", b"a\\b"), True),
        (b"git add x > out", (b"git", b"add", b"x"), True),
        (b"git > out add x", (b"git", b"add", b"x"), True),
        (b"git add x 2>&1", (b"git", b"add", b"x"), True),
        (b"A=1 git add x", (b"git", b"add", b"x"), True),
        (b"/usr/bin/git add x", (b"git", b"add", b"x"), True),
        (b"git add {} + \\;", (b"git", b"add", b"{}", b"+", b";"), True),
        (b"git add a=b", (b"git", b"add", b"a=b"), True),
        (b"git add a#b #c", (b"git", b"add", b"a#b"), True),
        (b"git add 1 -- 2", (b"git", b"add", b"1", b"--", b"2"), True),
        (b"git add \\~/x '~/x'", (b"git", b"add", b"~/x", b"~/x"), True),
        (b"git add \\\n  x", (b"git", b"add", b"x"), True),
        (b"git add 'a'\"b\"c\\d$'e'", (b"git", b"add", b"abcde"), True),
        (b"git add <(ls)", (b"git", b"add"), False),
    ],
)
def test_the_words_are_what_the_program_gets(line: bytes, words: tuple[bytes, ...], complete: bool) -> None:
    found = part(line, b"git")
    assert (found.words, found.complete) == (words, complete)


def test_argv_is_taken_as_it_is() -> None:
    found = classify_words([b"rm", b"-rf", b"$x", b"*", b"a b", b";", b"ls"])
    assert [(one.words, one.complete) for one in found.parts] == [
        ((b"rm", b"-rf", b"$x", b"*", b"a b", b";", b"ls"), True)
    ]
    assert found.classes == ("destructive",)


def test_a_program_elsewhere_keeps_its_path() -> None:
    assert classify_words([b"/usr/bin/rm", b"x"]).parts[0].words == (b"rm", b"x")
    found = classify_words([b"/home/me/bin/ls"])
    assert (found.parts[0].words, found.strictest) == ((b"/home/me/bin/ls",), "unknown")
    assert classify_words([b"./ls"]).strictest == "unknown"


def test_the_command_inside_is_a_part_of_its_own() -> None:
    words = [found.words for found in classify_words([b"sudo", b"-u", b"me", b"timeout", b"5", b"rm", b"x"]).parts]
    assert words == [
        (b"sudo", b"-u", b"me", b"timeout", b"5", b"rm", b"x"),
        (b"timeout", b"5", b"rm", b"x"),
        (b"rm", b"x"),
    ]
    assert [found.words for found in classify_words([b"bash", b"-lc", b"git push; ls"]).parts] == [
        (b"bash", b"-lc", b"git push; ls"),
        (b"git", b"push"),
        (b"ls",),
    ]


@each("argv", [[], [b""], [b"ls", b"a\0b"], [b"\xff\xfe"], [b"ls\r"], [b"bash", b"-c", b"\xff\0"]])
def test_odd_words_are_unknown(argv: list[bytes]) -> None:
    assert classify_words(argv).strictest == "unknown"


@pytest.mark.parametrize("line", [b"", b" ", b"\n\n", b"# only a comment"])
def test_nothing_is_unknown(line: bytes) -> None:
    assert classify_line(line).classes == ("unknown",)


def test_letters_of_any_language_are_letters() -> None:
    assert classify_line("git commit -m 'Größe: 尺寸'".encode()).classes == ("mutating",)
    assert classify_line("cat naïve.txt".encode()).classes == ("read_only",)
    assert classify_line("cat na\u00a0ive.txt".encode()).strictest == "unknown"
    assert classify_line("cat a\u202eb".encode()).strictest == "unknown"


@each(
    ("line", "strictest"),
    [
        (b"touch /srv/p/x", "mutating"),
        (b"touch /srv/p/sub/x", "mutating"),
        (b"touch ../x", "mutating"),
        (b"touch ../../x", "host_escape_risk"),
        (b"touch /srv/px", "host_escape_risk"),
        (b"touch /srv/p/../x", "host_escape_risk"),
        (b"cd /srv/p && touch x", "mutating"),
        (b"cd .. && touch x", "mutating"),
        (b"cd ../.. && touch x", "host_escape_risk"),
        (b"cd / && cd /srv/p && touch x", "mutating"),
        (b"rm -rf /srv/p/build", "destructive"),
        (b"rm -rf /srv/p/*.o", "destructive"),
        (b"echo x > /srv/p/a", "mutating"),
        (b"git -C /srv/p/sub add x", "mutating"),
        (b"git -C .. add x", "mutating"),
        (b"git -C ../.. add x", "host_escape_risk"),
    ],
)
def test_paths_are_seen_from_the_project_and_the_directory(line: bytes, strictest: str) -> None:
    assert classify_line(line, project=b"/srv/p", cwd=b"/srv/p/sub").strictest == strictest
    assert classify_words([b"sh", b"-c", line], project=b"/srv/p", cwd=b"/srv/p/sub").strictest == strictest


pieces = st.lists(
    st.sampled_from(
        [
            "'",
            '"',
            "\\",
            "a",
            "b",
            "-",
            " ",
            "#",
            "=",
            "~",
            "/",
            "{",
            "}",
            ",",
            "$'",
            "\\n",
            "\\x41",
            "^",
            "%",
            "+",
            "@",
            ":",
        ]
    ),
    max_size=14,
).map("".join)


@needs_bash
@pytest.mark.slow
@given(pieces)
@settings(max_examples=examples(250), deadline=None, derandomize=True)
def test_quotes_are_taken_off_as_bash_does(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    """Where the words are said to be known, bash gives the program these words."""
    line = b"ls " + text.encode()
    found = classify_line(line)
    if "unknown" in found.classes or len(found.parts) != 1:
        return
    (ran,) = ran_by_bash(line, tmp_path_factory.getbasetemp())
    words, complete = found.parts[0].words, found.parts[0].complete
    assert ran == words if complete else ran[: len(words)] == words


seeds = st.sampled_from(
    [
        b"ls x && rm x", b"if ls; then rm x; fi", b"for i in a b; do rm $i; done", b"case x in a) rm x;; *) ls;; esac",
        b"cat <<E\nhi $(rm x) `ls`\nE\nrm x", b"cat <<'E' | rm\n$(ls)\nE", b"(ls; rm x)", b"{ ls; rm x; }",
        b'f() { rm "$1"; }; f x', b'echo $((1+2)) "$(rm x)"', b"x=$(rm y) ls", b"[ -f x ] && rm x || ls", b"! rm x",
        b"ls > x 2>&1; rm y", b"echo 'a b' \"c d\" $'e\\n' ; rm x", b"ls # it's\nrm x", b"ls \\\n rm; rm x",
        b"cat <<-E\n\ta\n\tE\nrm x", b"echo ${x:-$(rm x)} ${y}", b"x=(1 $(rm 2)); ls", b'ls <<< "$(rm x)"',
        b'echo "a`rm x`b"', b"echo $(echo ')' ; rm x)", b"cat -a<<'E'\nE\nrm x", b"ls \n\\x rm; rm x", b"\\ ls; rm x",
    ]
)  # fmt: skip
changes = st.lists(
    st.tuples(
        st.integers(0, 50),
        st.sampled_from(
            b"'~\"~\\~#~\n~;~(~)~{~}~$~`~&~|~<~>~ ~!~[~]~=~*~E~$(~<<E~\nE\n~ rm x~((~))~ls~x~\t~1~-".split(b"~")
        ),
    ),
    max_size=3,
)


@needs_bash
@pytest.mark.slow
@given(seeds, changes)
@settings(max_examples=examples(250), deadline=None, derandomize=True)
def test_what_bash_starts_is_among_the_parts(
    tmp_path_factory: pytest.TempPathFactory, line: bytes, inserted: list[tuple[int, bytes]]
) -> None:
    """Lines with something put in anywhere: bash starts nothing that is neither a part nor called unknown."""
    for at, text in inserted:
        line = line[:at] + text + line[at:]
    found = classify_line(line)
    if any(not one.words and "unknown" in one.classes for one in found.parts):
        return
    for ran in ran_by_bash(line, tmp_path_factory.mktemp("bash")):
        assert any(
            one.words == ran[: len(one.words)] and (not one.complete or len(one.words) == len(ran))
            for one in found.parts
            if one.words
        ), (line, ran, found.parts)


def test_a_plain_program_loads_no_grammar() -> None:
    program = (
        "import sys; from mudroom.core.command.program.classification import classify_words as c;"
        "c([b'git', b'status']); c([b'sudo', b'rm']);"
        "print('tree_sitter' in sys.modules); c([b'bash', b'-c', b'ls']);"
        "print('tree_sitter' in sys.modules, 'importlib.resources' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "True", "False"]
