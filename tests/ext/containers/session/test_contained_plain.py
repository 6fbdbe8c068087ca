"""Level 2 where a container permits no namespaces to its commands, and where mudroom is root's."""

from __future__ import annotations

import json
import os
import sys

import pytest

from conftest import Place
from engines import EngineHere
from mudroom.core.confinement.container import NOBODY
from mudroom.core.result import Result
from mudroom.core.settings import Settings
from mudroom.ext.containers.engine.profile import profile
from mudroom.ext.containers.session import containers
from mudroom.session import Session

INTERPRETER = os.path.realpath(sys.executable)
USER = (os.geteuid(), os.getegid()) if os.geteuid() else NOBODY


@pytest.fixture
def session(place: Place, engine: EngineHere) -> Session:
    place.write("kept", "kept\n")
    place.write("d/changed", "one\n")
    made = engine.session(place)
    made.machine.confinement.mode_contained = "plain"
    return made


def sh(session: Session, script: str, fork: str = "f") -> Result:
    if fork not in {one.name for one in session.vault.forks()}:
        session.forks.new(fork)
    return session.run([b"sh", b"-c", script.encode()], fork=fork)


def changes(result: Result) -> set[bytes]:
    return {change.path for change in result.changeset.changes}


def test_the_copy_is_at_the_projects_own_path(session: Session, place: Place) -> None:
    result = sh(session, "pwd; cat kept; echo two > d/changed; rm kept; mkdir -p n && touch n/f; id -u; id -g")
    assert result.stderr == b""
    assert result.stdout.decode() == f"{place.project}\nkept\n{USER[0]}\n{USER[1]}\n"
    assert changes(result) == {b"kept", b"d/changed", b"n", b"n/f"}
    assert (place.project / "kept").read_text() == "kept\n"
    again = sh(session, "cat d/changed; ls; chmod 600 d/changed")
    assert again.stdout == b"two\nd\nn\n"


def test_no_privileges_and_a_launcher_that_is_out_of_reach(session: Session) -> None:
    script = """
    grep -E '^(Cap|NoNewPrivs|Seccomp:)' /proc/self/status
    cat /proc/1/environ /proc/1/maps; ls -l /proc/1/fd; readlink /proc/1/root
    kill -9 1 || echo refused
    ls /.mudroom-door
    """
    result = sh(session, script)
    status = dict(line.split(":\t") for line in result.stdout.decode().splitlines() if ":\t" in line)
    assert {int(value, 16) for name, value in status.items() if name.startswith("Cap")} == {0}
    assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2")
    assert result.stdout.splitlines()[-1] == b"refused"
    assert result.stderr.count(b"Permission denied") == 3 and b"/\n" not in result.stdout
    assert sh(session, "true").exit_code == 0


def test_only_the_gate_is_reached(session: Session) -> None:
    script = """
    cut -d: -f1 /proc/net/dev | tail -n +3
    curl -sS -m 5 http://example.com/; curl -sS -m 5 --noproxy '*' http://93.184.216.34/; echo $?
    """
    result = sh(session, script)
    assert result.stdout.split()[0] == b"lo"
    assert b"example.com:80 is not allowed" in result.stdout + result.stderr
    assert result.stdout.splitlines()[-1] in (b"7", b"28")
    assert {denial.target for denial in result.denials} == {b"example.com:80"}
    assert (
        sh(session, "curl -sS -m 5 http://example.com/").denials == result.denials
    )  # listeners are made anew each time


def test_a_closed_network_has_no_sockets(place: Place, engine: EngineHere) -> None:
    session = engine.session(place, Settings(network="none"))
    session.machine.confinement.mode_contained = "plain"
    result = sh(session, f"{INTERPRETER} -c 'import socket; socket.socket()'; env | grep -i proxy; echo end")
    assert result.stdout == b"end\n"
    assert b"PermissionError" in result.stderr


def test_nothing_outside_the_copy_can_be_written(session: Session, place: Place) -> None:
    place.write(".mudroom/policy.yaml", "")
    closed = f"/usr/x /etc/x {place.root}/x /x /.mudroom/x /.mudroom-door/x {place.project}/.mudroom/x"
    result = sh(session, f"touch {closed}; touch /tmp/x ~/x")
    assert result.exit_code == 0
    assert len(result.stderr.splitlines()) == 7
    assert changes(result) == set()
    assert not (place.home / "x").exists()


def test_what_it_leaves_running_ends_with_it(session: Session) -> None:
    sh(session, "setsid sleep 1000 & (sleep 1000 &) ; true")
    found = sh(session, "cat /proc/[0-9]*/cmdline | tr '\\0' ' '")
    assert b"sleep 1000" not in found.stdout


def test_it_is_fallen_back_to(place: Place, engine: EngineHere, monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine whose containers refuse namespaces: their filter is the one without what makes them."""
    monkeypatch.setattr(containers, "profile", lambda machine, *, nested: profile(machine, nested=False))
    session = engine.session(place)
    result = sh(session, "echo x > new")
    assert changes(result) == {b"new"}
    assert any("permits no user namespaces" in note for note in result.notes)
    told = [event for event in session.vault.journal.events() if event.kind == "degrade"]
    assert [json.loads(event.data)["to"] for event in told] == ["plain"]
    assert sh(session, "true").notes == ()


def test_git_knows_who_the_user_is(session: Session, place: Place) -> None:
    (place.home / ".gitconfig").write_text("[user]\n name = N\n email = n@e\n[http]\n extraheader = secret: x\n")
    result = sh(session, "cat ~/.gitconfig")
    assert b"name = N" in result.stdout and b"secret" not in result.stdout


@pytest.mark.skipif(os.geteuid() != 0, reason="of root's containers")
def test_root_is_nobody_in_a_container(place: Place, engine: EngineHere) -> None:
    place.write("private.txt", "mine\n", 0o600)
    session = engine.session(place)
    result = sh(
        session, "id -u; cat private.txt; echo more >> private.txt; cat /etc/shadow; touch ~/.npm/x && echo cached"
    )
    assert result.stdout == f"{NOBODY[0]}\nmine\ncached\n".encode()
    assert b"Permission denied" in result.stderr
    assert changes(result) == {b"private.txt"}
    (name,) = engine.containers(place.root)
    assert engine.inspect(name)["Config"]["User"] == f"{NOBODY[0]}:{NOBODY[1]}"
    session.changes.apply("f")
    found = place.project / "private.txt"
    assert (found.read_text(), found.stat().st_uid, found.stat().st_mode & 0o777) == ("mine\nmore\n", 0, 0o600)
