"""A login that is renewed inside is the host's, however the agent writes it; one that is not kept is said."""

from __future__ import annotations

import base64
import errno
import json
import os
import stat
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from archived import archived
from background_command import heard
from clocks import give_way
from conftest import Place, act_as
from mudroom.core.clock import CommandStart
from mudroom.core.result import Result
from mudroom.core.settings import Settings
from mudroom.errors import MudroomError
from mudroom.ext.agents.catalog import Catalog
from mudroom.ext.agents.home import login as login_module
from mudroom.sandbox.host.host import landlock_abi
from mudroom.session import Session
from mudroom.stage import disk
from mudroom.vault.turn import LOOK
from tiers import half

pytestmark = pytest.mark.both_users

WAYS = {
    "in place": 'open(path, "r+").write(new)',
    "truncated": 'open(path, "w").write(new)',
    "renamed": 'open(path + ".tmp", "w").write(new); os.rename(path + ".tmp", path)',
    "unlinked and created": 'os.unlink(path); open(path, "x").write(new)',
    "linked and renamed": """
open(path + ".n", "w").write(new); os.link(path + ".n", path + ".o"); os.rename(path + ".o", path)""",
    "another entry": 'os.link(path, path + ".x"); open(path + ".x", "w").write(new); os.unlink(path + ".x")',
    "another directory": """
above = os.path.dirname(path)
os.mkdir(above + "/new.d"); open(above + "/new.d/x", "w").write(new); os.rename(above + "/new.d/x", path)
os.rmdir(above + "/new.d")""",
}
PROFILES = [name for name in Catalog().names() if Catalog().profile(name).tokens]
MODES = [(0, "overlay"), (0, "copy"), (1, "overlay"), (1, "copy"), (1, "landlock")]


GO = "import time\nwhile not os.path.exists(os.path.dirname(path) + '/go'): time.sleep(0.002)\n"


def opened(place: Place, agent: str = "codex", level: int = 1, view: str = "auto") -> Session:
    session = place.session(Settings(network="none", view="auto" if view == "landlock" else view))  # type: ignore[arg-type]
    act_as(session, card=Catalog().profile(agent).card(level))
    if view == "landlock":
        if not landlock_abi():
            pytest.skip("this kernel has no Landlock")
        session.machine.confinement.mode = "landlock"
    return session


def log_in(place: Place, name: str = ".codex/auth.json", content: str = '{"token": "old"}') -> Path:
    path = place.home / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)
    path.chmod(0o600)
    return path


def python(session: Session, path: str, code: str, fork: str = "f", new: str = "") -> Result:
    script = f"import os\npath = os.path.expanduser('~/{path}')\nnew = {new!r}\n{code}\n"
    result = session.run([b"/usr/bin/python3", b"-c", script.encode()], fork=fork)
    assert result.exit_code == 0, result.stderr
    return result


def told(result: Result) -> list[str]:
    return [note for note in result.notes if "login" in note]


def copies(place: Place) -> list[Path]:
    """Return the logins in the state that a command left."""
    homes = place.state.glob("vaults/*/forks/*/home")  # the launcher removes other directories of forks meanwhile
    found = [path for home in homes for path in home.rglob("*")]
    return [path for path in found if path.name in ("auth.json", "logins") or "aside-" in path.name]


@pytest.mark.parametrize("agent", half(PROFILES))
def test_every_way_of_writing_for_every_profile(place: Place, agent: str) -> None:
    session = opened(place, agent)
    paths = [os.fsdecode(token) for token in Catalog().profile(agent).tokens]
    hosts = {path: log_in(place, path) for path in paths}
    for path, host in hosts.items():
        for number, (way, code) in enumerate(WAYS.items()):
            new = json.dumps({"token": f"new {number}"})
            assert told(python(session, path, code, new=new)) == [], way
            assert host.read_text() == new, way
            assert stat.S_IMODE(host.stat().st_mode) == 0o600
            assert [entry for entry in os.listdir(host.parent) if "mudroom" in entry] == []
    assert not copies(place)


