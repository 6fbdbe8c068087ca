"""The terminal review, by its keys: what is chosen is what is applied."""

from __future__ import annotations

import pytest

pytest.importorskip("textual", reason="the extra tui is not installed")

from driving import Driver, drive

from conftest import Place

pytestmark = pytest.mark.slow
NUMBERS = "".join(f"line {number}\n" for number in range(1, 61))


@pytest.fixture
def staged(place: Place) -> str:
    """Two hunks in ``text``, a new file, one that runs later, one that goes, a directory; the name of the fork."""
    place.write("text", NUMBERS)
    place.write("gone", "old\n")
    place.write("sub/code.py", "a = 1\n")
    script = (
        "sed -i 's/line 10$/line ten/; s/line 14$/line fourteen/; s/line 50$/line fifty/' text; rm gone;"
        "echo new > fresh; echo '{}' > package.json; echo 'a = 2' > sub/code.py; echo more > sub/other"
    )
    _session, result = place.sh(script)
    return result.fork


async def apply(driver: Driver) -> str:
    """Say yes; what is told of it."""
    await driver.ask("a", "Apply to")
    await driver.press("y")
    await driver.until(lambda: driver.dialog().startswith(("Applied", "Nothing was applied")))
    told = driver.dialog()
    await driver.press("escape")
    return told


def test_what_is_listed(place: Place, staged: str) -> None:
    async def script(driver: Driver) -> None:
        await driver.by_directory()
        listed = driver.listed()
        assert [row[:4] for row in listed] == ["▌[x]", *[" [x]"] * 6]
        names = [row[4:].split() for row in listed]
        assert names == [
            ["+", "fresh", "+1"],
            ["-", "gone", "-1"],
            ["+", "!", "package.json", "+1"],
            ["~", "text", "+3", "-3"],
            ["▾", "sub/"],
            ["~", "code.py", "+1", "-1"],
            ["+", "other", "+1"],
        ]
        top = str(driver.review.query_one("#top").render())
        assert "project / " in top and "[Sandboxed: safe to edit]  6 of 6 chosen" in top

    drive(place, staged, script)


def test_one_hunk_and_nothing_else(place: Place, staged: str) -> None:
    async def script(driver: Driver) -> None:
        await driver.by_directory()
        await driver.press("N")
        await driver.to_file(b"text")
        await driver.press_on_hunk("tab", "n", "space")
        assert [row[1:4] for row in driver.shown() if "@@" in row] == ["[ ]", "[x]"]
        assert "[-]" in driver.listed()[3]
        question = await driver.ask("a", "Apply to")
        assert "1 of 6 changed files, 1 of them in part" in question and "5 files stay in the fork" in question
        await driver.press("y")
        await driver.until(lambda: driver.dialog().startswith("Applied"))
        assert "the rest stays" in driver.dialog() and "merged" not in driver.dialog()
        await driver.press("escape")
        await driver.until(lambda: "[ ]" in driver.listed()[3])
        assert "+2" in driver.listed()[3], "what is left of it is not chosen by itself"

    app = drive(place, staged, script)
    assert (place.project / "text").read_text() == NUMBERS.replace("line 50\n", "line fifty\n")
    assert (place.project / "gone").exists() and not (place.project / "fresh").exists()
    assert app.code == 0 and app.applied


def test_a_hunk_that_is_split(place: Place, staged: str) -> None:
    async def script(driver: Driver) -> None:
        await driver.press("N")
        await driver.to_file(b"text")
        assert sum("@@" in row for row in driver.shown()) == 2
        await driver.press("tab", "x")
        assert sum("@@" in row for row in driver.shown()) == 3
        assert len({row for row in driver.shown() if "line 12" in row}) == 1, "context is shown once"
        await driver.press_on_hunk("n", "space")
        await apply(driver)

    drive(place, staged, script)
    assert (place.project / "text").read_text() == NUMBERS.replace("line 14\n", "line fourteen\n")


