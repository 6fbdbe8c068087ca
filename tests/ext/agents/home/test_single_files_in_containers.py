"""A single file from the home, written in a container: the host has it at the end, or the program has an error."""

from __future__ import annotations

from pathlib import Path

import pytest

from conftest import Place, act_as
from engines import EngineHere
from mudroom.core.agent.card import AgentCard, Requirements
from mudroom.core.settings import Settings
from test_logins import WAYS, python
from test_single_files import written

pytestmark = [pytest.mark.both_users, pytest.mark.engine]

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