@pytest.mark.parametrize(("level", "view"), MODES)
def test_every_way_of_writing_in_every_mode(place: Place, level: int, view: str) -> None:
    session, host = opened(place, level=level, view=view), log_in(place)
    host.chmod(0o640)
    for number, (way, code) in enumerate(WAYS.items()):
        new = json.dumps({"token": f"new {number}"})
        assert told(python(session, ".codex/auth.json", code, new=new)) == [], way
        assert (host.read_text(), stat.S_IMODE(host.stat().st_mode)) == (new, 0o640), way
    assert not copies(place)


def test_a_login_behind_links_of_the_user_stays_behind_them(place: Place) -> None:
    real = log_in(place, "dotfiles/codex/auth.json")
    (place.home / ".codex").symlink_to("dotfiles/codex")
    python(opened(place), ".codex/auth.json", WAYS["renamed"], new='{"token": 1}')
    assert real.read_text() == '{"token": 1}' and (place.home / ".codex").is_symlink()


def meanwhile(result: Callable[[], Result], act: Callable[[threading.Event], None]) -> Result:
    over = threading.Event()
    other = threading.Thread(target=act, args=(over,))
    other.start()
    try:
        return result()
    finally:
        over.set()
        other.join()


def test_a_command_in_the_background_and_one_beside_it(place: Place) -> None:
    session, host = opened(place), log_in(place)
    started = session.start([b"sh", b"-c", b"echo up; sleep 600"], fork="f")
    heard(started, b"up")
    python(session, ".codex/auth.json", WAYS["renamed"], new='{"token": "beside"}')
    assert host.read_text() == '{"token": "beside"}'
    started.end()
    while copies(place):  # the sandbox ends after its last command
        give_way()


def copy_of(place: Place, over: threading.Event) -> Path:
    """Return the copy of codex's login, once a command has it. Both sides may be changed from then on."""
    while not (copies := list(place.state.glob("vaults/*/forks/*/home/codex/logins"))):
        assert not over.wait(0.002)
    return copies[0].parent / "0/auth.json"


def jwt(ends: int) -> str:
    claims = base64.urlsafe_b64encode(json.dumps({"exp": ends}).encode()).rstrip(b"=").decode()
    return json.dumps({"tokens": {"access_token": f"e30.{claims}.c2ln"}})


@pytest.mark.parametrize("inside_is_newer", [False, True])
def test_of_two_renewals_the_newer_is_kept_and_the_other_is_named(place: Place, inside_is_newer: bool) -> None:
    session, host = opened(place), log_in(place)
    inside, outside = jwt(2_000_000_001 if inside_is_newer else 1_999_999_999), jwt(2_000_000_000)
    code = GO + WAYS["renamed"]
    script = f"import os\npath = os.path.expanduser('~/.codex/auth.json')\nnew = {inside!r}\n{code}\n"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(login_module.LoginKeeper, "look", lambda *_words, **_more: None)  # both, before a look

        def renew(over: threading.Event) -> None:
            copy = copy_of(place, over)
            host.write_text(outside)
            (copy.parent / "go").touch()

        result = meanwhile(lambda: session.run([b"/usr/bin/python3", b"-c", script.encode()], fork="f"), renew)
    winner, loser = (inside, outside) if inside_is_newer else (outside, inside)
    where = "inside" if inside_is_newer else "on this machine"
    (note,) = told(result)
    assert f"codex's login ~/.codex/auth.json was renewed inside and on this machine: the one {where} is newer" in note
    assert host.read_text() == winner
    aside = Path(note.rpartition(": ")[2])
    assert aside.read_text() == loser and stat.S_IMODE(aside.stat().st_mode) == 0o600


