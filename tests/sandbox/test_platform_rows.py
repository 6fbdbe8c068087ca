"""Platforms that satellites have: without a satellite, or without certification, they are closed, in one line."""

from __future__ import annotations

import os
from collections.abc import Callable
from types import SimpleNamespace

import pytest

from conftest import Place
from mudroom.cli.fork import status
from mudroom.cli.terminal.context import Context
from mudroom.cli.terminal.terminal import Terminal
from mudroom.core import registry
from mudroom.core.registry import ROWS, NotInstalled
from mudroom.sandbox import platform
from mudroom.sandbox.platform import BY_RECORD, LINUX, new_client, platform_here, platform_of, system_name
from mudroom.session import session

pytestmark = pytest.mark.both_users


@pytest.fixture
def delete(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    return lambda gone: monkeypatch.setattr(registry, "is_installed", lambda satellite: satellite != gone)


def test_every_platform_but_linux_has_a_row_and_opens_by_a_record() -> None:
    assert set(ROWS["platform"]) == BY_RECORD
    assert platform_of("linux") is LINUX and platform_of("freebsd14") is None


@pytest.mark.parametrize(("name", "satellite"), [("darwin", "macos"), ("win32", "windows")])
def test_a_platform_whose_satellite_is_absent(
    name: str, satellite: str, delete: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    delete(satellite)
    monkeypatch.setattr(platform, "sys", SimpleNamespace(platform=name))
    told = f"mudroom on {system_name(name)} is not part of this installation: it lacks mudroom/ext/{satellite}"
    with pytest.raises(NotInstalled, match=told):
        platform_here(name, lambda opened: opened)
    with pytest.raises(NotInstalled, match=told):
        new_client({})


@pytest.mark.parametrize("name", sorted(BY_RECORD))
def test_no_session_opens_there_without_certification(
    name: str, place: Place, delete: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    delete("certify")
    for module in (session, status):
        monkeypatch.setattr(module, "sys", SimpleNamespace(platform=name))
    monkeypatch.setattr(platform, "platform_of", lambda _name: LINUX._replace(name=name))
    told = f"mudroom on {system_name(name)} is not part of this installation: it lacks mudroom/ext/certify"
    with pytest.raises(NotInstalled, match=told):
        session.require_project(bytes(place.project), bytes(place.state), bytes(place.home))
    with pytest.raises(NotInstalled, match=told):
        session.Session.open(
            bytes(place.project), state=bytes(place.state), home=bytes(place.home), environ=os.environb
        )
    environ = {b"HOME": bytes(place.home)}
    assert status.certified(Context(environ, Terminal(environ), False, None)) == [f"none: {told}"]
