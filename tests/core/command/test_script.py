"""Which files a command runs, wherever it goes and however it names them; and when that cannot be told."""

from __future__ import annotations

import pytest

from mudroom.core.approval.fingerprint import Uncovered, digests
from mudroom.core.command.program.classification import classify_words
from tiers import each

FILES = {
    b"/p/x.sh": b"0",
    b"/p/a/x.sh": b"1",
    b"/p/a/b/x.sh": b"2",
    b"/p/d/Makefile": b"3",
    b"/p/d/x.mk": b"4",
    b"/p/n/package.json": b"5",
}
BASH = (b"bash", b"-c")


def covered(*words: bytes, outside: tuple[bytes, ...] = ()) -> list[bytes]:
    parts = classify_words(words, project=b"/p", cwd=b"/p").parts
    found = digests(parts, words, b"/p", lambda path, _limit: FILES.get(path), lambda path: path.startswith(outside))
    return [path for path, _digest in found]


@each(
    ("words", "path"),
    [
        ((*BASH, b"cd a && cd b && sh x.sh"), b"/p/a/b/x.sh"),
        ((*BASH, b"cd a && cd b && ./x.sh"), b"/p/a/b/x.sh"),
        ((*BASH, b"pushd a; pushd b; bash x.sh"), b"/p/a/b/x.sh"),
        ((*BASH, b"cd -- a/b && ./x.sh"), b"/p/a/b/x.sh"),
        ((*BASH, b"cd -P a/b && ./x.sh"), b"/p/a/b/x.sh"),
        ((*BASH, b"builtin cd a/b && ./x.sh"), b"/p/a/b/x.sh"),
        ((b"env", b"-C", b"a/b", b"sh", b"x.sh"), b"/p/a/b/x.sh"),
        ((b"env", b"-Ca/b", b"sh", b"x.sh"), b"/p/a/b/x.sh"),
        ((b"env", b"--chdir=a/b", b"./x.sh"), b"/p/a/b/x.sh"),
        ((b"env", b"--chdir", b"a/b", b"./x.sh"), b"/p/a/b/x.sh"),
        ((*BASH, b"sh < a/x.sh"), b"/p/a/x.sh"),
        ((*BASH, b"cd a; bash -c 'sh <\"b/x.sh\"'"), b"/p/a/b/x.sh"),
        ((b"awk", b"-fx.sh"), b"/p/x.sh"),
        ((b"bash", b"--rcfile=x.sh", b"-i"), b"/p/x.sh"),
        ((b"make", b"-fd/x.mk"), b"/p/d/x.mk"),
        ((b"make", b"-f", b"d/x.mk"), b"/p/d/x.mk"),
        ((b"make", b"-Cd"), b"/p/d/Makefile"),
        ((b"make", b"-kC", b"d", b"-f", b"x.mk"), b"/p/d/x.mk"),
        ((b"make", b"--directory=d"), b"/p/d/Makefile"),
        ((b"npm", b"--prefix=n", b"test"), b"/p/n/package.json"),
        ((b"python3", *(b"-W", b"ignore") * 50, b"x.sh"), b"/p/x.sh"),
    ],
)
def test_what_is_run_is_covered(words: tuple[bytes, ...], path: bytes) -> None:
    assert path in covered(*words)


@each(
    "line",
    [
        b"sh ./*.sh", b"sh ./x.s?", b"sh {x,y}.sh", b"sh $X", b". $X", b"D=a/b; cd $D && sh x.sh", b"D=a; $D/x.sh",
        b"cd; sh x.sh", b"sh < $X", b"ls | xargs python3", b"make -f $X", b"git -C $X status",
        b"cd 1; cd 2; cd 3; cd 4; cd 5; cd 6; cd 7; cd 8; cd 9; sh x.sh",
    ],
)  # fmt: skip
def test_what_cannot_be_told_is_not_approved(line: bytes) -> None:
    with pytest.raises(Uncovered):
        covered(*BASH, line)


