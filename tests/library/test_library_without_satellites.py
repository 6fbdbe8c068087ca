"""A room where satellites are absent: their calls say so in one line, and the others work."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable

import pytest

import mudroom
from conftest import Place
from mudroom.core.registry import NotInstalled
from rooms import open_room
from satellites import needs

CALLS: list[tuple[str, str, Callable[[mudroom.Room], object]]] = [
    ("Room.attempts", "attempts", lambda room: room.attempts("true")),
    ("Room.export", "transfer", lambda room: room.export("f", io.BytesIO())),
    ("Room.arrive", "transfer", lambda room: room.arrive([])),
    ("Room.tools", "agents", lambda room: room.tools("openai")),
]


@pytest.mark.parametrize(("name", "satellite", "call"), CALLS, ids=[row[0] for row in CALLS])
def test_a_call_says_what_is_absent(
    place: Place, monkeypatch: pytest.MonkeyPatch, name: str, satellite: str, call: Callable[[mudroom.Room], object]
) -> None:
    monkeypatch.setitem(sys.modules, f"mudroom.ext.{satellite}", None)
    with open_room(place) as room:
        room.fork("f").write("a", "1\n")
        with pytest.raises(NotInstalled) as raised:
            call(room)
        assert str(raised.value) == (
            f"{name} is not part of this installation: it lacks mudroom/ext/{satellite} "
            "(install all of mudroom: pip install --force-reinstall mudroom)"
        )
        assert room.apply("f").ok


@needs("fleet")
def test_a_satellite_without_another_is_absent(monkeypatch: pytest.MonkeyPatch) -> None:
    from mudroom.cli.main import offered_verbs, verb_module

    monkeypatch.setitem(sys.modules, "mudroom.ext.transfer", None)
    assert "fleet" not in offered_verbs()
    with pytest.raises(NotInstalled, match=r"mudroom fleet is not part of this .*: it lacks mudroom/ext/transfer"):
        verb_module("fleet")
