"""How a session with an editor ends, by the agent, the editor or a signal: nothing runs on, and the fork is whole."""

from __future__ import annotations

import os
import signal

import pytest
from editor import mudroom
from serve_start import FORK, Start, both, processes_of, start

from conftest import Place, full_listing
from mudroom.errors import CommandNotStarted, Unsupported
from mudroom.ext.agents.acp.agent_process import ErrorStream, pipes, start_inside, start_outside
from mudroom.sandbox.host.host import landlock_abi
from tiers import daily
from whole_text import whole

__all__ = ["start"]  # fixtures


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


@pytest.mark.skipif(not landlock_abi(), reason="this kernel has no Landlock")
def test_an_agent_whose_project_would_be_elsewhere_is_not_left_running(place: Place) -> None:
    session = place.session()
    session.machine.confinement.mode = "landlock"
    _ours, theirs = pipes()
    told = (
        "an agent in an editor needs the project at its own path; found: a copy elsewhere (landlock) "
        "(mudroom acp --outside; mudroom doctor says what is missing)"
    )
    with pytest.raises(Unsupported, match=whole(told)):
        start_inside(session, [b"sleep", b"1000"], "f", session.project, theirs, session.actor)
    assert all(ended is not None for _started, ended in session.sandboxes.backgrounds("f"))


def test_an_agent_outside_is_ended_with_its_children(place: Place) -> None:
    ours, theirs = pipes()
    script = b"trap '' TERM; sleep 1000 & echo $!; wait"
    agent = start_outside([b"sh", b"-c", script], os.fsencode(place.project), theirs, os.environb)
    for descriptor in theirs:
        os.close(descriptor)
    child = int(os.read(ours.stdout, 100))
    agent.end()
    assert agent.wait() == 137
    assert os.read(ours.stdout, 1) == b"", "nobody has it open any more"
    assert not os.path.exists(f"/proc/{child}/exe")


def test_an_agent_outside_is_no_program_of_the_project(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    ran = place.root / "ran"
    place.write("no-such-agent", f"#!/bin/sh\necho > {ran}\n", 0o755)
    monkeypatch.chdir(place.project)
    _ours, theirs = pipes()
    with pytest.raises(CommandNotStarted) as raised:
        start_outside([b"no-such-agent"], os.fsencode(place.project), theirs, {b"PATH": b".::/usr/bin:/bin"})
    assert raised.value.exit_code == 127 and not ran.exists()
    agent = start_outside([b"./no-such-agent"], os.fsencode(place.project), theirs, {b"PATH": b".::/usr/bin:/bin"})
    assert agent.wait() == 0 and ran.exists(), "a path is the user's own word"


def test_stderr_is_passed_on_and_its_last_line_kept() -> None:
    ours, theirs = pipes()
    read, write = os.pipe()
    stream = ErrorStream(ours.stderr, write)
    os.write(theirs.stderr, b"first\nlast words\n\n")
    for descriptor in theirs:
        os.close(descriptor)
    assert stream.last_line() == "last words"
    assert os.read(read, 100) == b"first\nlast words\n\n"
