"""The state directory is its user's alone, whatever the umask and whatever was there before."""

from __future__ import annotations

import os
import re
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from conftest import Place
from mudroom.errors import MudroomError, UsageError
from mudroom.ext.fleet.worker.stdio import origin_directory
from mudroom.stage import disk, private_directory
from mudroom.stage.private_directory import PRIVATE, require_private
from mudroom.vault.store.store import require_private_state

NOBODY = 65534


@pytest.fixture
def mask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def opened_by_another(root: Path) -> list[str]:
    """Return the paths below ``root`` that user 65534 can list or read. As an ordinary user: those to which a mode on
    the way would let somebody else."""
    if os.geteuid() != 0:
        return [] if mode(root) & 0o077 == 0 else [str(root)]
    for above in (root.parent, *root.parent.parents):
        above.chmod(mode(above) | 0o011) if mode(above) & 0o011 != 0o011 else None
    walk = os.walk(os.fsencode(root))  # a file of a kernel's mount may go meanwhile
    paths = [os.fsencode(root)]
    paths += [os.path.join(above, name) for above, directories, files in walk for name in (*directories, *files)]
    program = (
        "import os,sys\n"
        f"os.setgroups([]); os.setgid({NOBODY}); os.setuid({NOBODY})\n"
        "for path in sys.stdin.buffer.read().split(b'\\0'):\n"
        "    for attempt in (os.listdir, os.lstat if path != sys.argv[1].encode() else os.listdir, os.open):\n"
        "        try:\n"
        "            attempt(path, os.O_RDONLY) if attempt is os.open else attempt(path)\n"
        "            print(path)\n"
        "        except OSError: pass\n"
    )
    words = [sys.executable, "-S", "-c", program, str(root)]
    done = subprocess.run(words, input=b"\0".join(paths), capture_output=True, check=True)
    return done.stdout.decode().splitlines()


@pytest.mark.both_users
@pytest.mark.root
@pytest.mark.parametrize("umask", [0, 0o022, 0o027, 0o077])
def test_no_other_user_reaches_the_state_of_a_session(place: Place, mask: None, umask: int) -> None:
    os.umask(umask)
    place.write("file", "text")
    place.state = place.root / "made/above/state"
    session = place.session()
    session.run([b"sh", b"-c", b"mkdir -m 777 open; echo x > open/file; chmod 666 open/file"], fork="f")
    for made in (place.state, place.state.parent, place.state.parent.parent):
        assert mode(made) == 0o700, made
    vault = Path(os.fsdecode(session.vault.path))
    for made in (vault.parent, vault, *(path for path in vault.iterdir() if path.is_dir())):
        assert mode(made) == 0o700, made
    assert opened_by_another(place.state) == []


@pytest.mark.both_users
@pytest.mark.root
def test_a_state_directory_of_mudroom_that_was_open_is_closed(place: Place, mask: None) -> None:
    place.session().run([b"true"], fork="f")
    place.state.chmod(0o755)
    place.session().run([b"true"], fork="f")
    assert mode(place.state) == 0o700


@pytest.mark.parametrize("given", [0o777, 0o755, 0o750, 0o711])
def test_an_empty_directory_that_is_given_is_closed(tmp_path: Path, mask: None, given: int) -> None:
    state = tmp_path / "state"
    state.mkdir(given)
    require_private(os.fsencode(state))
    assert mode(state) == 0o700


def test_a_directory_with_other_files_is_refused_and_stays(tmp_path: Path, mask: None) -> None:
    state = tmp_path / "shared"
    state.mkdir(0o755)
    (state / "notes.txt").touch()
    with pytest.raises(UsageError, match=r"is open to other users \(mode 0755\), and holds notes.txt") as caught:
        require_private(os.fsencode(state))
    assert caught.value.hint == f"MUDROOM_STATE={state}/mudroom is made for you alone"
    assert mode(state) == 0o755
    require_private(os.fsencode(state / "mudroom"))
    assert mode(state / "mudroom") == 0o700
    assert mode(state) == 0o755


def test_a_sticky_directory_is_refused_even_if_it_is_empty(tmp_path: Path) -> None:
    state = tmp_path / "tmp"
    state.mkdir()
    state.chmod(0o1777)
    with pytest.raises(UsageError, match="it is meant for all"):
        require_private(os.fsencode(state))
    assert mode(state) == 0o1777


def test_a_closed_directory_with_other_files_is_used(tmp_path: Path) -> None:
    state = tmp_path / "mine"
    state.mkdir(0o700)
    (state / "notes.txt").touch()
    require_private(os.fsencode(state) + b"/")
    assert mode(state) == 0o700


