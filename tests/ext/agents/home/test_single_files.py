"""A single-file store that is written inside is the host's at the end, however the program writes it, or it is said."""

from __future__ import annotations

import os
import stat
import subprocess
from pathlib import Path

import pytest

from background_command import heard
from conftest import Place, act_as
from engines import EngineHere
from mudroom.core.agent.card import AgentCard, Requirements
from mudroom.core.result import Result
from mudroom.core.settings import Settings
from mudroom.ext.agents.home.agent_settings import agent_settings
from mudroom.ext.agents.home.login import LoginKeeper
from mudroom.sandbox.host.host import landlock_abi
from mudroom.session import Session
from test_logins import MODES, WAYS, python
from test_logins import opened as with_profile
from tiers import half, pairs

pytestmark = pytest.mark.both_users

FILES = {
    ".npmrc": "npm",
    ".netrc": "netrc",
    ".git-credentials": "git-credentials",
    ".config/git/credentials": "git-credentials",
    ".cargo/credentials.toml": "cargo",
    ".gem/credentials": "gem",
    ".m2/settings.xml": "maven",
    ".gradle/gradle.properties": "gradle",
    ".yarnrc.yml": "yarn",
    ".pypirc": "pypi",
    ".terraformrc": "terraform",
    ".ssh/known_hosts": "",
    ".config/tool/token": "",
}
"""By path: the store, or none: the card names the file."""


def opened(place: Place, file: str, level: int = 1, view: str = "overlay") -> Session:
    session = place.session(Settings(network="none", view="auto" if view == "landlock" else view))  # type: ignore[arg-type]
    if view == "landlock":
        if not landlock_abi():
            pytest.skip("this kernel has no Landlock")
        session.machine.confinement.mode = "landlock"
    act_as(session, card=AgentCard("agent", level, Requirements(keychain=(FILES[file] or f"~/{file}",))))
    return session


def written(place: Place, file: str, content: str = "token=old\n") -> Path:
    path = place.home / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)
    path.chmod(0o600)
    return path


def told(result: Result, file: str) -> list[str]:
    return [note for note in result.notes if note.startswith(f"~/{file} ")]


@pytest.mark.parametrize(("file", "view"), pairs(list(FILES), ["overlay", "copy", "landlock"]))
def test_every_way_of_writing_for_every_file(place: Place, file: str, view: str) -> None:
    session, host = opened(place, file, view=view), written(place, file)
    for number, (way, code) in enumerate(WAYS.items()):
        new = f"token=new {number}\n"
        assert told(python(session, file, code, new=new), file) == [], way
        assert (host.read_text(), stat.S_IMODE(host.stat().st_mode)) == (new, 0o600), way
        assert [entry for entry in os.listdir(host.parent) if "mudroom" in entry] == []


def test_a_command_in_the_background_and_one_beside_it(place: Place) -> None:
    session, host = opened(place, ".npmrc"), written(place, ".npmrc")
    started = session.start([b"sh", b"-c", b"echo up; sleep 600"], fork="f")
    heard(started, b"up")
    for way, code in WAYS.items():
        python(session, ".npmrc", code, new=f"token={way}")
        assert host.read_text() == f"token={way}"
    started.end()


LOST = {
    "cut off": ('open(path, "w")', "was not kept: only a part of it was written"),
    "a directory": ("os.unlink(path); os.mkdir(path)", "was not kept: a directory is in its place"),
    "a link": ('os.unlink(path); os.symlink("/etc/passwd", path)', "was not kept: a symlink is in its place"),
    "a large file": ('open(path, "w").write("x" * (17 << 20))', "was not kept: it is larger than 16 MiB"),
    "removed": ("os.unlink(path)", "was removed inside; this machine's own is left as it is"),
}


@pytest.mark.parametrize("what", LOST)
def test_a_write_that_is_not_kept_is_said(place: Place, what: str) -> None:
    session, host = opened(place, ".npmrc"), written(place, ".npmrc")
    code, expected = LOST[what]
    result = python(session, ".npmrc", code)
    assert [note for note in told(result, ".npmrc") if expected in note], result.notes
    assert host.read_text() == "token=old\n"
    assert not [note for note in result.notes if "written outside" in note]


def test_a_file_that_the_host_has_removed_is_set_aside(place: Place) -> None:
    session, host = opened(place, ".npmrc"), written(place, ".npmrc")
    with pytest.MonkeyPatch.context() as patch:
        ended = LoginKeeper.close

        def close(keeper: LoginKeeper) -> None:
            host.unlink()
            ended(keeper)

        patch.setattr(LoginKeeper, "look", lambda *_words, **_more: None)
        patch.setattr(LoginKeeper, "close", close)
        [note] = told(python(session, ".npmrc", WAYS["renamed"], new="token=new"), ".npmrc")
    reason, _so, way_out = note.partition("; ")
    assert reason == "~/.npmrc was not kept: this machine has none any more"
    assert subprocess.run(way_out.removesuffix(" keeps it"), shell=True, check=True) and host.read_text() == "token=new"


