"""The terminal review: the candidates of a try, two of them side by side, and the way to the review of one and back."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

pytest.importorskip("textual", reason="the extra tui is not installed")

from driving import Driver, drive, text_of_row

from conftest import Place, tick
from mudroom.ext.attempts.record import save
from mudroom.ext.tui.app import ReviewApp, ReviewScreen
from mudroom.ext.tui.candidate_screen import CandidateList, CandidateScreen
from mudroom.ext.tui.diffview import DiffView
from trying import project, tried

__all__ = ["project"]  # a fixture

SAME = "sed -i s/two/2/ a.py; echo x > new"
OTHER = "sed -i s/two/TWO/ a.py; echo x > new; rm b.py"


class Candidates:
    """The screen of candidates, and what a test wants to know of it."""

    def __init__(self, driver: Driver) -> None:
        self.driver = driver

    @property
    def screen(self) -> CandidateScreen:
        return next(screen for screen in self.driver.app.screen_stack if isinstance(screen, CandidateScreen))

    def rows(self) -> list[str]:
        pane = self.screen.candidates
        return [text_of_row(pane, number).rstrip() for number in range(pane.count)]

    def paths(self) -> list[str]:
        pane = self.screen.paths
        return [text_of_row(pane, number).rstrip() for number in range(pane.count)]

    def shown(self) -> list[str]:
        pane = self.screen.diff
        return [text_of_row(pane, number).rstrip() for number in range(pane.count)]

    def text(self, name: str) -> str:
        return str(self.screen.query_one(f"#{name}").render())

    async def until(self, condition: Callable[[], object]) -> None:
        try:
            await self.driver.until(condition)
        except AssertionError as error:
            raise AssertionError(self.rows(), self.paths(), self.shown(), self.text("banner")) from error

    async def press(self, *keys: str) -> None:
        await self.driver.press(*keys)


def compare(
    place: Place, script: Callable[[Candidates], Awaitable[None]], size: tuple[int, int] = (100, 30)
) -> ReviewApp:
    async def story(driver: Driver) -> None:
        await driver.until(lambda: isinstance(driver.app.screen, CandidateScreen))
        candidates = Candidates(driver)
        await driver.until(lambda: candidates.screen.seen is not None and candidates.shown())
        await script(candidates)

    return drive(place, None, story, tried="t1", size=size)


def test_the_candidates_the_paths_and_two_sides(project: Place) -> None:
    tried(project, [OTHER, SAME, SAME])

    async def story(found: Candidates) -> None:
        assert found.text("heading").split() == ["attempts", "fork", "judge", "score", "files", "lines", "seconds"]
        assert [row.split()[:3] for row in found.rows()] == [["▌1", "*", "2,"], ["2", "1", "t1-1"]]
        assert found.paths() == [f"▌a.py{'2|1':>{found.screen.paths.size.width - 5}}"]
        assert "1 of 3 paths: where the candidates differ" in found.text("top")
        await found.until(lambda: any("-2" in line for line in found.shown()))
        lines = found.shown()
        assert lines[:2] == ["▌a.py", " left: attempt 2   right: attempt 1"] or lines[1].endswith("right: attempt 1")
        assert [line.split()[-1] for line in lines[3:]] == ["one", "-2", "+TWO"]
        assert "[ ]" not in "".join(lines), "nothing can be chosen here"
        await found.press("1")
        await found.until(lambda: any("left: attempt 1 " in line for line in found.shown()))
        assert any("both sides are the same" in line for line in found.shown())
        await found.press("1")
        await found.until(lambda: any("left: the original" in line for line in found.shown()))
        await found.until(lambda: any("-two" in line for line in found.shown()))
        await found.press("0")
        await found.until(lambda: any("left: attempt 2" in line for line in found.shown()))

    app = compare(project, story)
    assert (app.code, app.applied) == (0, False)


@pytest.mark.deep
def test_other_paths(project: Place) -> None:
    tried(project, [OTHER, SAME])

    async def story(found: Candidates) -> None:
        await found.press("f")
        await found.until(lambda: "Show only paths" in found.driver.dialog())
        assert "      1  that only some change" in found.driver.dialog()
        await found.press("j", "enter")
        await found.until(lambda: any("only in attempt 2: file" in line for line in found.shown()))
        assert found.paths()[0].split() == ["▌b.py", "1"]
        await found.press("tab", "tab")
        assert isinstance(found.screen.focused, DiffView)
        await found.press("escape")
        assert isinstance(found.screen.focused, CandidateList)

    compare(project, story)


@pytest.mark.deep
def test_the_output_of_the_judge_cannot_act(project: Place) -> None:
    record = tried(project, [SAME, OTHER])
    hostile = record.attempts[0]._replace(report=b"\x1b[2Jred\xff\ttab\n", note="a\x1bb")
    with project.session() as session:
        save(session.vault.path, record._replace(attempts=(hostile, record.attempts[1])))

    async def story(found: Candidates) -> None:
        assert "a\\x1bb" in found.rows()[0]
        await found.press("o")
        await found.until(lambda: "Attempt 1: agent 1" in found.driver.dialog())
        assert found.driver.dialog().splitlines()[1] == "\\x1b[2Jred\ufffd    tab"
        await found.press("escape", "j", "o")
        await found.until(lambda: "report of 2" in found.driver.dialog())

    compare(project, story, (140, 30))


def test_to_a_review_an_apply_and_back(project: Place) -> None:
    tried(project, [OTHER, SAME])

    async def story(found: Candidates) -> None:
        driver = found.driver
        await found.press("enter")
        await found.until(lambda: isinstance(driver.app.screen, ReviewScreen) and driver.review.selection.seen)
        assert driver.app.fork == "t1-2"
        await driver.press("b")
        await found.until(lambda: driver.app.screen is found.screen)
        await found.until(lambda: driver.app.model is None)
        await found.press("j", "enter")
        await found.until(lambda: isinstance(driver.app.screen, ReviewScreen) and driver.review.selection.seen)
        assert driver.app.fork == "t1-1"
        await driver.until(lambda: driver.diff.item is not None)
        await driver.ask("a", "Apply to")
        await driver.press("y")
        await driver.until(lambda: driver.dialog().startswith("Applied"))
        await driver.press("escape")
        await driver.until(lambda: not driver.dialog())
        await driver.press("b")
        await found.until(lambda: driver.app.screen is found.screen)
        await found.until(lambda: "nothing is left in it: applied" in found.rows()[1])

    app = compare(project, story, (140, 30))
    assert app.applied and (project.project / "a.py").read_text() == "one\nTWO\n"


@pytest.mark.deep
def test_a_candidate_that_changes_meanwhile(project: Place) -> None:
    tried(project, [OTHER, SAME])

    async def story(found: Candidates) -> None:
        tick()
        with project.session() as session:
            assert session.run([b"sh", b"-c", b"echo more > more"], fork="t1-1").exit_code == 0
        await found.until(lambda: "a candidate has changed: R looks again" in found.text("banner"))
        await found.press("R")
        await found.until(lambda: "changed since it was judged" in found.rows()[1])
        assert found.text("banner") == ""

    compare(project, story, (140, 30))


@pytest.mark.deep
def test_a_candidate_whose_fork_is_gone(project: Place) -> None:
    tried(project, [OTHER, SAME])
    with project.session() as session:
        session.forks.discard("t1-1")

    async def story(found: Candidates) -> None:
        assert "its fork is gone: applied or discarded" in found.rows()[1]
        await found.press("j", "enter")
        await found.until(lambda: any("its fork is gone" in line for line in found.driver.told()))
        assert found.driver.app.screen is found.screen

    compare(project, story, (140, 30))


@pytest.mark.deep
def test_side_by_side_and_narrow(project: Place) -> None:
    tried(project, [OTHER, SAME])

    async def wide(found: Candidates) -> None:
        await found.until(lambda: any("TWO" in line for line in found.shown()))
        await found.press("s")
        assert any("2" in line and "TWO" in line for line in found.shown())

    compare(project, wide, (160, 30))

    async def narrow(found: Candidates) -> None:
        await found.press("s")
        await found.until(lambda: any("side by side needs 120 columns" in line for line in found.driver.told()))

    compare(project, narrow, (80, 24))


@pytest.mark.deep
def test_hostile_names(project: Place) -> None:
    tried(
        project, ["printf x > \"$(printf '\\377\\033[2J')\"", "printf y > \"$(printf '\\377\\033[2J')\"; ln -s /etc l"]
    )

    async def story(found: Candidates) -> None:
        assert found.paths()[0].startswith("▌\\xff\\x1b[2J")
        await found.until(lambda: any("+y" in line for line in found.shown()))
        assert all(line.isprintable() for line in [*found.paths(), *found.rows(), *found.shown()])

    compare(project, story)


@pytest.mark.deep
def test_many_paths(project: Place) -> None:
    tried(project, [f"for i in $(seq 300); do echo {number} > f$i; done" for number in (1, 2)])

    async def story(found: Candidates) -> None:
        assert found.screen.paths.count == 300
        await found.press("tab", "G")
        await found.until(lambda: any("f99" in line for line in found.shown()[:1]))

    compare(project, story)


@pytest.mark.deep
def test_without_candidates_and_with_a_damaged_record(project: Place) -> None:
    record = tried(project, ["true"])

    async def empty(found: Candidates) -> None:
        assert found.shown()[0].strip("▌ ") == "no candidate has changes"
        await found.press("1", "2", "n", "enter")

    compare(project, empty)
    with project.session() as session:
        save(session.vault.path, record._replace(attempts=()))

    async def nothing(found: Candidates) -> None:
        assert found.rows() == []
        await found.press("enter", "o", "1")

    compare(project, nothing)
    (vault,) = (project.state / "vaults").iterdir()
    (vault / "attempts/t1/record").write_bytes(b"\xc1")

    async def damaged(driver: Driver) -> None:
        await driver.until(lambda: isinstance(driver.app.screen, CandidateScreen))
        found = Candidates(driver)
        await found.until(lambda: "the record of the try t1 is damaged" in found.text("banner"))
        await found.press("enter", "o", "f", "1", "n")

    drive(project, None, damaged, tried="t1")


@pytest.mark.deep
def test_a_try_is_offered_with_the_forks(project: Place) -> None:
    tried(project, [OTHER, SAME])

    async def story(driver: Driver) -> None:
        await driver.until(lambda: "which fork?" in driver.dialog())
        rows = driver.dialog().splitlines()[1:]
        assert rows[-1].strip() == "t1  a try: 2 attempts, 2 different", "below what waits for a decision"
        await driver.press(*["j"] * len(rows), "enter")
        await driver.until(lambda: isinstance(driver.app.screen, CandidateScreen))

    drive(project, None, story)


@pytest.mark.deep
def test_a_review_without_a_try_has_no_way_back(project: Place) -> None:
    tried(project, [OTHER, SAME])

    async def story(driver: Driver) -> None:
        await driver.press("b")
        await driver.until(lambda: any("not begun from a try" in line for line in driver.told()))

    drive(project, "t1-1", story)


@pytest.mark.deep
def test_leaving_says_where_they_are(project: Place) -> None:
    tried(project, [OTHER, SAME])

    async def story(found: Candidates) -> None:
        await found.press("q")

    assert compare(project, story).says == "nothing was applied; the candidates stay: mudroom review t1"


@pytest.mark.deep
def test_every_key_is_in_the_help(project: Place) -> None:
    tried(project, [SAME])

    async def story(found: Candidates) -> None:
        await found.press("question_mark")
        await found.until(lambda: "Keys of the candidates" in found.driver.dialog())
        assert "review it, to apply it" in found.driver.dialog()

    compare(project, story, (120, 50))
