"""How a session with an editor ends, by the agent, the editor or a signal: nothing runs on, and the fork is whole."""

from __future__ import annotations

import signal

import pytest
from editor import mudroom
from serve_start import FORK, Start, both, processes_of, start

from conftest import Place, full_listing
from tiers import daily

__all__ = ["start"]


@both
def test_an_agent_that_dies_in_the_middle(place: Place, start: Start, options: tuple[str, ...]) -> None:
    editor = start(*options)
    editor.open()
    other = editor.begin("_slow/method", {})
    assert editor.wait(other)["result"]["method"] == "_slow/method"
    turn = editor.start_turn(["write", "half.txt", "half\n"], ["exit", 7])
    later = editor.begin("session/set_mode", {"sessionId": "s1", "modeId": "x"})
    errors = [editor.wait(turn)["error"], editor.wait(later)["error"]]
    for error in errors:
        assert error["code"] == -32603
        assert "exit code 7" in error["message"]
        assert "the last words of the agent" in error["message"]
    assert editor.process.wait() == 7
    assert "half.txt" in mudroom(place, "diff", FORK)


@both
def test_an_editor_that_goes_ends_the_agent_and_its_terminals(
    place: Place, start: Start, options: tuple[str, ...]
) -> None:
    editor = start(*options)
    editor.open()
    editor.turn(["call", "terminal/create", {"command": f"echo x > left.txt; sleep 1000 # {place.root}"}])
    while not editor.turn(["shell", "cat left.txt 2>/dev/null; true"])[0]["output"]:
        pass
    assert editor.leave() == 0
    assert processes_of(place) == []
    assert "left.txt" in mudroom(place, "diff", FORK)


def test_an_editor_that_is_killed(place: Place, start: Start) -> None:
    editor = start()
    editor.open()
    editor.start_turn(["long_shell", "echo begun; sleep 1000"])
    while editor.texts()[-1:] != ["running"]:
        editor.next()
    assert editor.process.stdin is not None
    assert editor.process.stdout is not None
    editor.process.stdin.close()
    editor.process.stdout.close()
    assert editor.process.wait() == 0
    assert processes_of(place) == []


@both
@pytest.mark.parametrize("number", daily([signal.SIGTERM, signal.SIGHUP, signal.SIGINT]))
def test_a_signal_ends_all(place: Place, start: Start, options: tuple[str, ...], number: signal.Signals) -> None:
    editor = start(*options)
    editor.open()
    editor.turn(["write", "a.txt", "kept\n"])
    editor.process.send_signal(number)
    assert editor.process.wait() == 128 + number
    assert processes_of(place) == []
    assert "+kept" in mudroom(place, "diff", FORK)


@pytest.mark.both_users
def test_sigkill_leaves_the_project_as_it_is_and_the_fork_whole(place: Place, start: Start) -> None:
    place.write("a.txt", "first\n")
    before = full_listing(place.project)
    editor = start()
    editor.open()
    editor.turn(["write", "a.txt", "second\n"], ["shell", "echo t > t.txt"])
    editor.start_turn(["long_shell", "echo begun; sleep 1000"])
    while editor.texts()[-1:] != ["running"]:
        editor.next()
    editor.process.kill()
    editor.process.wait()
    assert full_listing(place.project) == before
    shown = mudroom(place, "diff", FORK)  # waits for the sandbox's last processes
    assert "+second" in shown
    assert "t.txt" in shown
    assert processes_of(place) == []
    assert full_listing(place.project) == before


@both
def test_an_agent_that_is_not_there_or_not_named(place: Place, start: Start, options: tuple[str, ...]) -> None:
    editor = start(*options, agent=("no-such-agent",))
    assert editor.process.wait() == 127
    assert "no-such-agent: no such program on PATH" in editor.errors()
    assert "mudroom acp -- gemini --acp" in mudroom(place, "acp", code=125)
    assert "its standard output belongs to the editor" in mudroom(place, "acp", "--json", "--", "x", code=125)