def test_permissions_that_a_command_removes_lose_nothing(place: Place) -> None:
    session, host = opened(place, ".npmrc"), written(place, ".npmrc")
    python(session, ".npmrc", WAYS["renamed"] + '; os.chmod(os.path.expanduser("~"), 0)', new="token=new")
    assert host.read_text() == "token=new"


AT_LEVEL_ZERO = {
    "in place": "",
    "truncated": "",
    "renamed": "EROFS",
    "unlinked and created": "EROFS",
    "linked and renamed": "EROFS",
    "another entry": "EROFS",
    "another directory": "EROFS",
}
"""By way: the error that the program gets; none: the host has it. The home is the host's there, and read-only."""


@pytest.mark.parametrize("file", half(FILES))
def test_at_level_zero_a_write_arrives_or_the_program_has_an_error(place: Place, file: str) -> None:
    session, host = opened(place, file, level=0), written(place, file)
    results = {}
    for way, code in WAYS.items():
        lines = "".join(f"    {line}\n" for line in code.strip().splitlines())
        told = f"import errno\ntry:\n{lines}except OSError as error:\n    print(errno.errorcode[error.errno])"
        host.write_text("old")
        error = python(session, file, told, new=f"token={way}").stdout.decode().strip()
        results[way] = error
        assert host.read_text() == ("old" if error else f"token={way}"), way
    assert results == AT_LEVEL_ZERO


@pytest.mark.parametrize(("way", "shown"), pairs(list(WAYS), ["credentials", "read"]))
def test_a_file_that_is_only_shown_gives_each_write_an_error(place: Place, shown: str, way: str) -> None:
    host = written(place, ".npmrc")
    value = "~/.npmrc" if shown == "credentials" else os.fspath(host)
    settings = Settings(network="none")._replace(**{shown: (value.encode(),)})  # type: ignore[arg-type]
    script = (
        f"import os\npath = os.path.expanduser('~/.npmrc')\nnew = 'token=new'\nprint(open(path).read())\n{WAYS[way]}"
    )
    result = place.session(settings).run([b"/usr/bin/python3", b"-c", script.encode()], fork="f")
    assert (result.exit_code, result.stdout) == (1, b"token=old\n\n") and b"OSError: " in result.stderr, result.stderr
    assert host.read_text() == "token=old\n"


OWN = {"claude": ".claude.json", "aider": ".aider.conf.yml"}


@pytest.mark.parametrize(("agent", "mode"), pairs(list(OWN), [mode for mode in MODES if mode != (0, "landlock")]))
def test_every_way_of_writing_for_an_agent_s_own_file(place: Place, agent: str, mode: tuple[int, str]) -> None:
    """It is the fork's, and so is each change of it."""
    (level, view), file = mode, OWN[agent]
    session, host = with_profile(place, agent, level, view), written(place, file, '{"hooks": 0}\n')
    results = {}
    for number, (way, code) in enumerate(WAYS.items(), 1):
        lines = "".join(f"    {line}\n" for line in code.strip().splitlines())
        tried = f"import errno\ntry:\n{lines}except OSError as error:\n    print(errno.errorcode[error.errno])"
        error = python(session, file, tried, new=f'{{"hooks": {number}}}\n').stdout.decode().strip()
        results[way] = error
        shown = python(session, file, "print(open(path).read())").stdout.split()
        assert (shown[1] == b"%d}" % number) == (not error), way
        ((_home, changes),) = agent_settings(session, "f")
        assert [change.path for change in changes] == [file.encode()]
    assert results == (dict.fromkeys(WAYS, "") if level else AT_LEVEL_ZERO)
    assert host.read_text() == '{"hooks": 0}\n'


IN_CONTAINER = {
    "in place": "",
    "truncated": "",
    "renamed": "EBUSY",
    "unlinked and created": "EBUSY",
    "linked and renamed": "EBUSY",
    "another entry": "EXDEV",
    "another directory": "EBUSY",
}
"""By way: the error that the program gets; none: the host has it. The file is a mount there."""


@pytest.mark.engine
@pytest.mark.parametrize("file", [".npmrc", ".config/git/credentials", ".ssh/known_hosts"])
def test_a_write_arrives_or_the_program_has_an_error(engine: EngineHere, place: Place, file: str) -> None:
    host = written(place, file)
    session = engine.session(place, Settings(network="none"))
    act_as(session, card=AgentCard("agent", 2, Requirements(keychain=(f"~/{file}",))))
    results = {}
    for way, code in WAYS.items():
        lines = "".join(f"    {line}\n" for line in code.strip().splitlines())
        tried = f"import errno\ntry:\n{lines}except OSError as error:\n    print(errno.errorcode[error.errno])"
        host.write_text("token=old\n")
        error = python(session, file, tried, new=f"token={way}\n").stdout.decode().strip()
        results[way] = error
        assert host.read_text() == ("token=old\n" if error else f"token={way}\n"), way
    assert results == IN_CONTAINER
    assert Path(place.home / file).stat().st_mode & 0o777 == 0o600