def test_apply_all_then_undo(place: Place, staged: str) -> None:
    async def script(driver: Driver) -> None:
        question = await driver.ask("a", "Apply to")
        assert "! runs by itself later:\n  package.json" in question
        await driver.press("y")
        await driver.until(lambda: driver.dialog().startswith("Applied"))
        assert (place.project / "sub/other").read_text() == "more\n" and not (place.project / "gone").exists()
        await driver.press("escape")
        await driver.until(lambda: driver.files.count == 0)
        await driver.ask("u", "Take the last apply back")
        await driver.press("y")
        await driver.until(lambda: driver.dialog().startswith("Undone"))
        await driver.press("escape", "q")

    app = drive(place, staged, script)
    assert (place.project / "text").read_text() == NUMBERS
    assert (place.project / "gone").exists() and not (place.project / "fresh").exists()
    assert app.code == 0


def test_what_says_that_u_takes_it_back_takes_it_back(place: Place, staged: str) -> None:
    async def script(driver: Driver) -> None:
        await driver.ask("a", "Apply to")
        await driver.press("y")
        await driver.until(lambda: "u takes it back" in driver.dialog())
        await driver.ask("u", "Take the last apply back")
        await driver.press("y")
        await driver.until(lambda: driver.dialog().startswith("Undone"))
        await driver.press("escape", "q")

    app = drive(place, staged, script)
    assert (place.project / "text").read_text() == NUMBERS and not (place.project / "fresh").exists()
    assert app.code == 0


def test_quitting_and_saying_no_apply_nothing(place: Place, staged: str) -> None:
    async def script(driver: Driver) -> None:
        for no in ("escape", "n", "q", "enter"):
            await driver.ask("a", "Apply to")
            await driver.press(no)
            if no != "enter":
                await driver.until(lambda: not driver.dialog())
        assert driver.dialog().startswith("Apply to"), "Enter is no yes"
        await driver.press("escape")
        await driver.ask("d", "Discard the fork")
        await driver.press("escape", "q")

    app = drive(place, staged, script)
    assert (place.project / "text").read_text() == NUMBERS
    assert place.session().changes.of(staged).changes and app.code == 0 and not app.applied


def test_a_directory_is_chosen_as_a_whole_and_folded(place: Place, staged: str) -> None:
    async def script(driver: Driver) -> None:
        await driver.by_directory()
        await driver.press("N")
        driver.files.go(4)
        await driver.press("space")
        assert [row[1:4] for row in driver.listed()] == ["[ ]"] * 4 + ["[x]"] * 3
        await driver.press("enter")
        assert driver.listed()[-1].split()[1:] == ["▸", "sub/", "2"]
        await driver.press("enter", "j", "space")
        assert [row[1:4] for row in driver.listed()[4:]] == ["[-]", "[ ]", "[x]"]
        await apply(driver)

    drive(place, staged, script)
    assert (place.project / "sub/code.py").read_text() == "a = 1\n"
    assert (place.project / "sub/other").exists() and not (place.project / "fresh").exists()


def test_filters_and_search(place: Place, staged: str) -> None:
    async def script(driver: Driver) -> None:
        await driver.by_directory()
        await driver.ask("f", "Show only what")
        assert "      1  runs by itself later" in driver.dialog()
        await driver.press("j", "j", "j", "enter")
        await driver.until(lambda: driver.files.count == 1)
        assert "package.json" in driver.listed()[0]
        await driver.press("N", "escape")
        await driver.until(lambda: driver.files.count == 7)
        assert [row[1:4] for row in driver.listed()].count("[ ]") == 1, "only what was listed is left out"
        await driver.press("slash")
        await driver.until(lambda: len(driver.app.screen_stack) == 3)
        await driver.press(*"OTHE", "enter")
        await driver.until(lambda: driver.files.count == 2)
        assert "other" in driver.listed()[1]

    drive(place, staged, script)


