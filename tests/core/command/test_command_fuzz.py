"""Commands put together at random: what is harmless never makes a command milder, and nothing raises."""

from __future__ import annotations

import functools
import shutil
import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from command_files import COMMANDS, EVASIONS
from mudroom.core.command.program.classification import classify_line, classify_words
from mudroom.core.command.verdict import CLASSES, Classification
from tiers import examples, half

UNFINISHED = (b"ls &&", b"ls )", b"ls ) ; rm x", b"((ls); rm x)", b"if ls; then")
"""What is put around these finishes them, or makes them something else."""
ALL = [line for _classes, line in COMMANDS + EVASIONS if line not in UNFINISHED and b"unclosed" not in line]
ROUNDS = (
    b"%s; true", b"%s && ls", b"%s || true", b"%s | cat", b"true; %s", b"ls && %s", b"cat x | %s", b"(%s)",
    b"{ %s; }", b"if true; then %s; fi", b"if %s; then true; fi", b"while %s; do break; done",
    b"for i in 1; do %s; done", b"time %s", b"! %s", b"%s &", b"( %s )", b"\n%s\n", b"  %s", b"%s # a comment",
    b"f() { %s; }; f", b"echo $(%s)", b'echo "$(%s)"', b"cat <(%s)", b"case x in x) %s;; esac", b"ls\n%s\nls",
    b"A=1; %s", b"cat <<EOF\n$(%s)\nEOF", b"echo 'it is'; %s; echo \"so\"", b"%s 2> /dev/null", b"[[ -f x ]] && %s",
)  # fmt: skip
"""Ways of writing a command that do not change what it does, or add something that only reads."""
PREFIXES = (
    [b"env"],
    [b"nohup"],
    [b"timeout", b"5"],
    [b"nice", b"-n", b"3"],
    [b"command"],
    [b"env", b"A=1"],
    [b"setsid"],
)

KEYWORDS = (b"time", b"set", b"if", b"for", b"while", b"case", b"f()")

lines = st.sampled_from([line for _classes, line in COMMANDS if line in ALL])
rounds = st.lists(st.sampled_from(ROUNDS), min_size=1, max_size=3)
tokens = st.sampled_from(
    b"ls|rm x|x|$x|'x'|\"x\"|\\x|;|&&|(|)|{|}|`|$(|$((|))|[[|]]|[|]|<<E|\nE\n|\n|>|<|#|!|if|then|fi|do|done|case|"
    b"esac|for|in|while|=|a=1|'|\"|\\|\\\n| |\t|f()|~|*|&|*|$'|${x:-|<(|\r|\xff|\xc2\xa0|\0".split(b"|")
)
noise = st.one_of(
    st.binary(max_size=60), st.lists(tokens, max_size=12).map(b"".join), st.lists(tokens, max_size=12).map(b" ".join)
)


@functools.cache
def classified(line: bytes) -> Classification:
    """Return what a line of the tables is, judged once for all ways of writing it."""
    return classify_line(line)


def strictness(found: Classification) -> int:
    return CLASSES.index(found.strictest)


def as_strict(found: Classification, than: Classification) -> bool:
    return strictness(found) >= min(strictness(than), CLASSES.index("unknown"))


@pytest.mark.slow
@given(lines, rounds)
@settings(max_examples=examples(600), deadline=None)
def test_what_is_harmless_makes_no_command_milder(line: bytes, ways: list[bytes]) -> None:
    written = line
    for way in ways:
        if b"\n" in written and way.endswith(
            (b";;", b"; }", b"esac", b"fi", b"done", b"comment", b"&", b"; true", b"cat", b"ls")
        ):
            continue  # a here-document has to end on a line of its own
        written = way.replace(b"%s", written)
    assert as_strict(classify_line(written), classify_line(line)), written


@pytest.mark.slow
@pytest.mark.parametrize("way", half(ROUNDS), ids=repr)
def test_every_way_of_writing_keeps_every_command_strict(way: bytes) -> None:
    for line in ALL:
        written = way.replace(b"%s", line)
        assert as_strict(classify_line(written), classified(line)), written


