"""What a user reads where a keeper cannot do its work."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from types import SimpleNamespace

import pytest

from conftest import Place
from mudroom.cli.main import run
from mudroom.ext.keeper import status


def test_ctrl_c_while_a_keeper_refuses(place: Place) -> None:
    """The client takes the signal, and passes it on to the way in-process, which has not begun."""
    program = (
        "import sys, _signal; from mudroom.ext.keeper import client; sys.argv = ['mudroom', 'ls']\n"
        "class Connection:\n"
        "    def close(self): pass\n"
        "def refuse(connection, argv, environ, signals):\n"
        "    signals.append(_signal.SIGINT); raise client._Unusable\n"
        "client._connect, client._start = lambda environ: Connection(), refuse\n"
        "from mudroom.cli import main; main()\n"
    )
    environment = {"HOME": str(place.home), "PATH": os.environ["PATH"], "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=place.project, env=environment, stdin=subprocess.DEVNULL,
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "mudroom: interrupted\n")


def test_keepers_of_another_user(
    place: Place, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def closed(_path: bytes) -> list[bytes]:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(status, "os", SimpleNamespace(**{**vars(os), "listdir": closed}))
    monkeypatch.chdir(place.project)
    paths = {b"HOME": bytes(place.home), b"MUDROOM_STATE": bytes(place.state)}
    assert run(["keeper"], {b"PATH": b"/usr/bin:/bin", b"MUDROOM_KEEPER": b"0", **paths}) == 125
    assert capfd.readouterr().err == (
        "mudroom: the keepers cannot be listed: Permission denied (run it as the user of this state directory)\n"
    )