REFUSED = {
    'os.unlink(path); os.symlink(os.path.expanduser("~/secret"), path)': "a symlink is in its place",
    "os.unlink(path); os.mkdir(path)": "a directory is in its place",
    "os.unlink(path); os.mkfifo(path)": "a fifo is in its place",
    'open(path, "w").write("{\\"token\\": ")': "only a part of it was written, or something else",
    'open(path, "w")': "only a part of it was written, or something else",
    "os.truncate(path, (16 << 20) + 1)": "it is larger than 16 MiB",
}


@pytest.mark.parametrize("code", REFUSED)
def test_anything_but_a_login_is_not_kept_and_that_is_said(place: Place, code: str) -> None:
    session, host = opened(place), log_in(place)
    (place.home / "secret").write_text('{"of": "the host"}')
    result = python(session, ".codex/auth.json", code)
    (note,) = told(result)
    assert note.startswith(f"codex's login ~/.codex/auth.json was not kept: {REFUSED[code]}; "), note
    assert note.endswith("this machine's own is left as it is; log in again if it is used up"), note
    assert not copies(place)
    assert python(session, ".codex/auth.json", "print(open(path).read())").stdout == b'{"token": "old"}\n'
    assert host.read_text() == '{"token": "old"}'
    assert (place.home / "secret").read_text() == '{"of": "the host"}'


@pytest.mark.parametrize("part", ['[{"token": ', '{"token": "new"}', '""'])
def test_a_part_of_a_list_of_logins_is_not_kept(place: Place, part: str) -> None:
    """gemini and qwen keep the tokens of MCP servers as a list."""
    file = ".gemini/mcp-oauth-tokens.json"
    session, host = opened(place, "gemini"), log_in(place, file, '[{"token": "old"}]')
    (note,) = told(python(session, file, WAYS["truncated"], new=part))
    assert "was not kept: only a part of it was written, or something else; " in note
    assert host.read_text() == '[{"token": "old"}]'
    assert told(python(session, file, WAYS["truncated"], new='[{"token": "new"}]')) == []
    assert host.read_text() == '[{"token": "new"}]'


def test_a_directory_on_the_way_that_became_a_link_is_not_followed(place: Place) -> None:
    session, host = opened(place, "cline"), log_in(place, ".cline/data/secrets.json")
    code = 'above = os.path.dirname(path); os.rename(above, above + "2"); os.symlink(above + "2", above)'
    (note,) = told(python(session, ".cline/data/secrets.json", code, new="{}"))
    assert "removed inside" in note
    assert host.read_text() == '{"token": "old"}'
    assert told(python(session, ".cline/data/secrets.json", WAYS["renamed"], new='{"token": 2}')) == []
    assert host.read_text() == '{"token": 2}'


def test_a_link_that_is_put_on_the_way_to_the_host_s_file_is_not_followed(place: Place) -> None:
    """By another agent, to which the user has opened the directory behind his own link."""
    real = log_in(place, "dotfiles/codex/auth.json")
    (place.home / ".codex").symlink_to("dotfiles/codex")
    other = log_in(place, "other/auth.json", '{"of": "another"}')
    session = opened(place)

    def plant(over: threading.Event) -> None:
        copy = copy_of(place, over)
        real.parent.rename(place.home / "moved")
        real.parent.symlink_to("../other")
        (copy.parent / "go").touch()

    result = meanwhile(lambda: python(session, ".codex/auth.json", GO + WAYS["renamed"], new='{"token": 1}'), plant)
    (note,) = told(result)
    assert "was not kept: a link is in its place; it is in " in note and "cp " not in note
    assert other.read_text() == '{"of": "another"}'
    assert (place.home / "moved/auth.json").read_text() == '{"token": "old"}'