def test_marks_of_what_was_looked_at(place: Place, staged: str) -> None:
    async def script(driver: Driver) -> None:
        await driver.by_directory()
        await driver.to_file(b"text")
        await driver.press("tab", "v")
        assert driver.listed()[3][4] == " ", "one hunk of two"
        await driver.press_on_hunk("n", "v")
        assert driver.listed()[3][4] == "v"
        await driver.press("escape")
        driver.files.go(4)
        await driver.press("v")
        assert [row[4] for row in driver.listed()[5:]] == ["v", "v"]

    drive(place, staged, script)


def test_more_context_and_side_by_side(place: Place, staged: str) -> None:
    async def script(driver: Driver) -> None:
        await driver.to_file(b"text")
        await driver.press("tab")
        before = driver.diff.count
        await driver.press("plus")
        assert driver.diff.count > before
        await driver.press("plus", "plus", "plus")
        assert driver.diff.count == 60 + 3 + 1 + 1, "the whole file, one hunk, and its name"
        await driver.press("s")
        wide = driver.shown()
        assert any("-line 10 " in row and "│" in row and "+line ten" in row for row in wide)
        await driver.pilot.resize_terminal(100, 30)
        await driver.until(lambda: not driver.diff.side_by_side)
        await driver.press("s")
        assert not driver.diff.side_by_side

    drive(place, staged, script, size=(140, 40))


def test_permissions_are_a_choice_of_their_own(place: Place) -> None:
    place.write("run.sh", "echo 1\n")
    _session, result = place.sh("chmod 755 run.sh; echo 'echo 2' > run.sh")

    async def script(driver: Driver) -> None:
        await driver.press("tab", "home", "space")
        assert "[ ] permissions 0644 → 0755" in driver.shown()[0]
        await apply(driver)

    drive(place, result.fork, script)
    assert (place.project / "run.sh").read_text() == "echo 2\n"
    assert (place.project / "run.sh").stat().st_mode & 0o777 == 0o644


def test_what_has_to_be_named_is_left_out_until_it_is_chosen(place: Place) -> None:
    place.write(".git/HEAD", "ref: refs/heads/main\n")
    place.write(".git/config", "[core]\n")
    _session, result = place.sh("echo x > .git/objects.new; echo '[alias]' >> .git/config; echo a > a")

    async def script(driver: Driver) -> None:
        unchosen = [row for row in driver.listed() if "[ ]" in row]
        assert any(".git/" in row for row in unchosen) and any("config" in row for row in unchosen)
        question = await driver.ask("a", "Apply to")
        assert "not applied, protected; choose it by name to apply it:" in question
        await driver.press("y")
        await driver.until(lambda: driver.dialog().startswith("Applied"))

    drive(place, result.fork, script)
    assert (place.project / "a").exists()
    assert (place.project / ".git/config").read_text() == "[core]\n"
    assert not (place.project / ".git/objects.new").exists()


def test_light_and_dark(place: Place, staged: str) -> None:
    async def script(driver: Driver) -> None:
        await driver.press("T")
        assert not driver.app.current_theme.dark
        await driver.press("T")
        assert driver.app.current_theme.dark

    drive(place, staged, script)


def test_a_file_that_was_a_directory_is_read_and_comes_as_a_whole(place: Place) -> None:
    place.write("d/x", "in it\n")
    session = place.session()
    session.forks.new("f")
    session.run([b"sh", b"-c", b"rm -r d; echo evil > d"], fork="f")

    async def look(driver: Driver) -> None:
        await driver.to_file(b"d")
        assert any("directory becomes file" in one for one in driver.shown())
        assert any("+evil" in one for one in driver.shown())
        await driver.press_on_hunk("tab", "n", "space")
        assert b"d" not in driver.review.selection.picks

    drive(place, "f", look, session=session)
