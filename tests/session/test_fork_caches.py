"""Caches, home and /tmp of a command: no two forks can write to the same directory."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from background_command import heard
from box import if_namespaces
from conftest import Place
from mudroom.core.confinement.cache_place import CACHES, CacheShare
from mudroom.core.settings import Settings, ViewChoice
from mudroom.session import Session

pytestmark = [pytest.mark.both_users, if_namespaces]

PLACES = ("/tmp", "/var/tmp", "/dev/shm", "/run", "~", *(f"~/{os.fsdecode(path)}" for path, _name in CACHES))
"""Every directory outside of the project that a command can write to."""

LISTEN = """
import os, signal, socket, sys
places = [os.path.expanduser(place) for place in sys.argv[1:]]
listening = []
for place in places:
    os.makedirs(place, exist_ok=True)
    for kind, name in ((socket.SOCK_STREAM, "stream"), (socket.SOCK_DGRAM, "dgram"), (socket.SOCK_SEQPACKET, "seq")):
        server = socket.socket(socket.AF_UNIX, kind)
        os.chdir(place)  # sun_path has 108 bytes
        server.bind("meet-" + name)
        if kind != socket.SOCK_DGRAM:
            server.listen()
        listening.append(server)
    os.mkfifo(place + "/meet-fifo")
    open(place + "/meet-file", "w").write("from the other fork")
abstract = socket.socket(socket.AF_UNIX)
abstract.bind("\\0meet")
abstract.listen()
print("up", flush=True)
signal.pause()
"""

MEET = """
import os, socket, sys
places = [os.path.expanduser(place) for place in sys.argv[1:]]
for place in places:
    for name in sorted(os.listdir(place) if os.path.isdir(place) else ()):
        if name.startswith("meet"):
            print("met", place, name)
    os.makedirs(place, exist_ok=True)
    os.chdir(place)
    for kind, name in ((socket.SOCK_STREAM, "stream"), (socket.SOCK_DGRAM, "dgram"), (socket.SOCK_SEQPACKET, "seq")):
        try:
            socket.socket(socket.AF_UNIX, kind).connect("meet-" + name)
            print("connected", place, name)
        except OSError:
            pass
try:
    socket.socket(socket.AF_UNIX).connect("\\0meet")
    print("connected", "abstract")
except OSError:
    pass
print("looked")
"""


def python(program: str) -> list[bytes]:
    return [os.fsencode(sys.executable), b"-I", b"-S", b"-c", program.encode(), *(place.encode() for place in PLACES)]


@pytest.fixture
def session(place: Place) -> Iterator[Session]:
    session = place.session()
    session.run([b"true"], fork="first")  # from the second command on, a session prepares its sandboxes
    session.run([b"true"], fork="second")
    yield session
    session.close()


def test_two_forks_of_a_session_meet_nowhere(session: Session) -> None:
    accomplice = session.start(python(LISTEN), fork="b")
    heard(accomplice, b"up")
    result = session.run(python(MEET), fork="a")
    assert result.stdout.decode().splitlines() == ["looked"], result.stderr


def test_two_sessions_meet_nowhere(place: Place, session: Session) -> None:
    accomplice = session.start(python(LISTEN), fork="b")
    heard(accomplice, b"up")
    result = place.session().run(python(MEET), fork="a")
    assert result.stdout.decode().splitlines() == ["looked"], result.stderr


def test_a_command_leaves_nothing_in_private_directories_to_the_next(session: Session) -> None:
    places = "/tmp /var/tmp /dev/shm /run ~"
    for fork in ("a", "a", "b"):
        script = f"for p in {places}; do test ! -e $p/left || echo $p; echo x > $p/left; done"
        assert session.run([b"sh", b"-c", script.encode()], fork=fork).stdout == b""


def in_cache(session: Session, script: str, fork: str) -> str:
    """Run a script in a fork's ``~/.cache`` and return its output. It is a file: no agent is asked about its words."""
    if session.vault.find(fork) is None:
        session.forks.new(fork)
    session.forks.files(fork).write(b"script.sh", f"cd ~/.cache; {script}".encode())
    return session.run([b"sh", b"script.sh"], fork=fork).stdout.decode()


@pytest.mark.parametrize("view", ["overlay", "copy"])
def test_new_entries_are_seen_by_later_forks(place: Place, view: ViewChoice) -> None:
    session = place.session(Settings(view=view))
    in_cache(session, "mkdir -p pip/wheels; echo one > pip/wheels/w; echo npm > ~/.npm/n", "a")
    assert in_cache(session, "cat pip/wheels/w ~/.npm/n", "b") == "one\nnpm\n"
    assert in_cache(place.session(Settings(view=view)), "cat pip/wheels/w ~/.npm/n", "c") == "one\nnpm\n"


@pytest.mark.parametrize(
    ("share", "agent", "seen"),
    [
        ("agent", "other", ""),
        ("agent", None, ""),
        ("agent", "evil", "planted\n"),
        ("project", "other", "planted\n"),
        ("project", None, "planted\n"),
        ("fork", "evil", ""),
    ],
)
def test_entries_of_an_agent_are_its_own_unless_the_policy_says_so(
    place: Place, share: CacheShare, agent: str | None, seen: str
) -> None:
    settings = Settings(cache_share=share)
    in_cache(place.session(settings, agent="evil"), "echo planted > entry", "a")
    assert in_cache(place.session(settings, agent=agent), "cat entry", "b") == seen


