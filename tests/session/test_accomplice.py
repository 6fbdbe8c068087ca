"""An accomplice outside of a fork's sandbox holds what leads to the fork's files, before and after an apply.

How it has got that does not matter here: it opens the files in the sandbox's own mount, through ``/proc/PID/root``, as
if a command had passed the descriptor.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from background_command import heard
from box import if_namespaces
from conftest import Place
from mudroom.core.clock import CommandStart
from mudroom.core.settings import Settings
from mudroom.errors import ForkMoved, SandboxAlive
from mudroom.session import Session
from mudroom.session.background import Background
from mudroom.vault.forks import apart
from mudroom.vault.forks.review import fingerprint
from mudroom.vault.store.fork import forget_release

pytestmark = [pytest.mark.both_users, pytest.mark.root, if_namespaces]

MADE = "mkdir -p new/below; echo reviewed > new/below/file; echo reviewed > plain; "
WAITING = "echo up; while :; do sleep 0.02; done"
REVIEWED = "reviewed\n"
Use = Callable[[], None]


def sandboxed(session: Session, fork: str = "f") -> tuple[Background, Path]:
    """Start a command that has made files and waits. Return the project as the command sees it."""
    background = session.start([b"sh", b"-c", (MADE + WAITING).encode()], fork=fork)
    heard(background, b"up")
    project = os.fsdecode(session.vault.project)
    for name in os.listdir("/proc"):
        seen = Path(f"/proc/{name}/root{project}")
        try:
            if name.isdigit() and (seen / "new/below/file").exists():
                return background, seen
        except OSError:
            continue
    raise AssertionError("the sandbox has no visible process")


def mapped(path: Path, held: ExitStack) -> Callable[[bytes], None]:
    """A page of a file, already dirty: later stores change neither ctime nor mtime. No descriptor stays open."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    descriptor = os.open(path, os.O_RDWR)
    address = libc.mmap(None, 4096, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_SHARED, descriptor, 0)
    os.close(descriptor)
    held.callback(libc.munmap, ctypes.c_void_p(address), ctypes.c_size_t(4096))

    def store(data: bytes) -> None:
        ctypes.memmove(address, data, len(data))

    store(b"r")  # dirty, with the same content
    return store


def hold(seen: Path, kind: str, held: ExitStack) -> Use:
    """Hold something that leads to the fork's files. Return what changes them."""
    places = [seen / "new/below/file", seen / "plain"]
    if kind == "mapping":
        pages = [mapped(path, held) for path in places]

        def store() -> None:
            for page in pages:
                page(b"planted!")

        return store
    if kind == "directory":
        directories = [os.open(path, os.O_RDONLY | os.O_DIRECTORY) for path in (seen, seen / "new", seen / "new/below")]
        for descriptor in directories:
            held.callback(os.close, descriptor)

        def plant() -> None:
            for descriptor, name in zip(directories, ("plain", "below/file", "file"), strict=True):
                for path in (name, "conftest.py"):
                    with suppress(FileNotFoundError):  # the directory has been removed
                        opened = os.open(path, os.O_WRONLY | os.O_CREAT, 0o755, dir_fd=descriptor)
                        os.write(opened, b"planted!")
                        os.close(opened)

        return plant
    opened = [os.open(path, os.O_PATH if kind == "path" else os.O_RDWR) for path in places]
    for descriptor in opened:
        held.callback(os.close, descriptor)

    def write() -> None:
        for descriptor in opened:
            writable = os.open(f"/proc/self/fd/{descriptor}", os.O_WRONLY)
            os.write(writable, b"planted!")
            os.close(writable)

    return write


@pytest.fixture
def held() -> Iterator[ExitStack]:
    with ExitStack() as held:
        yield held


KINDS = pytest.mark.parametrize("kind", ["descriptor", "path", "directory", "mapping"])


def landed(place: Place) -> dict[str, str]:
    files = [path for path in place.project.rglob("*") if path.is_file()]
    return {str(path.relative_to(place.project)): path.read_text() for path in files}


LANDED = {"new/below/file": REVIEWED, "plain": REVIEWED}


def lands_as_reviewed(session: Session, fork: str, use: Callable[[], None]) -> None:
    """Nothing that is done with what is held open after the review is shown, or lands with the apply, or later."""
    shown = b"".join(session.changes.diff(fork))
    session.changes.review(fork)
    use()
    assert b"".join(session.changes.diff(fork)) == shown
    assert not session.changes.apply(fork).conflicts
    use()


@KINDS
def test_it_does_not_have_the_projects_files_after_an_apply(place: Place, held: ExitStack, kind: str) -> None:
    session = place.session()
    background, seen = sandboxed(session)
    use = hold(seen, kind, held)
    background.end()
    result = session.changes.apply("f")
    assert not result.conflicts and landed(place) == LANDED
    use()
    assert landed(place) == LANDED
    session.changes.undo()
    assert landed(place) == {}