def test_a_half_written_login_waits_for_its_other_half(place: Place) -> None:
    session, host = opened(place), log_in(place)
    half = 'stream = open(path, "w"); stream.write("{"); stream.flush()\n'
    half += 'open(os.path.dirname(path) + "/half", "x")\n' + GO + "stream.write('}'); stream.close()"
    seen = []

    def look(over: threading.Event) -> None:
        copy = copy_of(place, over)
        while not (copy.parent / "half").exists():
            assert not over.wait(0.002)
        until = time.monotonic() + 3 * LOOK
        while time.monotonic() < until:
            seen.append(host.read_text())
            give_way()
        (copy.parent / "go").touch()

    assert told(meanwhile(lambda: python(session, ".codex/auth.json", half), look)) == []
    assert set(seen) == {'{"token": "old"}'}
    assert host.read_text() == "{}"


@pytest.mark.parametrize("left", ["a mount point", "a link", "a directory"])
def test_a_fork_of_an_earlier_version(place: Place, left: str) -> None:
    session, host = opened(place), log_in(place)
    python(session, ".codex/auth.json", "")
    (store,) = place.state.glob("vaults/*/forks/f/home/codex/0")
    path = store / "auth.json"
    if left == "a link":
        path.symlink_to(host)
    else:
        path.touch() if left == "a mount point" else path.mkdir()
    python(session, ".codex/auth.json", "assert 'old' in open(path).read()\n" + WAYS["renamed"], new='{"token": 1}')
    assert host.read_text() == '{"token": 1}' and not host.is_symlink()


def test_a_damaged_list_of_logins_is_named(place: Place) -> None:
    session, host = opened(place), log_in(place)
    python(session, ".codex/auth.json", "")
    (store,) = place.state.glob("vaults/*/forks/f/home/codex")
    (store / "logins").write_text('[["a"]]')
    with pytest.raises(MudroomError, match=r"home/codex/logins cannot be read: .*") as raised:
        session.run([b"true"], fork="f")
    assert raised.value.hint == "remove it: the fork's login is lost then"
    assert host.read_text() == '{"token": "old"}'


@pytest.mark.parametrize(("kind", "why"), [("a pipe", "it is no regular file"), ("a large file", "it is larger than")])
def test_a_login_of_the_host_that_is_none_is_not_staged(place: Place, kind: str, why: str) -> None:
    session, host = opened(place), log_in(place)
    if kind == "a pipe":
        host.unlink()
        os.mkfifo(host)
    else:
        os.truncate(host, (16 << 20) + 1)
    (note,) = told(python(session, ".codex/auth.json", "assert not os.path.lexists(path)"))
    assert note.startswith(f"codex's login ~/.codex/auth.json is not staged: {why}"), note


def test_a_login_that_is_removed_inside_stays_on_the_host(place: Place) -> None:
    session, host = opened(place), log_in(place)
    (note,) = told(python(session, ".codex/auth.json", "os.unlink(path)"))
    assert note == "codex's login ~/.codex/auth.json was removed inside; this machine's own is left as it is"
    assert host.read_text() == '{"token": "old"}'
    assert python(session, ".codex/auth.json", "print(open(path).read())").stdout == b'{"token": "old"}\n'


def test_a_login_that_the_user_has_removed_is_not_made_again(place: Place) -> None:
    session, host = opened(place), log_in(place)
    code = GO + WAYS["renamed"]

    def log_out(over: threading.Event) -> None:
        copy = copy_of(place, over)
        host.unlink()
        (copy.parent / "go").touch()

    result = meanwhile(lambda: python(session, ".codex/auth.json", code, new='{"token": "new"}'), log_out)
    (note,) = told(result)
    assert "was not kept: this machine has none any more; cp " in note and f" {host} keeps it" in note
    assert not host.exists()
    host.write_text('{"token": "another"}')  # the next command finds two that it knows nothing of
    (note,) = told(python(session, ".codex/auth.json", "print(open(path).read())"))
    assert "on this machine is newer" in note
    assert host.read_text() == '{"token": "another"}'