def test_an_agent_sees_the_users_entries_and_changes_only_its_own(place: Place) -> None:
    in_cache(place.session(), "echo user > entry", "a")
    agent = place.session(agent="evil")
    assert in_cache(agent, "cat entry; echo evil > entry", "b") == "user\n"
    assert in_cache(agent, "cat entry", "c") == "evil\n"
    assert in_cache(place.session(), "cat entry", "d") == "user\n"


def test_an_agents_leftovers_do_not_come_back_with_a_users_command_in_its_fork(place: Place) -> None:
    agent = place.session(Settings(cache_share="fork"), agent="evil")
    in_cache(agent, "echo planted > entry", "a")
    user = place.session()
    assert in_cache(user, "cat entry; echo more > more", "a") == "planted\n"
    assert in_cache(user, "ls", "b") == ""


def test_a_command_that_joins_for_another_taints_the_caches(place: Place) -> None:
    user = place.session()
    user.forks.new("a")
    user.forks.files("a").write(b"script.sh", b"echo planted > ~/.cache/entry")
    server = user.start([b"sh", b"-c", b"echo up; while :; do sleep 0.02; done"], fork="a")
    heard(server, b"up")
    joined = place.session(agent="evil").run([b"sh", b"script.sh"], fork="a")
    assert joined.exit_code == 0
    server.end()
    user.close()
    assert in_cache(place.session(), "cat entry", "b") == ""


def test_a_background_commands_entries_come_back(place: Place) -> None:
    session = place.session()
    server = session.start(
        [b"sh", b"-c", b"echo new > ~/.cache/entry; echo up; while :; do sleep 0.02; done"], fork="a"
    )
    heard(server, b"up")
    assert in_cache(session, "ls", "b") == ""
    server.end()
    session.close()
    assert in_cache(place.session(), "ls", "c") == "entry\n"


def test_a_closed_cache_is_closed_for_one_command_only(place: Place) -> None:
    session = place.session()
    in_cache(session, "echo x > entry; chmod 0 .; chmod 0 ~/.npm", "a")
    for fork in ("a", "b"):
        assert in_cache(session, "cat entry; echo new > ~/.npm/new; cat ~/.npm/new", fork) == "x\nnew\n"


def test_what_is_no_plain_file_stays_in_the_fork(place: Place) -> None:
    session = place.session()
    make = (
        "mkfifo fifo; ln -s /etc/passwd out; ln -s ../../../etc up; ln -s fine link; echo f > fine; chmod 6755 fine; "
        "mkdir d; chmod 7777 d; echo in > d/in; chmod 666 d/in; ln fine second"
    )
    in_cache(session, make, "a")
    seen = in_cache(session, "ls -Am; stat -c '%n %a %h' fine d/in second; stat -c '%a' d; readlink link", "b")
    assert seen.splitlines() == ["d, fine, link, second", "fine 755 1", "d/in 644 1", "second 755 1", "755", "fine"]


def test_a_database_with_a_journal_stays(place: Place) -> None:
    session = place.session()
    in_cache(session, "echo db > x.db; echo wal > x.db-wal; echo y > y.db", "a")
    assert in_cache(session, "ls", "b") == "y.db\n"


def test_a_file_of_a_pool_is_a_new_inode(place: Place) -> None:
    """Whoever has the fork's file open has not the pool's."""
    session = place.session()
    in_cache(session, "echo x > entry", "a")
    (pooled,) = Path(os.fsdecode(session.vault.cache)).rglob("entry")
    with open(pooled, "r+b"):
        in_cache(session, "echo y > entry", "b")
    (again,) = Path(os.fsdecode(session.vault.cache)).rglob("entry")
    assert again.read_text() == "y\n"
    assert list(Path(os.fsdecode(session.vault.fork("b").path)).rglob("entry")) == []


def test_caches_beyond_the_limit_are_removed_whole_and_it_is_said(place: Place) -> None:
    session = place.session(Settings(cache_limit=300_000))
    session.run([b"sh", b"-c", b"head -c 200000 /dev/zero > ~/.npm/big"], fork="a")
    result = session.run([b"sh", b"-c", b"head -c 200000 /dev/zero > ~/.cache/big"], fork="b")
    assert [note for note in result.notes if "caches.limit" in note] == [
        "caches were removed to stay within 300 kB (caches.limit): npm"
    ]
    assert in_cache(session, "ls ~/.npm; ls", "c") == "big\n"


def test_what_one_command_writes_is_bounded(place: Place) -> None:
    session = place.session(Settings(cache_limit=100_000))
    result = session.run([b"sh", b"-c", b"for i in 1 2 3; do head -c 50000 /dev/zero > ~/.npm/$i; done"], fork="a")
    assert "the caches have more new entries than are kept: the rest stays in this fork" in result.notes


def test_a_link_planted_in_a_cache_is_not_mounted_through(place: Place, tmp_path: Path) -> None:
    """A toolchain that is shown inside a cache is put where the fork's own files lie."""
    shown = place.home / ".cache/tools"
    shown.mkdir(parents=True)
    (shown / "tool").write_text("t")
    settings = Settings(read=(os.fsencode(shown),))
    assert in_cache(place.session(settings), "cat tools/tool", "a") == "t"
    target = tmp_path / "target"
    target.mkdir()
    in_cache(place.session(), f"rm -rf tools; ln -s {target} tools", "a")
    with pytest.raises(Exception, match="tools"):
        in_cache(place.session(settings), "ls tools", "a")
    assert list(target.iterdir()) == []