@pytest.mark.slow
@pytest.mark.parametrize("way", [b"%s; true", b"%s && ls", b"( %s )", b"{ %s; }", b"time %s", b"%s | cat"], ids=repr)
def test_a_command_that_only_reads_still_does(way: bytes) -> None:
    """The other side: these are not called unknown only to be safe."""
    for classes, line in COMMANDS:
        if classes != ("read_only",) or b"\n" in line or line.endswith(b"&") or b"#" in line:
            continue
        if way == b"time %s" and (line.split()[0] in KEYWORDS or b"=" in line.split()[0] or not line[:1].isalpha()):
            continue  # the grammar takes time for a program, in front of which these cannot stand
        written = way.replace(b"%s", line)
        assert classify_line(written).strictest == "read_only", written


@pytest.mark.slow
@given(lines, st.sampled_from(PREFIXES))
@settings(max_examples=examples(200), deadline=None)
def test_a_program_in_front_makes_no_command_milder(line: bytes, prefix: list[bytes]) -> None:
    plain = classify_words([b"bash", b"-c", line])
    assert as_strict(classify_words([*prefix, b"bash", b"-c", line]), plain)


@pytest.mark.slow
@given(lines, st.data())
@settings(max_examples=examples(300), deadline=None)
def test_quotes_make_no_command_milder(line: bytes, data: st.DataObject) -> None:
    """Letters of its words quoted in one way or another: the same words for bash."""
    if any(mark in line for mark in b"'\"\\#`$<>(){}[]~*?=;|&!\n%"):
        return
    words = [
        data.draw(st.sampled_from((b"%s", b"'%s'", b'"%s"', b"$'%s'", b"\\%s", b"''%s"))) % word
        for word in line.split()
    ]
    assert classify_line(b" ".join(words)).classes == classify_line(line).classes


@pytest.mark.slow
@given(noise)
@settings(max_examples=examples(800), deadline=None)
def test_nothing_raises(line: bytes) -> None:
    assert classify_line(line).classes
    assert classify_words([line]).classes
    assert classify_words(line.split(b" ")).classes


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
@pytest.mark.slow
@given(
    st.one_of(
        noise, st.tuples(lines, tokens, st.integers(0, 40)).map(lambda it: it[0][: it[2]] + it[1] + it[0][it[2] :])
    )
)
@settings(max_examples=examples(250), deadline=None, derandomize=True)
def test_what_bash_refuses_is_not_read_only(line: bytes) -> None:
    if b"\0" in line:
        return
    refused = subprocess.run(["bash", "--norc", "-n", "-c", line], capture_output=True, check=False).returncode != 0
    if refused:
        assert classify_line(line).strictest != "read_only", line


@pytest.mark.slow
@pytest.mark.parametrize(
    "line",
    half(
        [
            b"(" * 10_000 + b"ls" + b")" * 10_000,
            b"(" * 100_000,
            b"echo " + b"$(" * 10_000 + b"ls" + b")" * 10_000,
            b'echo "$(' * 5_000,
            b"{ " * 20_000,
            b"if " * 20_000,
            b"[[ " * 5_000,
            b"((" * 5_000,
            b"echo $((" + b"(" * 5_000 + b"1",
            b"echo " + b"${x:-" * 5_000,
            b"cat " + b"<<A " * 3_000,
            b"case x in " * 4_000,
            b"`" * 9_999,
            b"'" * 9_999,
            b"\\" * 99_999,
            b"ls && " * 20_000 + b"rm",
            b"ls | " * 20_000 + b"rm",
            b"sudo " * 20_000 + b"ls",
            b"env " * 20_000 + b"ls",
            b"! " * 20_000 + b"ls",
            b"eval " * 5_000 + b"ls",
            b"bash -c " * 5_000 + b"ls",
            b"echo " + b"a " * 500_000,
            b"\0" * 1_000_000,
            bytes(range(256)) * 4_000,
            b"ls " + b"x" * 1_000_000,
        ]
    ),
    ids=lambda line: f"{line[:12]!r}...{len(line)}",
)
def test_deep_and_long_lines_end_quickly(line: bytes) -> None:
    """Not read_only, and in far less than a second each: the whole file would not end otherwise."""
    assert classify_line(line).strictest != "read_only"
    assert classify_words([b"bash", b"-c", line]).strictest != "read_only"
    assert classify_words(line.split()).classes


def test_a_long_line_still_shows_what_aims_past_the_sandbox() -> None:
    assert "host_escape_risk" in classify_line(b"echo " + b"a " * 200_000 + b"; sudo ls").classes
    assert "host_escape_risk" in classify_line(b"sudo ls; echo " + b"a " * 500_000).classes
