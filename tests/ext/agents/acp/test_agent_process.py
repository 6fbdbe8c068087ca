"""The agent's process where the machine cannot show the project at its own path, and on the host."""

from __future__ import annotations

import os

import pytest

from conftest import Place
from mudroom.errors import CommandNotStarted, Unsupported
from mudroom.ext.agents.acp.agent_process import ErrorStream, pipes, start_inside, start_outside
from mudroom.sandbox.host.host import landlock_abi
from whole_text import whole


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
