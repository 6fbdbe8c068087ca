"""The terminal review: conflicts, forks that move or go, work that fails, time lines."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from clocks import give_way

pytest.importorskip("textual", reason="the extra tui is not installed")

from driving import Driver, drive, text_of_row

from conftest import Place, tick
from mudroom.core.settings import Settings
from mudroom.errors import MudroomError
from mudroom.ext.tui.conflict import ConflictScreen
from mudroom.ext.tui.dialog import Lines
from mudroom.ext.tui.key import REVIEW
from mudroom.ext.tui.review_model import ReviewModel
from satellites import needs

pytestmark = pytest.mark.slow
MIDDLE = "".join(f"{n}\n" for n in range(20))


@pytest.fixture
def conflicting(place: Place) -> str:
    """``text`` conflicts in two places, ``binary`` as a whole."""
    place.write("text", "one\n" + MIDDLE + "two\n")
    place.write("binary", b"\0base")
    _session, result = place.sh(
        "sed -i 's/^one$/one, the fork/; s/^two$/two, the fork/' text; printf '\\0fork' > binary; echo other > other"
    )
    place.write("text", "one, the project\n" + MIDDLE + "two, the project\n")
    place.write("binary", b"\0project")
    return result.fork


async def conflicts(driver: Driver) -> ConflictScreen:
    await driver.press("c")
    await driver.until(lambda: isinstance(driver.app.screen, ConflictScreen))
    screen = driver.app.screen
    assert isinstance(screen, ConflictScreen)
    return screen


async def apply(driver: Driver) -> str:
    await driver.ask("a", "Apply to")
    await driver.press("y")
    await driver.until(lambda: driver.dialog().startswith(("Applied", "Nothing was applied")))
    return driver.dialog()


def banner(driver: Driver) -> object:
    return driver.review.query_one("#banner").render()


def test_conflicts_stay_and_the_rest_is_applied(place: Place, conflicting: str) -> None:
    async def script(driver: Driver) -> None:
        await driver.by_directory()
        assert [row for row in driver.listed() if " C" in row] == driver.listed()[:1] + driver.listed()[2:]
        told = await apply(driver)
        assert "C conflict, stays in the fork:" in told and "  text: " in told

    app = drive(place, conflicting, script)
    assert app.code == 3 and (place.project / "other").exists()
    assert (place.project / "binary").read_bytes() == b"\0project"


def test_a_conflict_whose_texts_do_not_meet_is_one_of_whole_files(place: Place) -> None:
    """Both have changed the mode, and other lines."""
    place.write("text", "one\n" + MIDDLE + "two\n")
    _session, result = place.sh("sed -i 's/^one$/one, the fork/' text; chmod 700 text")
    place.write("text", "one\n" + MIDDLE + "two, the project\n", mode=0o755)

    async def script(driver: Driver) -> None:
        screen = await conflicts(driver)
        assert screen.places == 0
        shown = [text_of_row(screen.query_one(f"#{side}", Lines), 0) for side in ("base", "ours", "theirs")]
        assert [words[-4:] for words in shown] == ["0644", "0755", "0700"]
        await driver.press("2")
        await driver.until(lambda: screen.conflict.decided)
        await driver.press("escape")
        assert "Applied" in await apply(driver)

    drive(place, result.fork, script)
    assert (place.project / "text").read_text() == "one, the fork\n" + MIDDLE + "two\n"
    assert (place.project / "text").stat().st_mode & 0o777 == 0o700


def test_place_by_place_then_applied(place: Place, conflicting: str) -> None:
    async def script(driver: Driver) -> None:
        await driver.to_file(b"text")
        screen = await conflicts(driver)
        assert screen.conflict.path == b"text" and screen.places == 2
        await driver.press("1")
        assert not screen.changed, "one place of two is no decision"
        await driver.press("3")
        await driver.until(lambda: screen.conflict.path == b"binary")
        await driver.press("2")
        await driver.until(lambda: all(one.decided for one in screen.conflicts))
        await driver.press("escape")
        await driver.until(lambda: not any(" C" in row for row in driver.listed()))
        assert "conflict" not in await apply(driver)

    app = drive(place, conflicting, script)
    text = "one, the project\n" + MIDDLE + "two, the project\ntwo, the fork\n"
    assert app.code == 0 and (place.project / "text").read_text() == text
    assert (place.project / "binary").read_bytes() == b"\0fork"


def test_a_side_that_moves_is_looked_at_again(place: Place, conflicting: str) -> None:
    async def script(driver: Driver) -> None:
        screen = await conflicts(driver)
        assert screen.conflict.path == b"binary"
        place.write("binary", b"\0project, later")
        await driver.press("2")
        await driver.until(lambda: any("one side of binary has changed" in one for one in driver.told()))
        await driver.until(lambda: screen.conflict.ours.content == b"\0project, later")
        assert screen.conflict.path == b"binary" and not screen.conflict.decided
        await driver.press("2")
        await driver.until(lambda: any(one.decided for one in screen.conflicts))

    drive(place, conflicting, script)


@pytest.mark.parametrize("renamed", [False, True])
def test_a_secret_is_shown_to_nobody(place: Place, renamed: bool) -> None:
    """Nor where only one side has such a name for it."""
    token = "TOKEN=swordfish\n" + MIDDLE
    if renamed:
        place.write("notes", "one\n" + MIDDLE)
        _session, result = place.sh("sed -i 's/^one$/one, the fork/' notes")
        (place.project / "notes").rename(place.project / ".env").write_text(token)
    else:
        _session, result = place.sh("echo theirs > .env")
        place.write(".env", token)

    async def script(driver: Driver) -> None:
        screen = await conflicts(driver)
        rows = [text_of_row(pane, number) for pane in screen.query(Lines) for number in range(pane.count)]
        assert (screen.merged, screen.places) == (None, 0)
        assert "a secret: it is not shown" in repr(rows) and "swordfish" not in repr(rows)
        await driver.press("e")
        await driver.until(lambda: any("is a secret: it is not shown" in one for one in driver.told()))
        await driver.press("1")
        await driver.until(lambda: all(one.decided for one in screen.conflicts))

    drive(place, result.fork, script)


def test_a_decision_is_taken_back(place: Place, conflicting: str) -> None:
    async def script(driver: Driver) -> None:
        await driver.to_file(b"text")
        screen = await conflicts(driver)
        await driver.press("e")  # the driver of tests cannot be suspended, as that of a terminal in a browser
        told = f"no editor can be started from this terminal (mudroom resolve {conflicting} --edit)"
        await driver.until(lambda: told in driver.told())
        await driver.press("w", "2")
        await driver.until(lambda: any(one.decided for one in screen.conflicts))
        await driver.press("k")
        await driver.until(lambda: screen.conflict.path == b"text")
        await driver.press("u")
        await driver.until(lambda: not any(one.decided for one in screen.conflicts))

    drive(place, conflicting, script)
    session = place.session()
    assert not any(one.decided for one in session.changes.conflicts(conflicting))


@needs("merging")
def test_a_rule_merges_with_one_key(place: Place, conflicting: str) -> None:
    place.write("m.py", "import a\n")
    tick()
    place.session().run([b"sh", b"-c", b"printf 'import a\\nimport c\\n' > m.py"], fork=conflicting)
    place.write("m.py", "import a\nimport b\n")

    async def script(driver: Driver) -> None:
        screen = await conflicts(driver)
        assert screen.conflict.path == b"binary"
        await driver.press("r")
        await driver.until(lambda: "no rule merges it: 1, 2, 3 or 4 decides it" in driver.told())
        await driver.press("j")
        assert "r merges it by rule: union of imports" in str(screen.query_one("#what").render())
        await driver.press("r")
        await driver.until(lambda: screen.conflict.decided)
        assert screen.conflict.result == b"import a\nimport b\nimport c\n"
        assert "[decided: merged by rule: union of imports]" in str(screen.query_one("#what").render())

    drive(place, conflicting, script)


@needs("merging")
def test_a_lock_file_is_told_with_its_command(place: Place, conflicting: str) -> None:
    place.write("uv.lock", "")
    tick()
    place.session().run([b"sh", b"-c", b"echo 'version = 1' > uv.lock"], fork=conflicting)
    place.write("uv.lock", "version = 2\n")

    async def script(driver: Driver) -> None:
        screen = await conflicts(driver)
        while screen.conflict.path != b"uv.lock":
            await driver.press("j")
        assert "mudroom resolve --rule makes it again: uv lock" in str(screen.query_one("#what").render())
        await driver.press("r")
        told = f"a command makes it again: mudroom resolve {conflicting} uv.lock --rule"
        await driver.until(lambda: told in driver.told())
        assert not screen.conflict.decided

    drive(place, conflicting, script)


def test_both_of_what_cannot_be_merged(place: Place, conflicting: str) -> None:
    """The fork's comes beside the project's; that the fork holds more now is no news to whoever asked for it."""

    async def script(driver: Driver) -> None:
        screen = await conflicts(driver)
        assert screen.conflict.path == b"binary"
        await driver.press("3")
        await driver.until(lambda: screen.changed)
        await driver.press("escape")
        await driver.until(lambda: any("binary.theirs" in row for row in driver.listed()))
        await apply(driver)

    drive(place, conflicting, script)
    assert (place.project / "binary").read_bytes() == b"\0project"
    assert (place.project / "binary.theirs").read_bytes() == b"\0fork"


def test_a_fork_that_moves_is_not_applied(place: Place) -> None:
    session, result = place.sh("echo 1 > a; echo 1 > b")
    other = place.session()

    async def script(driver: Driver) -> None:
        driver.files.go(1)
        await driver.press("space")
        await driver.ask("a", "Apply to")
        other.run([b"sh", b"-c", b"echo 2 > a; echo 1 > c"], fork=result.fork)
        await driver.press("y")
        await driver.until(lambda: "has changed since it was shown" in str(driver.review.query_one("#banner").render()))
        assert not (place.project / "a").exists()
        await driver.press("a")
        assert not driver.dialog(), "not before it was looked at again"
        await driver.press("R")
        await driver.until(lambda: driver.files.count == 3)
        assert [row[1:4] for row in driver.listed()] == ["[x]", "[ ]", "[x]"]

    app = drive(place, result.fork, script, session=session)
    assert app.code == 4


def test_a_fork_that_moves_is_told_without_being_asked(place: Place) -> None:
    session, result = place.sh("echo 1 > a")
    other = place.session()

    async def script(driver: Driver) -> None:
        other.run([b"sh", b"-c", b"true"], fork=result.fork)
        other.run([b"sh", b"-c", b"echo 2 > a"], fork=result.fork)
        await driver.until(lambda: "has changed since" in str(driver.review.query_one("#banner").render()))

    drive(place, result.fork, script, session=session)


def test_a_fork_that_goes(place: Place) -> None:
    session, result = place.sh("echo 1 > a")
    other = place.session()

    async def script(driver: Driver) -> None:
        await driver.ask("a", "Apply to")
        other.forks.discard(result.fork)
        await driver.press("y")
        await driver.until(lambda: not driver.dialog())
        await driver.until(lambda: "is gone" in str(driver.review.query_one("#banner").render()))
        for key in ("space", "n", "a", "d", "c", "t", "A", "v", "R", "s", "x", "plus", "enter"):
            await driver.press(key)
            await driver.press("escape")

    drive(place, result.fork, script, session=session)
    assert not (place.project / "a").exists()


def test_somebody_else_has_the_vault(place: Place) -> None:
    session, result = place.sh("echo 1 > a")
    other = place.session()

    async def script(driver: Driver) -> None:
        with other.alone("somebody \x1b]0;else"):
            await driver.ask("a", "Apply to")
            await driver.press("y")
            await driver.until(lambda: "waiting for somebody \\x1b]0;else to end; Esc gives up" in driver.dialog())
            await driver.press("escape")
            await driver.until(lambda: not driver.dialog())
            told = "nothing was done: another process is at work in this project (try again when it has ended)"
            await driver.until(lambda: told in driver.told())
        assert not (place.project / "a").exists()
        assert "applied" in (await apply(driver)).lower()

    drive(place, result.fork, script, session=session)
    assert (place.project / "a").exists()


def test_the_result_is_tried_out_first(place: Place) -> None:
    settings = Settings(verify=(b"sh", b"-c", b"echo not good; exit 3"), verify_when="always")
    session, result = place.sh("echo 1 > a", settings)

    async def script(driver: Driver) -> None:
        question = await driver.ask("a", "Apply to")
        assert "the result is verified first: sh -c 'echo not good; exit 3'" in question
        await driver.press("y")
        await driver.until(lambda: driver.dialog().startswith("Nothing was applied"))
        assert "exited with 3" in driver.dialog() and "not good" in driver.dialog()

    app = drive(place, result.fork, script, session=session, verifies=settings.verify)
    assert app.code == 5 and not (place.project / "a").exists()


def test_discard(place: Place) -> None:
    session, result = place.sh("echo 1 > a")

    async def script(driver: Driver) -> None:
        await driver.ask("d", "Discard the fork")
        await driver.press("y")
        await driver.until(lambda: driver.app.says)

    app = drive(place, result.fork, script, session=session)
    assert app.says == f"discarded: {result.fork}" and session.vault.find(result.fork) is None


def test_what_comes_after_the_look_is_not_discarded(place: Place) -> None:
    session, result = place.sh("echo 1 > a")
    other = place.session()

    async def script(driver: Driver) -> None:
        await driver.ask("d", "Discard the fork")
        other.run([b"sh", b"-c", b"echo precious > b"], fork=result.fork)
        await driver.press("y")
        await driver.until(lambda: "nothing was discarded: R looks again" in str(banner(driver)))
        await driver.press("R")
        await driver.until(lambda: driver.files.count == 2)
        await driver.ask("d", "Discard the fork")
        await driver.press("y")
        await driver.until(lambda: driver.app.says)

    drive(place, result.fork, script, session=session)
    assert session.vault.find(result.fork) is None


def test_checkpoints_and_going_back(place: Place) -> None:
    session = place.session()
    session.run([b"sh", b"-c", b"echo 1 > a"], fork="f")
    session.forks.checkpoint("f", "green")
    session.run([b"sh", b"-c", b"echo 2 > b"], fork="f")

    async def script(driver: Driver) -> None:
        await driver.ask("t", "Checkpoints of f")
        assert "green" in driver.dialog()
        await driver.press("enter")
        await driver.until(lambda: driver.dialog().startswith("Roll f back to green?"))
        assert "deleted  b" in driver.dialog()
        await driver.press("y")
        await driver.until(lambda: driver.files.count == 1)
        assert not str(driver.review.query_one("#banner").render()), "it is no news to whoever did it"

    drive(place, "f", script, session=session)
    assert [change.path for change in place.session().changes.of("f").changes] == [b"a"]


def test_what_comes_after_the_preview_is_not_dropped(place: Place) -> None:
    session, other = place.session(), place.session()
    session.run([b"sh", b"-c", b"echo 1 > a; echo 1 > gone"], fork="f")
    session.forks.checkpoint("f", "green")
    session.run([b"sh", b"-c", b"echo 2 > b; rm gone; echo 2 > a"], fork="f")

    async def script(driver: Driver) -> None:
        await driver.ask("t", "Checkpoints of f")
        await driver.press("enter")
        await driver.until(lambda: driver.dialog().startswith("Roll f back to green?"))
        assert all(row in driver.dialog() for row in ("deleted  b", "added    gone", "modified a"))
        other.run([b"sh", b"-c", b"echo precious > c"], fork="f")
        await driver.press("y")
        await driver.until(lambda: any("nothing was rolled back" in one for one in driver.told()))

    drive(place, "f", script, session=session)
    assert b"c" in {change.path for change in place.session().changes.of("f").changes}


def test_the_journal_and_the_help(place: Place) -> None:
    session, result = place.sh("echo 1 > a")

    async def script(driver: Driver) -> None:
        assert (await driver.ask("l", "Journal")).splitlines()[1:] == ["run \\x1b[2J"]
        await driver.press("escape")
        shown = await driver.ask("question_mark", "Keys of the review")
        assert all(key.text in shown for key in REVIEW)

    drive(place, result.fork, script, session=session, tell=lambda event: event.kind + " \x1b[2J")


def test_of_several_forks_one_is_asked_for(place: Place) -> None:
    session = place.session()
    for name in ("first", "second"):
        session.run([b"sh", b"-c", b"echo 1 > " + name.encode()], fork=name)

    async def script(driver: Driver) -> None:
        await driver.until(lambda: "which fork?" in driver.dialog())
        assert "second  1 changed" in driver.dialog()
        await driver.press("k", "enter")
        await driver.until(lambda: len(driver.app.screen_stack) > 1 and driver.review.selection.seen is not None)
        assert "first" in driver.listed()[0]

    app = drive(place, None, script, session=session)
    assert app.fork == "first"


def test_names_and_lines_steer_nothing(place: Place) -> None:
    evil = b"\x1b]0;title\x07\n\xe2\x80\xaeeman\xff"
    session = place.session()
    session.forks.new("f")
    session.forks.files("f").write(evil, b"\x1b[2J\xe2\x80\xae\r\xff\n[/bold][@click=app.quit]x[/]\n")
    session.forks.flush("f")

    async def script(driver: Driver) -> None:
        for lines in (driver.listed(), driver.shown()):
            assert lines and all(line.isprintable() for line in lines)
        assert driver.shown()[0] == " \\x1b]0;title\\x07\\n\\u{202e}eman\\xff"
        assert driver.shown()[-2].endswith("+\\x1b[2J\\u{202e}\\r\\xff")
        assert driver.shown()[-1].endswith("+[/bold][@click=app.quit]x[/]")
        await apply(driver)

    drive(place, "f", script, session=session)
    assert (place.project / os.fsdecode(evil)).exists()


def test_names_of_blanks_are_seen(place: Place) -> None:
    session = place.session()
    session.forks.new("f")
    for blank in (b" ", b"dir /  x ", "\u3000".encode(), "\u2800".encode(), "\u200b".encode()):
        session.forks.files("f").write(blank, b"x\n")
    session.forks.flush("f")

    async def script(driver: Driver) -> None:
        names = {word for line in driver.listed() for word in line.split()}
        assert {r"\x20", r"dir\x20/", r"\x20\x20x\x20", r"\u{3000}", r"\u{2800}", r"\u{200b}"} <= names
        marked = {
            part
            for number in range(driver.files.count)
            for part, style in driver.files.row(number, 60)
            if style == "odd"
        }
        assert marked == {r"\x20", r"\u{3000}", r"\u{2800}", r"\u{200b}"}
        await driver.to_file(b"dir /  x ")
        assert driver.shown()[0] == r" dir\x20/\x20\x20x\x20"

    drive(place, "f", script, session=session)


def test_a_command_that_runs_in_the_fork(place: Place) -> None:
    """What it changes is not there yet, its end is not waited for, and nothing is applied meanwhile."""
    session, result = place.sh("echo 1 > a")
    other = place.session()
    command = threading.Thread(target=lambda: other.run([b"sh", b"-c", b"exec sleep 1000"], fork=result.fork))
    command.start()

    async def script(driver: Driver) -> None:
        await driver.until(lambda: "is running (" in str(driver.review.query_one("#banner").render()))
        assert driver.listed()[0].split() == ["▌[x]", "+", "a", "+1"]
        await driver.ask("a", "Apply to")
        await driver.press("y")
        await driver.until(lambda: any("running" in told for told in driver.told()))
        assert not (place.project / "a").exists()

    try:
        while session.vault.fork(result.fork).interrupted is None:
            assert command.is_alive()
            give_way()
        drive(place, result.fork, script, session=session)
    finally:
        other.interrupt(signal.SIGKILL)
        command.join()


def test_what_cannot_be_done_is_told(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    session, result = place.sh("echo 1 > a")

    async def script(driver: Driver) -> None:
        model = driver.review.model
        for error in (MudroomError("no \x1b[2J room", "make some"), OSError(28, "No space left", b"/x\x1b")):
            monkeypatch.setattr(model, "last_apply", Raising(error))
            await driver.press("u")
        await driver.until(lambda: len(driver.told()) == 2)
        assert driver.told()[0] == "no \\x1b[2J room (make some)"
        assert driver.told()[1] == "/x\\x1b: No space left"
        await driver.press("l")
        await driver.until(lambda: "Journal" in driver.dialog())

    drive(place, result.fork, script, session=session)


class Raising:
    def __init__(self, error: Exception) -> None:
        self.error = error

    def __call__(self) -> None:
        raise self.error


def test_what_was_left_unfinished_is_dealt_with_and_said(place: Place) -> None:
    session, result = place.sh("echo 1 > a")
    model = ReviewModel(session, result.fork)
    outcome = SimpleNamespace(name="u1", fork="old", outcome="finished")

    @contextmanager
    def alone(*_words: object, **_more: object) -> Iterator[list[SimpleNamespace]]:
        yield [outcome]

    session.alone = alone  # type: ignore[assignment, method-assign]
    assert model.alone("it", lambda: 7) == 7
    assert model.recovered == ["apply u1 of old was cut off in the middle; it is finished now"]
    model.close()
