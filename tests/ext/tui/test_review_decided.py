"""The terminal review: what is decided about a conflict, seen again and changed."""

from __future__ import annotations

import pytest

pytest.importorskip("textual", reason="the extra tui is not installed")

from driving import Driver, drive, text_of_row

from conftest import Place
from mudroom.ext.tui.conflict import ConflictScreen, decided_choices
from mudroom.ext.tui.dialog import Lines
from mudroom.session import Session

pytestmark = pytest.mark.slow
MIDDLE = "".join(f"{n}\n" for n in range(20))
THEIRS, OURS = f"one, the fork\n{MIDDLE}two, the fork\n", f"one, the project\n{MIDDLE}two, the project\n"


@pytest.fixture
def fork(place: Place) -> str:
    """``text`` conflicts in two places."""
    place.write("text", f"one\n{MIDDLE}two\n")
    _session, result = place.sh("sed -i 's/^one$/one, the fork/; s/^two$/two, the fork/' text")
    place.write("text", OURS)
    return result.fork


def decided(place: Place, fork: str, take: str, content: str = "") -> Session:
    session = place.session()
    (conflict,) = session.changes.conflicts(fork)
    session.changes.decide(fork, conflict, take, content.encode() or None)  # type: ignore[arg-type]
    return session


async def conflicts(driver: Driver) -> ConflictScreen:
    await driver.press("c")
    await driver.until(lambda: isinstance(driver.app.screen, ConflictScreen))
    screen = driver.app.screen
    assert isinstance(screen, ConflictScreen)
    await driver.until(lambda: what(screen))
    return screen


def what(screen: ConflictScreen) -> str:
    return str(screen.query_one("#what").render())


def result(screen: ConflictScreen) -> list[str]:
    """Nothing, if it is not on the screen."""
    pane = next(pane for pane in screen.query(Lines) if pane.id == "result")
    if not screen.query_one("#outcome").display:
        return []
    return [text_of_row(pane, number) for number in range(pane.count)]


def test_what_is_decided_is_shown_and_changed_at_one_place(place: Place, fork: str) -> None:
    decided(place, fork, "content", f"one, the fork\n{MIDDLE}by\nhand\n")

    async def script(driver: Driver) -> None:
        screen = await conflicts(driver)
        assert "[decided: merged]" in what(screen) and "place 1 of 2: the fork's" in what(screen)
        assert result(screen) == ["▐ one, the fork", "0", "1", "2"]
        await driver.press("n")
        assert "place 2 of 2: lines of your own" in what(screen)
        assert result(screen) == ["17", "18", "19", "▐ by", "▐ hand"]
        await driver.press("p", "1")
        await driver.until(lambda: screen.changed)
        await driver.until(lambda: "place 1 of 2: the project's" in what(screen))

    drive(place, fork, script)
    (conflict,) = place.session().changes.conflicts(fork)
    assert conflict.result == f"one, the project\n{MIDDLE}by\nhand\n".encode()


def test_nothing_is_shown_before_anything_is_decided(place: Place, fork: str) -> None:
    async def script(driver: Driver) -> None:
        screen = await conflicts(driver)
        assert "[not decided]" in what(screen) and result(screen) == []
        await driver.press("3")
        await driver.until(lambda: "place 2 of 2: not decided" in what(screen))
        assert result(screen) == []
        await driver.press("p")
        assert "place 1 of 2: both" in what(screen)
        assert result(screen)[:2] == ["▐ one, the project", "▐ one, the fork"]

    drive(place, fork, script)


@pytest.mark.parametrize(
    ("take", "content", "told", "rows"),
    [
        ("content", "all of it\n", "[decided: merged]", ["all of it"]),
        ("content", "a\0b", "[decided: merged]", ["3 bytes"]),
        ("delete", "", "[decided: deleted]", ["the file will be gone"]),
    ],
)
def test_what_was_decided_in_another_way(
    place: Place, fork: str, take: str, content: str, told: str, rows: list[str]
) -> None:
    decided(place, fork, take, content)

    async def script(driver: Driver) -> None:
        screen = await conflicts(driver)
        assert told in what(screen) and "place 1 of 2: decided as a whole" in what(screen)
        assert result(screen) == rows
        await driver.press("1")
        await driver.until(lambda: "place 2 of 2: not decided" in what(screen))
        assert not screen.changed

    drive(place, fork, script)
    (conflict,) = place.session().changes.conflicts(fork)
    assert conflict.take == take, "one place of two changes nothing"


@pytest.mark.parametrize(("take", "side"), [("ours", "the project's"), ("theirs", "the fork's")])
def test_a_side_of_all_of_it(place: Place, fork: str, take: str, side: str) -> None:
    decided(place, fork, take)

    async def script(driver: Driver) -> None:
        screen = await conflicts(driver)
        assert f"[decided: {side}]" in what(screen) and f"place 1 of 2: {side}" in what(screen)

    drive(place, fork, script)


def test_a_secret_that_is_decided_is_shown_to_nobody(place: Place) -> None:
    _session, made = place.sh("echo theirs > .env")
    place.write(".env", "TOKEN=swordfish\n")
    session = decided(place, made.fork, "ours")

    async def script(driver: Driver) -> None:
        screen = await conflicts(driver)
        assert "[decided: the project's]" in what(screen)
        rows = [text_of_row(pane, number) for pane in screen.query(Lines) for number in range(pane.count)]
        assert result(screen) == [] and "swordfish" not in repr(rows)

    drive(place, made.fork, script)
    (conflict,) = session.changes.conflicts(made.fork)
    assert decided_choices(conflict, None) == {}


@pytest.mark.parametrize("key", ["1", "u"])
def test_what_somebody_else_has_decided_meanwhile_stays_and_is_shown(place: Place, fork: str, key: str) -> None:
    decided(place, fork, "content", f"one, the fork\n{MIDDLE}two, the fork\n")

    async def script(driver: Driver) -> None:
        screen = await conflicts(driver)
        decided(place, fork, "content", f"carefully\n{MIDDLE}made elsewhere\n")
        await driver.press(key)
        await driver.until(lambda: "somebody else has decided about text meanwhile" in str(driver.told()))
        await driver.until(lambda: result(screen)[:1] == ["▐ carefully"])

    drive(place, fork, script)
    (conflict,) = place.session().changes.conflicts(fork)
    assert (conflict.result or b"").startswith(b"carefully\n")