@KINDS
def test_what_it_does_between_review_and_apply_does_not_land(place: Place, held: ExitStack, kind: str) -> None:
    session = place.session()
    background, seen = sandboxed(session)
    use = hold(seen, kind, held)
    background.end()
    lands_as_reviewed(session, "f", use)
    assert landed(place) == LANDED


@KINDS
def test_a_sealed_layer_is_not_its(place: Place, held: ExitStack, kind: str) -> None:
    session = place.session()
    background, seen = sandboxed(session)
    use = hold(seen, kind, held)
    background.end()
    session.forks.checkpoint("f", "sealed")
    session.forks.new("g", parent="f", at="sealed")
    lands_as_reviewed(session, "g", use)
    assert landed(place) == LANDED


@KINDS
def test_a_layer_sealed_before_a_command_is_not_its(place: Place, held: ExitStack, kind: str) -> None:
    """The checkpoint that mudroom itself makes before a risky command."""
    session = place.session(agent="coder")
    background, seen = sandboxed(session)
    use = hold(seen, kind, held)
    background.end()
    result = session.run([b"rm", b"-r", b"plain"], fork="f")
    assert result.checkpoint, "no checkpoint was made"
    lands_as_reviewed(session, "f", use)
    assert landed(place) == {"new/below/file": REVIEWED}


def test_a_file_of_the_project_that_the_fork_has_changed(place: Place, held: ExitStack) -> None:
    place.write("plain", "before\n")
    session = place.session()
    background, seen = sandboxed(session)
    uses = [hold(seen, kind, held) for kind in ("descriptor", "mapping", "path")]
    background.end()
    session.changes.apply("f")
    for use in uses:
        use()
    assert landed(place) == LANDED
    session.changes.undo()
    assert landed(place) == {"plain": "before\n"}


def test_the_record_is_of_the_files_that_were_copied(place: Place, held: ExitStack) -> None:
    """Stores between the collecting and the review are in the review, also in its line counts."""
    session = place.session()
    background, seen = sandboxed(session)
    page = mapped(seen / "plain", held)
    background.end()
    page(b"two\nrows\n")
    changes = session.changes.review("f").changeset
    assert [change.lines_added for change in changes.changes if change.path == b"plain"] == [2]
    session.changes.apply("f")
    assert (place.project / "plain").read_text() == "two\nrows\n"


@pytest.mark.parametrize("kind", ["descriptor", "mapping"])
def test_a_file_of_a_copy_view_that_is_open_elsewhere(place: Place, held: ExitStack, kind: str) -> None:
    session = place.session(Settings(view="copy"))
    background, seen = sandboxed(session)
    use = hold(seen, kind, held)
    background.end()
    lands_as_reviewed(session, "f", use)
    assert landed(place) == LANDED


def test_a_reader_after_a_command_in_a_copy_does_not_change_what_was_shown(place: Place) -> None:
    """``mudroom run`` applies what it has shown: an indexer or a backup that reads a new file then is no change."""
    session = place.session(Settings(view="copy"))
    result = session.run([b"sh", b"-c", b"echo new > new"])
    work = session.vault.fork(result.fork).contents[0]
    with open(os.fsdecode(work) + "/new", "rb"):
        session.changes.apply(result.fork, reviewed=fingerprint(result.changeset))
    assert (place.project / "new").read_text() == "new\n"


def test_a_file_of_a_copy_view_whose_times_were_set_back(place: Place, held: ExitStack) -> None:
    session = place.session(Settings(view="copy"))
    background, seen = sandboxed(session)
    path = os.open(seen / "plain", os.O_PATH)
    held.callback(os.close, path)
    background.end()
    session.changes.review("f")
    before = os.stat(f"/proc/self/fd/{path}")
    writable = os.open(f"/proc/self/fd/{path}", os.O_WRONLY)
    os.write(writable, b"planted!")
    os.utime(writable, ns=(before.st_mtime_ns, before.st_mtime_ns))
    os.close(writable)
    with pytest.raises(ForkMoved):
        session.changes.apply("f")
    assert landed(place) == {}


ENTER = """
import ctypes, os, sys, time
libc = ctypes.CDLL(None, use_errno=True)
spaces = [os.open(f"/proc/{sys.argv[1]}/ns/{name}", os.O_RDONLY) for name in ("user", "mnt")]
for opened, flag in zip(spaces, (0x10000000, 0x00020000)):
    if libc.setns(opened, flag) < 0:
        sys.exit(os.strerror(ctypes.get_errno()))
print("in", flush=True)
sys.stdin.read()
"""


