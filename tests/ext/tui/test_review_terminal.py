"""``mudroom review`` in a real terminal, as a person sees it."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tiers import daily

pytest.importorskip("textual", reason="the extra tui is not installed")

from conftest import Place
from tmux import Tmux

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not shutil.which("tmux"), reason="tmux is not installed"),
]

NUMBERS = "".join(f"line {number}\n" for number in range(1, 61))
SIZES = [(80, 24), (140, 40)]
Open = Callable[..., Tmux]


@pytest.fixture
def open_tmux(place: Place) -> Iterator[Open]:
    opened: list[Tmux] = []

    def start(columns: int = 80, rows: int = 24, **environment: str) -> Tmux:
        opened.append(Tmux(place, columns, rows, **environment))
        return opened[-1]

    yield start
    for one in opened:
        one.close()


@pytest.fixture
def staged(place: Place) -> None:
    place.write("text", NUMBERS)
    place.write("both", "one\ntwo\nthree\n")
    session = place.session()
    script = (
        "sed -i 's/line 10$/line ten/; s/line 50$/line fifty/' text; sed -i 's/two/two, the fork/' both; echo 1 > new"
    )
    session.run([b"sh", b"-c", script.encode()], fork="f")
    place.write("both", "one\ntwo, the project\nthree\n")


def back(tmux: Tmux, told: str) -> None:
    """Close what tells that. A key that comes at once after Escape would be one with it."""
    tmux.keys("Escape")
    tmux.until(lambda seen: told not in seen)


@pytest.mark.parametrize(("columns", "rows"), daily(SIZES))
def test_one_hunk_then_a_conflict_then_undo(
    place: Place, staged: None, open_tmux: Open, columns: int, rows: int
) -> None:
    tmux = open_tmux(columns, rows)
    tmux.mudroom("review", "f")
    seen = tmux.until("3 of 3 chosen")
    assert "project / f" in seen and "[Sandboxed: safe to edit]" in seen and "1 conflict" in seen
    tmux.keys("N")
    tmux.until("0 of 3 chosen")
    tmux.keys("G")
    tmux.until("+line ten")
    tmux.keys("Tab", "n", "Space")
    tmux.until("1 of 3 chosen")
    tmux.keys("a")
    tmux.until("1 of them in part")
    tmux.keys("y")
    tmux.until("1 written")
    assert (place.project / "text").read_text() == NUMBERS.replace("line 50\n", "line fifty\n")
    assert not (place.project / "new").exists()
    back(tmux, "1 written")
    tmux.until("0 of 3 chosen")

    tmux.keys("c")
    seen = tmux.until("the fork's")
    assert "two, the project" in seen and "two, the fork" in seen
    tmux.keys("3")
    tmux.until("[decided: merged]")
    tmux.keys("Escape")
    tmux.until(lambda seen: "0 of 3 chosen" in seen and "1 conflict" not in seen)
    tmux.keys("A", "a")
    tmux.until("3 of 3 changed files")
    tmux.keys("y")
    tmux.until("3 written")
    assert (place.project / "both").read_text() == "one\ntwo, the project\ntwo, the fork\nthree\n"
    back(tmux, "3 written")
    assert "the fork holds no changes" in tmux.screen()

    tmux.keys("u")
    tmux.until("Take the last apply back")
    tmux.keys("y")
    tmux.until("brought back")
    assert (place.project / "both").read_text() == "one\ntwo, the project\nthree\n"
    back(tmux, "brought back")
    tmux.keys("q")
    seen = tmux.until("icanon")
    assert "ended 0" in seen and " icanon" in seen and "project / f" not in seen


def test_quitting_says_what_stays(place: Place, staged: None, open_tmux: Open) -> None:
    tmux = open_tmux()
    tmux.mudroom("review")
    tmux.until("3 of 3 chosen")
    tmux.keys("q")
    assert "nothing was applied; all stays in f: mudroom review f" in tmux.until("ended 0")


def test_what_stays_in_conflict_is_the_exit_code(place: Place, staged: None, open_tmux: Open) -> None:
    tmux = open_tmux()
    tmux.mudroom("review", "f")
    tmux.until("3 of 3 chosen")
    tmux.keys("a")
    tmux.until("C conflicts, and stays in the fork")
    tmux.keys("y")
    tmux.until("2 written")
    back(tmux, "2 written")
    tmux.keys("q")
    assert "the rest stays in f" in tmux.until("ended 3")


def test_another_size(place: Place, staged: None, open_tmux: Open) -> None:
    tmux = open_tmux(140, 40)
    tmux.mudroom("review", "f")
    tmux.until("3 of 3 chosen")
    tmux.keys("G", "Tab", "s")
    tmux.until(lambda seen: any("-line 10 " in row and "+line ten" in row for row in seen.splitlines()))
    tmux.resize(60, 15)
    seen = tmux.until(lambda seen: "+line ten" in seen and "? help" in seen)
    assert not any("-line 10" in row and "+line ten" in row for row in seen.splitlines())
    tmux.resize(20, 4)
    tmux.resize(100, 30)
    tmux.until(lambda seen: "3 of 3 chosen" in seen and "line 12" in seen)
    tmux.keys("q")
    tmux.until("ended 0")


def test_a_name_does_nothing_to_the_terminal(place: Place, open_tmux: Open) -> None:
    name = b"\x1b]2;taken over\x07\x1b[2J\n\xe2\x80\xaename\xff"
    session = place.session()
    session.forks.new("f")
    session.forks.files("f").write(name, b"\x1b[31m\x1b]2;taken over\x07\xe2\x80\xaetext\r\xff\n")
    session.forks.flush("f")
    tmux = open_tmux(100, 30)
    title = tmux("display-message", "-p", "#{pane_title}")
    tmux.mudroom("review", "f")
    seen = tmux.until("taken over")
    assert "\\x1b]2;taken over\\x07\\x1b[2J\\n\\u{202e}name\\xff" in seen
    assert "+\\x1b[31m\\x1b]2;taken over\\x07\\u{202e}text\\r\\xff" in seen and "\u202e" not in seen
    assert tmux("display-message", "-p", "#{pane_title}") == title
    tmux.keys("a")
    tmux.until("Apply to")
    tmux.keys("y")
    tmux.until("1 written")
    assert (place.project / os.fsdecode(name)).exists()


def test_an_editor_of_the_users_own(place: Place, staged: None, open_tmux: Open) -> None:
    editor = place.root / "editor"
    editor.write_text('#!/bin/sh\necho editing; read word; echo "$word" > "$1"\n')
    editor.chmod(0o755)
    tmux = open_tmux(100, 30, EDITOR=str(editor))
    edits(tmux)
    tmux.type("by hand")
    tmux.until("[decided: merged]")
    tmux.keys("Escape")
    tmux.until("3 of 3 chosen")
    tmux.keys("a")
    tmux.until("Apply to")
    tmux.keys("y")
    tmux.until("3 written")
    assert (place.project / "both").read_text() == "by hand\n"


def edits(tmux: Tmux) -> None:
    """A review of f, and the editor in it."""
    tmux.mudroom("review", "f")
    tmux.until("3 of 3 chosen")
    tmux.keys("c")
    tmux.until("not decided")
    tmux.keys("4")
    tmux.until("editing")


def test_ctrl_c_in_the_editor_is_the_editors(place: Place, staged: None, open_tmux: Open) -> None:
    """As in vi, where it ends the insert mode: the review is still there afterwards."""
    editor = place.root / "editor"
    editor.write_text('#!/bin/sh\ntrap \'echo heard\' INT\necho editing\nread word || read word\necho "$word" > "$1"\n')
    editor.chmod(0o755)
    tmux = open_tmux(100, 30, EDITOR=str(editor))
    edits(tmux)
    tmux.keys("C-c")
    tmux.until("heard")
    tmux.type("by hand")
    tmux.until("[decided: merged]")


@pytest.mark.parametrize("number", daily([signal.SIGTERM, signal.SIGHUP]))
def test_a_review_that_is_ended_while_somebody_edits_tells_what_is_kept(
    place: Place, staged: None, open_tmux: Open, number: signal.Signals
) -> None:
    editor = place.root / "editor"
    editor.write_text('#!/bin/sh\necho precious > "$1"; echo editing; exec sleep 60\n')
    editor.chmod(0o755)
    tmux = open_tmux(100, 30, EDITOR=str(editor), TMPDIR=str(place.root))
    edits(tmux)
    (review,) = Path(f"/proc/{tmux.pid()}/task/{tmux.pid()}/children").read_text().split()
    os.kill(int(review), number)
    seen = "".join(tmux.until("icanon").split())  # the lines are broken at blanks, and a long path anywhere
    assert f"ended{128 + number}" in seen and "icanon" in seen
    (kept,) = place.root.glob("mudroom-*/kept")
    assert kept.read_text() == "precious\n" and f"whatwaswritteniskept:{kept}" in seen


def test_ctrl_c_in_the_pager_is_the_pagers(place: Place, staged: None, open_tmux: Open) -> None:
    pager = place.root / "pager"
    pager.write_text("#!/bin/sh\ntrap 'echo heard' INT\necho paging\ncat > /dev/null\n"
                     "read word </dev/tty || read word </dev/tty\necho \"seen $word\"\n")  # fmt: skip
    pager.chmod(0o755)
    tmux = open_tmux(100, 30, PAGER=str(pager))
    tmux.mudroom("diff", "f")
    tmux.until("paging")
    tmux.keys("C-c")
    tmux.until("heard")
    assert "ended" not in tmux.screen().replace("; echo ended", "")
    tmux.type("it all")
    assert "seen it all" in tmux.until("ended 0")


def test_ctrl_c_leaves(place: Place, staged: None, open_tmux: Open) -> None:
    tmux = open_tmux()
    tmux.mudroom("review", "f")
    tmux.until("3 of 3 chosen")
    tmux.keys("C-c")
    assert " icanon" in tmux.until("icanon")


@pytest.mark.parametrize("number", daily([signal.SIGTERM, signal.SIGHUP]))
def test_the_terminal_is_as_it_was_whoever_ends_it(
    place: Place, staged: None, open_tmux: Open, number: signal.Signals
) -> None:
    tmux = open_tmux()
    tmux.mudroom("review", "f")
    tmux.until("3 of 3 chosen")
    tmux.keys("a")
    tmux.until("Apply to")
    (review,) = Path(f"/proc/{tmux.pid()}/task/{tmux.pid()}/children").read_text().split()
    os.kill(int(review), number)
    seen = tmux.until("icanon")
    assert f"ended {128 + number}" in seen and " icanon" in seen and "Apply to" not in seen
    assert not (place.project / "new").exists()


@pytest.mark.parametrize("end", daily(["Escape", "signal"]))
def test_a_result_that_is_being_tried_out_can_be_ended(place: Place, staged: None, open_tmux: Open, end: str) -> None:
    """Its output is seen as it comes; then nothing is applied, and nothing of it is left."""
    place.write(".mudroom/policy.yaml", "verify:\n  command: echo trying it; exec sleep 1000\n  when: always\n")
    tmux = open_tmux(100, 30)
    tmux.mudroom("review", "f")
    tmux.until("3 of 3 chosen")
    tmux.keys("a")
    tmux.until("the result is verified first")
    tmux.keys("y")
    tmux.until("Esc ends it")
    tmux.until(lambda seen: any(row.strip(" │") == "trying it" for row in seen.splitlines()))
    if end == "Escape":
        tmux.keys("Escape")
        tmux.until("the project is as it")  # the line goes on below it
        back(tmux, "the project is as it")
        tmux.keys("q")
        assert "nothing was applied; all stays in f" in tmux.until("ended 5")
    else:
        (review,) = Path(f"/proc/{tmux.pid()}/task/{tmux.pid()}/children").read_text().split()
        os.kill(int(review), signal.SIGTERM)
        assert f"ended {128 + signal.SIGTERM}" in tmux.until("icanon")
    assert not (place.project / "new").exists() and (place.project / "text").read_text() == NUMBERS
    session = place.session()
    assert [fork.name for fork in session.vault.forks()] == ["f"] and not session.vault.has_unfinished()


def test_a_terminal_that_is_closed(place: Place, staged: None, open_tmux: Open) -> None:
    tmux = open_tmux()
    tmux.mudroom("review", "f")
    tmux.until("3 of 3 chosen")
    (review,) = Path(f"/proc/{tmux.pid()}/task/{tmux.pid()}/children").read_text().split()
    descriptor = os.pidfd_open(int(review))
    tmux("kill-server")
    import select

    assert select.select([descriptor], [], [], 30)[0], "it has ended"
    os.close(descriptor)
    assert place.session().changes.of("f").changes


def test_a_terminal_that_is_closed_while_somebody_edits(place: Place, staged: None, open_tmux: Open) -> None:
    """What was written is kept, and mudroom ends: in a review, and without one."""
    editor = place.root / "editor"
    editor.write_text('#!/bin/sh\necho precious > "$1"; echo editing; exec sleep 60\n')
    editor.chmod(0o755)
    import select

    for number, words in enumerate((["review", "f"], ["resolve", "f", "both", "--edit"])):
        temporary = place.root / f"temporary{number}"
        temporary.mkdir()
        tmux = open_tmux(100, 30, EDITOR=str(editor), TMPDIR=str(temporary))
        if words[0] == "review":
            edits(tmux)
        else:
            tmux.mudroom(*words)
            tmux.until("editing")
        (mudroom,) = Path(f"/proc/{tmux.pid()}/task/{tmux.pid()}/children").read_text().split()
        descriptor = os.pidfd_open(int(mudroom))
        tmux("kill-server")
        assert select.select([descriptor], [], [], 30)[0], "it has ended"
        os.close(descriptor)
        assert [path.read_text() for path in temporary.rglob("*") if path.is_file()] == ["precious\n"]
        assert len(list(temporary.glob("mudroom-*/kept"))) == 1


def test_without_colours(place: Place, staged: None, open_tmux: Open) -> None:
    tmux = open_tmux(NO_COLOR="1")
    tmux.mudroom("review", "f")
    tmux.until("3 of 3 chosen")
    import re

    colours = re.findall(r"\x1b\[([0-9;]*)m", tmux("capture-pane", "-p", "-e"))
    for code in colours:
        for found in re.findall(r"[34]8;2;(\d+);(\d+);(\d+)", code):
            assert len(set(found)) == 1, "shades of grey at most"


@pytest.mark.deep
def test_a_try_is_compared_reviewed_and_left(open_tmux: Open, place: Place) -> None:
    place.write("a.py", "one\ntwo\n")
    script = "printf 'one\\n%s\\n' \"$1\" > a.py"
    tmux = open_tmux(100, 24)
    tmux.mudroom("try", "-n", "2", "--judge", "grep -q 2 a.py", "--", "sh", "-c", script, "sh", "{i}")
    tmux.until("mudroom try discard t1")
    tmux.mudroom("review", "t1")
    tmux.until("where the candidates differ")
    seen = tmux.until("hunk 1 of 1")
    assert "left: attempt 2   right: attempt 1" in seen and "2 +1" in seen
    tmux.keys("Enter")
    tmux.until("t1-2  [Sandboxed: safe to edit]  1 of 1 chosen")
    tmux.keys("b")
    tmux.until("where the candidates differ")
    tmux.keys("q")
    tmux.until("nothing was applied")
    assert (place.project / "a.py").read_text() == "one\ntwo\n"