def test_of_a_command_in_the_background_the_next_result_says_it(place: Place) -> None:
    session, _host = opened(place), log_in(place)
    started = session.start([b"sh", b"-c", b"rm ~/.codex/auth.json"], fork="f")
    assert started.wait() is not None
    session.sandboxes.wait_for_ended("f")  # the note comes after the copies have gone
    assert not copies(place)
    (note,) = told(session.run([b"true"], fork="f"))
    assert "was removed inside" in note


@pytest.mark.parametrize("verb", ["run", "diff", "discard"])
def test_after_a_kill_the_next_verb_brings_the_login(place: Place, verb: str, monkeypatch: pytest.MonkeyPatch) -> None:
    session, host = opened(place), log_in(place)
    with monkeypatch.context() as patch:  # as a process that is gone: neither a look nor the end
        patch.setattr(login_module.LoginKeeper, "look", lambda *_words, **_more: None)
        patch.setattr(login_module.LoginKeeper, "close", lambda *_words: None)
        python(session, ".codex/auth.json", WAYS["renamed"], new='{"token": "new"}')
    assert host.read_text() == '{"token": "old"}' and copies(place)
    session.vault.fork("f").begin(CommandStart(1))
    again = opened(place)
    if verb == "run":
        python(again, ".codex/auth.json", "assert 'new' in open(path).read()")
    elif verb == "diff":
        again.forks.changeset("f")
    else:
        again.forks.discard("f")
    assert host.read_text() == '{"token": "new"}'
    assert not copies(place)


