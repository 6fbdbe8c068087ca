"""What a user reads where a keeper cannot do its work."""

from __future__ import annotations

import errno
import os
from types import SimpleNamespace

import pytest

from conftest import Place
from mudroom.cli.main import run
from mudroom.ext.keeper import status


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