@each(
    ("line", "paths"),
    [
        (b"sh x.sh *.txt", [b"/p/x.sh"]),
        (b"sh -c 'echo \"$1\"' _ $X", []),
        (b"sh x.sh < $X", [b"/p/x.sh"]),
        (b'git commit x.sh -m "$X"', [b"/p/x.sh"]),
        (b"while read one; do echo x.sh; done < $X", [b"/p/x.sh"]),
        (b"rm -f x.sh $X", [b"/p/x.sh"]),
        (b"perl -pe 's/a/b/' x.sh *.c", [b"/p/x.sh"]),
    ],
)
def test_other_words_may_be_unknown(line: bytes, paths: list[bytes]) -> None:
    assert covered(*BASH, line) == paths


@each(
    "words",
    [
        (b"sh", b"/tmp/x.sh"),
        (b"/tmp/x.sh",),
        (b"timeout", b"5", b"/tmp/x.sh"),
        (b"bash", b"-e", b"-o", b"pipefail", b"/tmp/x.sh"),
        (b"awk", b"-f/tmp/x.awk"),
        (b"make", b"-C", b"/tmp/x"),
        (b"make", b"-f", b"/tmp/x.mk"),
        (b"pip", b"install", b"/tmp/x"),
        (*BASH, b"cd /tmp && ./x.sh"),
        (*BASH, b"sh < /tmp/x.sh"),
        (*BASH, b"source /tmp/x.sh"),
        (*BASH, b"cat /tmp/x.sh | sh -x"),
    ],
)
def test_what_lies_where_commands_write_cannot_be_approved_if_it_is_run(words: tuple[bytes, ...]) -> None:
    with pytest.raises(Uncovered, match="/tmp/"):
        covered(*words, outside=(b"/tmp/",))


@each(
    "words",
    [
        (b"sh", b"x.sh", b"/tmp/out"),
        (b"python3", b"-u", b"x.sh", b"--out", b"/tmp/out"),
        (b"bash", b"-eu", b"x.sh", b"/tmp/out"),
        (b"find", b"/tmp/x", b"-delete"),
        (*BASH, b"python3 --version; rm /tmp/x"),
        (b"rm", b"-rf", b"/tmp/x"),
        (b"git", b"clone", b"x.sh", b"/tmp/x"),
        (*BASH, b"sh x.sh < /tmp/data > /tmp/out"),
        (b"timeout", b"5", b"./x.sh", b"/tmp/out"),
    ],
)
def test_what_is_only_named_may_lie_there(words: tuple[bytes, ...]) -> None:
    assert covered(*words, outside=(b"/tmp/",)) in ([b"/p/x.sh"], [])


@pytest.mark.parametrize(
    "words",
    [
        (*BASH, b"../out/a; ls"),
        (b"sh", b"-ec", b"../out/a; ls", b"../out/b"),
        (b"python3", b"-uc", b"../out/a"),
        (b"perl", b"-ne", b"../out/a"),
    ],
)
def test_a_line_of_code_is_no_path(words: tuple[bytes, ...]) -> None:
    """It was named as a script that lies outside: "/p/../out/a; ls would be run"."""
    line = classify_words(words, project=b"/p", cwd=b"/p").parts[0]._replace(words=words, complete=True)
    assert digests((line,), words, b"/p", lambda _path, _limit: None, lambda path: b"out" in path) == ()


@pytest.mark.parametrize(
    "words",
    [
        (b"sh", b"-e", b"../out/a"),
        (b"sh", b"-o", b"../out/a"),
        (b"perl", b"-Mre", b"../out/a"),
        (b"perl", b"-c", b"../out/a"),
        (b".", b"-c", b"../out/a"),
    ],
)
def test_a_script_behind_an_option_is_still_one(words: tuple[bytes, ...]) -> None:
    with pytest.raises(Uncovered, match="would be run"):
        covered(*words, outside=(b"/p/../out",))