def test_a_file_that_can_only_be_written_in_place_is(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a container of the user's the login may be a mount, onto which rename(2) fails with EBUSY."""
    host = log_in(place)
    inode = host.stat().st_ino
    assert in_place(place, monkeypatch, '{"t": 1}') == []
    assert (host.read_text(), host.stat().st_ino) == ('{"t": 1}', inode)
    assert os.listdir(host.parent) == ["auth.json"]


def test_the_host_s_file_is_whole_at_any_time(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """A new file, synced before it has the name; and the name is synced, too."""
    session, host = opened(place), log_in(place)
    done: list[tuple[str, bool, bool]] = []

    def noted(name: str, call: Callable[..., None]) -> Callable[..., None]:
        def noting(*words: int | bytes) -> None:
            if name == "sync" or b".mudroom-" in bytes(words[1]):
                call(*words)
                is_directory = name == "sync" and stat.S_ISDIR(os.fstat(int(words[0])).st_mode)
                done.append((name, is_directory, host.read_text() != '{"token": "old"}'))
            else:
                call(*words)

        return noting

    for name in ("sync", "rename"):
        monkeypatch.setattr(disk, name, noted(name, getattr(disk, name)))
    python(session, ".codex/auth.json", WAYS["renamed"], new='{"token": "new"}')
    assert done == [("sync", False, False), ("rename", False, True), ("sync", True, True)]


def test_the_copy_is_not_a_setting_and_not_in_an_archive(place: Place) -> None:
    session, host = opened(place), log_in(place)
    python(session, ".codex/auth.json", "new = '{\"t\": \"SECRET-' + 'TOKEN\"}'\n" + WAYS["renamed"])
    from mudroom.ext.agents.home.agent_settings import agent_settings

    assert agent_settings(session, "f") == []
    assert "SECRET-TOKEN" in host.read_text()
    assert b"SECRET-TOKEN" not in archived(session, "f")
    session.close()  # the launcher removes directories until then
    assert [path for path in place.state.rglob("*") if path.is_file() and b"SECRET-TOKEN" in path.read_bytes()] == []


def test_settings_files_that_are_absent_stay_absent(place: Place) -> None:
    """aider does not start with empty ones."""
    (place.home / ".aider").mkdir()
    session = opened(place, "aider")
    names = (".aider.conf.yml", ".aider.model.settings.yml")
    look = f"print([os.path.lexists(os.path.expanduser('~/' + name)) for name in {names}])"
    assert python(session, ".aider", look).stdout == b"[False, False]\n"
    (place.home / ".aider.conf.yml").write_text("dark-mode: true\n")
    assert python(session, ".aider", look).stdout == b"[True, False]\n"
    (place.home / ".aider.conf.yml").unlink()
    assert python(session, ".aider", look).stdout == b"[False, False]\n"


def in_place(place: Place, monkeypatch: pytest.MonkeyPatch, new: str) -> list[str]:
    """Renew a login onto which rename(2) fails, as it does onto a mount."""
    session, rename = opened(place), disk.rename

    def refuse(at: int, name: bytes, to: int, new: bytes) -> None:
        if b".mudroom-" in name:
            raise OSError(errno.EBUSY, "Device or resource busy")
        rename(at, name, to, new)

    monkeypatch.setattr(disk, "rename", refuse)
    return told(python(session, ".codex/auth.json", WAYS["renamed"], new=new))


def test_a_login_in_place_is_written_to_its_end(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """write(2) may write a part: the disk is almost full, or a signal comes."""
    host, pwrite = log_in(place), disk.pwrite
    monkeypatch.setattr(disk, "pwrite", lambda descriptor, data, offset: pwrite(descriptor, data[:7], offset))
    assert in_place(place, monkeypatch, '{"token": "one that is longer"}') == []
    assert host.read_text() == '{"token": "one that is longer"}'


def test_a_login_in_place_on_a_full_disk_stays_as_it_is(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    host, pwrite = log_in(place), disk.pwrite
    most = host.stat().st_size + 3

    def full(descriptor: int, data: bytes, offset: int) -> int:
        if not os.path.samestat(os.fstat(descriptor), host.stat()):
            return pwrite(descriptor, data, offset)
        if offset >= most:
            raise OSError(errno.ENOSPC, "No space left on device")
        return pwrite(descriptor, data[: most - offset], offset)

    monkeypatch.setattr(disk, "pwrite", full)
    (note,) = in_place(place, monkeypatch, '{"token": "one that is longer"}')
    assert "was not kept: No space left on device; cp " in note
    assert host.read_text() == '{"token": "old"}'


def test_on_a_full_disk_it_is_said_that_a_login_was_not_kept(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the login nor the list of logins can be written then."""
    session, host = opened(place), log_in(place)
    code = GO + WAYS["renamed"]

    def fill(over: threading.Event) -> None:
        copy = copy_of(place, over)

        def full(*_words: object, **_more: object) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr(login_module, "_write_new", full)
        monkeypatch.setattr(login_module.LoginKeeper, "_save", full)
        (copy.parent / "go").touch()

    (note,) = told(meanwhile(lambda: python(session, ".codex/auth.json", code, new='{"token": "new"}'), fill))
    assert "was not kept: No space left on device; cp " in note
    monkeypatch.undo()
    python(session, ".codex/auth.json", "assert 'new' in open(path).read()")
    assert host.read_text() == '{"token": "new"}'
    assert not copies(place)


def test_a_kill_before_the_rename_leaves_no_token_beside_the_login(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    session, host = opened(place), log_in(place)
    with monkeypatch.context() as patch:  # as a process that is gone: nothing is removed
        patch.setattr(login_module.LoginKeeper, "look", lambda *_words, **_more: None)
        patch.setattr(login_module.LoginKeeper, "close", lambda *_words: None)
        python(session, ".codex/auth.json", WAYS["renamed"], new='{"token": "new"}')
    rename, unlink = disk.rename, disk.unlink

    def killed(at: int, name: bytes, to: int, new: bytes) -> None:
        if b".mudroom-" in name:
            monkeypatch.setattr(disk, "unlink", lambda *_words: None)
            raise KeyboardInterrupt
        rename(at, name, to, new)

    monkeypatch.setattr(disk, "rename", killed)
    session.vault.fork("f").begin(CommandStart(1))
    with pytest.raises(KeyboardInterrupt):
        opened(place).forks.changeset("f")
    monkeypatch.setattr(disk, "rename", rename)
    monkeypatch.setattr(disk, "unlink", unlink)
    assert len(os.listdir(host.parent)) == 2
    other = opened(place)
    assert python(other, ".codex/auth.json", "print(os.listdir(os.path.dirname(path)))", fork="g").stdout == (
        b"['auth.json']\n"
    )
    opened(place).forks.changeset("f")
    assert (host.read_text(), os.listdir(host.parent)) == ('{"token": "new"}', ["auth.json"])


def test_a_second_version_that_is_set_aside_leaves_the_first(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    session, host = opened(place), log_in(place)
    monkeypatch.setattr(login_module.LoginKeeper, "look", lambda *_words, **_more: None)
    named = []
    for turn in (1, 2):
        script = f"import os\npath = os.path.expanduser('~/.codex/auth.json')\nnew = {jwt(turn)!r}\n" + GO
        script += WAYS["renamed"] + "\nos.unlink(os.path.dirname(path) + '/go')"

        def renew(over: threading.Event, turn: int = turn) -> None:
            copy = copy_of(place, over)
            host.write_text(jwt(2_000_000_000 + turn))
            (copy.parent / "go").touch()

        command = [b"/usr/bin/python3", b"-c", script.encode()]
        (note,) = told(meanwhile(lambda command=command: session.run(command, fork="f"), renew))  # type: ignore[misc]
        named.append(Path(note.rpartition(": ")[2]))
    assert [aside.read_text() for aside in named] == [jwt(1), jwt(2)]


@pytest.mark.parametrize("changes", [False, True])
def test_a_fork_with_a_login_that_a_note_has_named_stays(
    place: Place, changes: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    session, host = opened(place), log_in(place)
    monkeypatch.setattr(login_module.LoginKeeper, "look", lambda *_words, **_more: None)

    def renew(over: threading.Event) -> None:
        copy = copy_of(place, over)
        host.write_text(jwt(2_000_000_000))
        (copy.parent / "go").touch()

    script = f"import os\npath = os.path.expanduser('~/.codex/auth.json')\nnew = {jwt(1)!r}\n" + GO + WAYS["renamed"]
    script += "\nopen('made', 'w')" if changes else ""
    result = meanwhile(lambda: session.run([b"/usr/bin/python3", b"-c", script.encode()]), renew)
    (note,) = told(result)
    if changes:
        session.changes.apply(result.fork)
        assert (place.project / "made").exists()
    else:
        session.forks.discard_unchanged(result.fork)
    assert Path(note.rpartition(": ")[2]).read_text() == jwt(1)
    session.forks.discard(result.fork)


def test_a_new_login_is_given_to_its_owner_by_its_descriptor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By its name, root would give away what another user has put there meanwhile."""
    given = []
    monkeypatch.setattr(os, "fchown", lambda opened, *owner: given.append((os.fstat(opened).st_ino, owner)))
    at = os.open(tmp_path, os.O_RDONLY)
    try:
        login_module._write_new(at, b"new", b"{}", 0o600, (1, 2))
    finally:
        os.close(at)
    assert given == [((tmp_path / "new").stat().st_ino, (1, 2))]


@pytest.mark.parametrize("closed", ["~/.codex", "~/.codex/inner", "~/.local/state/mudroom-dotfiles"])
def test_a_directory_that_a_command_has_closed_closes_nothing(place: Place, closed: str) -> None:
    session, host = opened(place), log_in(place)
    close = f"\nos.makedirs(os.path.expanduser({closed!r}), exist_ok=True); os.chmod(os.path.expanduser({closed!r}), 0)"
    assert told(python(session, ".codex/auth.json", WAYS["renamed"] + close, new='{"token": 1}')) == []
    assert host.read_text() == '{"token": 1}'
    from mudroom.ext.agents.home.agent_settings import agent_settings

    assert agent_settings(session, "f") == []
    python(session, ".codex/auth.json", "assert '1' in open(path).read()")
    session.forks.discard("f")
