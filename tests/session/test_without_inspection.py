"""An installation that lacks what inspects TLS: a command that needs it is refused before it runs."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from conftest import Place
from mudroom.core.network.host_rules import parse_rule
from mudroom.core.registry import NotInstalled
from mudroom.core.settings import Settings
from mudroom.vault.store.store import CREDENTIALS

INSPECTED = parse_rule("api.example", "allow", "policy.yaml:3")._replace(inspect=True)
LACKS = "is not part of this installation: it lacks mudroom/ext/inspection"


@pytest.fixture(autouse=True)
def nothing_inspects(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mudroom.ext.inspection", None)


def test_a_rule_that_inspects_stops_the_command(place: Place) -> None:
    session = place.session(Settings(network="gate", hosts=(INSPECTED,)))
    with pytest.raises(NotInstalled) as raised:
        session.run([b"sh", b"-c", b"touch ran"])
    assert str(raised.value).startswith(f"looking into TLS (policy.yaml:3) {LACKS}")
    assert session.vault.forks() == [], "and leaves no fork"


def test_a_credential_stops_the_command(place: Place) -> None:
    session = place.session(Settings(network="gate"))
    Path(os.fsdecode(session.vault.path + CREDENTIALS)).touch()
    with pytest.raises(NotInstalled) as raised:
        session.run([b"true"])
    assert str(raised.value).startswith(f"looking into TLS (mudroom net credential) {LACKS}")


def test_a_command_without_a_network_runs(place: Place) -> None:
    session = place.session(Settings(network="none", hosts=(INSPECTED,)))
    assert session.run([b"true"]).exit_code == 0


def test_a_command_whose_rules_do_not_inspect_runs(place: Place) -> None:
    excluded = (parse_rule("api.example", "deny"),)
    settings = Settings(network="gate", hosts=(INSPECTED._replace(inspect=False),), never_inspect=excluded)
    assert place.session(settings).run([b"true"]).exit_code == 0