def test_a_link_and_a_file_are_refused(place: Place) -> None:
    target = place.root / "elsewhere"
    target.mkdir(0o700)
    place.state.symlink_to(target)
    with pytest.raises(UsageError, match="is a symbolic link") as caught:
        place.session()
    assert caught.value.hint == f"MUDROOM_STATE={target} names its target"
    assert list(target.iterdir()) == []
    place.state.unlink()
    place.state.touch()
    with pytest.raises(UsageError, match="is not a directory"):
        place.session()


def test_the_directory_of_another_user_is_refused() -> None:
    """Every machine has one that is not the caller's."""
    foreign = b"/proc/1" if os.geteuid() else b""
    if not foreign:
        made = Path("/var/tmp") / f"mudroom-test-{os.getpid()}"
        made.mkdir()
        os.chown(made, NOBODY, NOBODY)
        foreign = os.fsencode(made)
    try:
        with pytest.raises(UsageError, match="belongs to another user"):
            require_private(foreign)
    finally:
        if os.geteuid() == 0:
            os.rmdir(foreign)


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="only root is another user at will")
@pytest.mark.parametrize("linked", [False, True])
def test_a_directory_below_another_users_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, linked: bool
) -> None:
    """Its owner can put another one in the place of ours at any time."""
    theirs, state = tmp_path / "theirs", tmp_path / "theirs/state"
    state.mkdir(mode=0o700, parents=True)
    os.chown(theirs, 4242, 4242)
    os.chown(state, 4243, 4243)
    if linked:
        (tmp_path / "linked").symlink_to(theirs)
        state = tmp_path / "linked/state"
    monkeypatch.setattr(disk, "user", lambda: 4243)
    with pytest.raises(UsageError) as caught:
        require_private(os.fsencode(state))
    assert caught.value.message == (
        f"the state directory {state} lies in {theirs}, which belongs to another user (uid 4242)"
    )
    assert caught.value.hint == "set MUDROOM_STATE to a directory of your own"
    shutil.rmtree(state)
    with pytest.raises(UsageError, match="lies in"):
        require_private(os.fsencode(state) + b"/deep")
    assert not os.path.lexists(state), "nothing is made there"
    state.mkdir(mode=0o700)
    os.chown(state, 4243, 4243)
    os.chown(theirs, 4243, 4243)
    require_private(os.fsencode(state))
    os.chown(theirs, NOBODY, NOBODY)
    with pytest.raises(UsageError, match="lies in"):
        require_private(os.fsencode(state))
    monkeypatch.setattr(private_directory, "_leaves_ids_out", lambda: True)
    require_private(os.fsencode(state))  # a user namespace shows owners that it does not map as nobody


@pytest.mark.both_users
@pytest.mark.root
@pytest.mark.parametrize("umask", [0o777, 0o700, 0o277])
def test_a_umask_that_takes_the_users_own_rights_is_refused_and_nothing_is_made(
    place: Place, mask: None, umask: int
) -> None:
    os.umask(umask)
    with pytest.raises(UsageError, match=r"the umask .* takes your own rights to new files") as caught:
        place.session()
    assert caught.value.hint == "umask 077 leaves them"
    assert not place.state.exists()
    os.umask(0o022)
    place.session().close()
    os.umask(umask)
    with pytest.raises(MudroomError, match=r"the umask .* takes your own rights"):
        place.session()


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="only root is another user at will")
@pytest.mark.parametrize("is_there", [False, True])
def test_root_keeps_no_state_in_the_home_of_another_user(tmp_path: Path, is_there: bool) -> None:
    """As with sudo, where it keeps HOME: that user puts another directory in the place of root's between its check and
    its use."""
    os.chown(tmp_path, 4242, 4242)
    state = tmp_path / ".local/state/mudroom"
    if is_there:  # of a mudroom before this rule
        state.mkdir(PRIVATE, parents=True)
    said = f"the state directory {state} lies in {tmp_path}, which belongs to another user"
    with pytest.raises(UsageError, match=re.escape(said)) as caught:
        require_private_state(os.fsencode(state))
    assert caught.value.hint == "set MUDROOM_STATE to a directory of your own"
    assert is_there or list(tmp_path.iterdir()) == [], "nothing is made there"


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="only root is another user at will")
def test_a_worker_of_root_keeps_nothing_in_the_home_of_another_user(tmp_path: Path) -> None:
    os.chown(tmp_path, 4242, 4242)
    state = tmp_path / ".local/state/mudroom"
    with pytest.raises(UsageError, match="which belongs to another user"):
        origin_directory(os.fsencode(state), "0" * 16)
    assert list(tmp_path.iterdir()) == []