def test_while_a_process_of_the_sandbox_lives_nothing_is_applied(place: Place) -> None:
    session = place.session()
    background, seen = sandboxed(session)
    command = [sys.executable, "-I", "-S", "-c", ENTER, seen.parts[2]]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as living:
        assert living.stdout is not None and living.stdout.readline() == b"in\n"
        background.end()
        with pytest.raises(SandboxAlive) as refused:
            session.changes.apply("f")
        assert str(living.pid) in refused.value.message and "python" in refused.value.message
        assert landed(place) == {}
        session.vault.fork("f").begin(
            CommandStart(time.time_ns())
        )  # as if mudroom had been killed while the command ran
        with pytest.raises(SandboxAlive, match=str(living.pid)):
            session.changes.of("f")
        assert session.forks.known_record("f") is not None  # a list is still shown
        living.communicate(b"")
    session.changes.apply("f")
    assert landed(place) == LANDED


def test_moves_stay_the_fast_way(place: Place) -> None:
    """Without an accomplice the files that land are those that the command has made: none was copied."""
    session = place.session()
    result = session.run([b"sh", b"-c", MADE.encode()], fork="f")
    session.changes.review("f")
    session.changes.apply("f")
    for change in result.changeset.changes:
        assert change.staged is not None
        assert (place.project / os.fsdecode(change.path)).lstat().st_ino == change.staged.inode


def test_a_moved_sealed_layer_was_not_copied(place: Place) -> None:
    session = place.session()
    session.run([b"sh", b"-c", MADE.encode()], fork="f")
    session.forks.checkpoint("f", "sealed")
    (layer,) = session.vault.fork("f").state.layers
    before = os.stat(session.vault.layer(layer) + b"/tree/plain").st_ino
    session.forks.new("g", parent="f", at="sealed")
    session.changes.review("g")
    session.changes.apply("g")
    assert os.stat(session.vault.layer(layer) + b"/tree/plain").st_ino == before


@pytest.mark.parametrize("number", range(2))
def test_two_forks_over_one_layer_are_looked_at_at_once(
    place: Place, held: ExitStack, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """Each has its own lock, and the layer is of both: it is replaced once, and both records are of its files."""
    session = place.session()
    background, seen = sandboxed(session)
    hold(seen, "directory", held)
    background.end()
    layer = session.vault.fork("f").state.upper
    session.forks.checkpoint("f", "sealed")
    for name in ("g", "h"):
        session.forks.new(name, parent="f", at="sealed")
    forget_release(session.vault.path, layer)  # as after a full disk
    both = threading.Barrier(2)

    def asked(trees: list[bytes], _scratch: bytes) -> list[bool]:
        with suppress(threading.BrokenBarrierError):  # the other waits for the first
            both.wait(0.3)
        return [False] * len(trees)

    monkeypatch.setattr(apart, "released", asked)
    with ThreadPoolExecutor(2) as pool:
        shown = list(pool.map(lambda name: session.changes.review(name).changeset, ("g", "h")))
    assert [len(changeset.changes) for changeset in shown] == [4, 4]
    for name in ("g", "h") if number else ("h", "g"):
        assert not session.changes.apply(name).conflicts
        assert landed(place) == LANDED
        session.changes.undo()


RENAME = """
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
for call in (libc.sethostname, libc.setdomainname):
    print(call(b"theirs", 6), ctypes.get_errno())
try:
    open("/proc/sys/kernel/hostname", "w").write("theirs")
except OSError as error:
    print(-1, error.errno)
"""


def test_no_command_changes_the_names_of_the_machine_that_all_of_a_template_share(place: Place) -> None:
    session = place.session()
    for _time in range(3):  # the third is cloned from the template
        before = session.run([b"uname", b"-n"], fork="b").stdout
    tried = session.run([sys.executable.encode(), b"-c", RENAME.encode()], fork="a")
    assert [line.split()[0] for line in tried.stdout.decode().splitlines()] == ["-1"] * 3, tried
    for fork in ("a", "b", "c"):
        assert session.run([b"uname", b"-n"], fork=fork).stdout == before == os.uname().nodename.encode() + b"\n"


def test_a_secret_that_was_shown_and_left_its_layer_is_not_its(place: Place, held: ExitStack) -> None:
    """Such a secret is moved out of the layer when the command ends, and lands from there."""
    place.write(".env", "before\n")
    session = place.session(Settings(secrets_show=(b".env",)))
    background = session.start([b"sh", b"-c", f"echo reviewed > .env; {WAITING}".encode()], fork="f")
    heard(background, b"up")
    project = os.fsdecode(session.vault.project)
    seen = [Path(f"/proc/{name}/root{project}/.env") for name in os.listdir("/proc") if name.isdigit()]
    page = mapped(next(path for path in seen if _is_reviewed(path)), held)
    background.end()
    session.changes.review("f")
    page(b"planted!")
    session.changes.apply("f")
    page(b"planted!")
    assert (place.project / ".env").read_text() == REVIEWED


def _is_reviewed(path: Path) -> bool:
    try:
        return path.read_text() == REVIEWED
    except OSError:
        return False
