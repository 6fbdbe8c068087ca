"""A token that is refreshed inside or outside is seen on both sides, while the command runs: rotation works.

Tools write a token in one of two ways: in place, or as a new file and a rename. Both, in both directions, at every
level at which a store can be open.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from conftest import Place, act_as
from mudroom.core.agent.card import AgentCard, Requirements
from mudroom.core.result import Result
from mudroom.core.settings import Settings
from test_logins import meanwhile
from tiers import pairs

PATIENCE = 30.0
"""Seconds for what is seen at once where it works."""
WRITE = {"in place": "echo {text} > {file}", "renamed": "echo {text} > {file}.new && mv {file}.new {file}"}


def write(path: Path, text: str, how: str) -> None:
    if how == "in place":
        path.write_text(text + "\n")
    else:
        new = path.with_name(path.name + ".new")
        new.write_text(text + "\n")
        os.rename(new, path)


@pytest.fixture(params=[(0, "overlay"), (0, "copy"), (1, "overlay"), (1, "copy")], ids=lambda one: f"{one[0]}-{one[1]}")
def opened(request: pytest.FixtureRequest, place: Place) -> Iterator[Callable[[str, str], Callable[[str], Result]]]:
    """A way to run scripts with one store open."""
    level, view = request.param

    def with_store(store: str, file: str) -> Callable[[str], Result]:
        path = place.home / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("first\n")
        session = place.session(Settings(view=view))
        act_as(session, card=AgentCard("agent", level, Requirements(keychain=(store,))))
        return lambda script: session.run([b"sh", b"-c", script.encode()], timeout=PATIENCE)

    yield with_store


def until(path: Path, text: str, over: threading.Event) -> bool:
    """Whether a file comes to hold this before the command is over."""
    while not path.exists() or text not in path.read_text():
        if over.wait(0.002):
            return path.exists() and text in path.read_text()
    return True


def rotate(
    place: Place, run: Callable[[str], Result], file: str, inside: str, outside: str
) -> tuple[list[str], Result]:
    """Three turns: the agent writes, the host sees it and writes, the agent sees that and writes again."""
    path = place.home / file
    seen: list[str] = []

    def host(over: threading.Event) -> None:
        for turn in ("one", "two"):
            if not until(path, f"inside-{turn}", over):
                return
            seen.append(path.read_text().strip())
            write(path, f"outside-{turn}", outside)

    own = f"$HOME/{file}"
    script = f"cat {own}\n"
    for turn in ("one", "two"):
        script += WRITE[inside].format(text=f"inside-{turn}", file=own) + "\n"
        script += f"until grep -q outside-{turn} {own}; do sleep 0.01; done; cat {own}\n"
    return seen, meanwhile(lambda: run(script), host)


@pytest.mark.parametrize("level", [0, 1])
def test_a_command_in_the_background_sees_it_too(place: Place, level: int) -> None:
    path = place.home / ".npmrc"
    path.write_text("first\n")
    session = place.session()
    act_as(session, card=AgentCard("agent", level, Requirements(keychain=("npm",))))
    script = "until grep -q outside ~/.npmrc; do sleep 0.01; done; echo inside > ~/.npmrc; touch over; sleep 100"
    behind = session.start([b"sh", b"-c", script.encode()], fork="a")
    write(path, "outside", "renamed")
    over = threading.Event()
    timer = threading.Timer(PATIENCE, over.set)
    timer.start()
    try:
        assert until(path, "inside", over)
    finally:
        timer.cancel()
        behind.end()
    assert path.read_text() == "inside\n"
    assert session.vault.fork("a").credentials == ("npm",)


DIRECTORIES = {"gh": ".config/gh/hosts.yml", "claude": ".claude/.credentials.json", "~/.config/tool": ".config/tool/t"}


@pytest.mark.parametrize("outside", ["in place", "renamed"])
@pytest.mark.parametrize("inside", ["in place", "renamed"])
@pytest.mark.parametrize("store", ["gh", "~/.config/tool"])
def test_a_store_that_is_a_directory(
    place: Place, opened: Callable[[str, str], Callable[[str], Result]], store: str, inside: str, outside: str
) -> None:
    file = DIRECTORIES[store]
    seen, result = rotate(place, opened(store, file), file, inside, outside)
    assert (seen, result.timed_out) == (["inside-one", "inside-two"], False)
    assert result.stdout.decode().split() == ["first", "outside-one", "outside-two"]
    assert (place.home / file).read_text() == "outside-two\n"


@pytest.mark.parametrize(("file", "outside"), pairs([".npmrc", ".cargo/credentials.toml"], ["in place", "renamed"]))
def test_a_store_that_is_one_file(
    place: Place, opened: Callable[[str, str], Callable[[str], Result]], file: str, outside: str
) -> None:
    """Other ways of writing inside: ``test_single_files.py``."""
    store = {".npmrc": "npm", ".cargo/credentials.toml": "cargo"}[file]
    seen, result = rotate(place, opened(store, file), file, "in place", outside)
    assert (seen, result.timed_out) == (["inside-one", "inside-two"], False)
    assert result.stdout.decode().split() == ["first", "outside-one", "outside-two"]
    assert (place.home / file).read_text() == "outside-two\n"
