"""The bypass suite: nothing passes the gate that it did not let pass, however a command is confined."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping

import pytest

from conformance.bypasses.attempt import ALLOWED, TABLE
from conformance.bypasses.groups import GROUPS
from conformance.bypasses.outside import environment, series
from conformance.outside import able, got_out, mistaken
from mudroom.sandbox.host.host import landlock_abi
from tiers import daily

pytestmark = pytest.mark.alone

NOT_HELD: Mapping[str, Mapping[str, str]] = {}
"""What docs/THREATS.md says is not held, by the way to confine."""

needs_landlock = pytest.mark.skipif(landlock_abi() < 4, reason="Landlock knows no ports here: there is no network")


OTHERS = ["copy", "asked", pytest.param("landlock", marks=needs_landlock)]


@pytest.mark.both_users
@pytest.mark.slow
@pytest.mark.parametrize("mode", ["overlay", *daily(OTHERS)])
def test_nothing_passes_the_gate(mode: str) -> None:
    found = series(mode)
    assert found.trouble == ""
    assert mistaken(found.outcomes) == {}
    through = got_out(found.outcomes)
    allowed = {name for name, one in TABLE.items() if one.group == ALLOWED}
    if mode == "landlock":
        allowed = {name for name in allowed if "captured" not in name}  # nothing is, without a namespace
    assert {name: found.outcomes[name].error for name in allowed - set(through)} == {}
    held = allowed | set(NOT_HELD.get(mode, {}))
    assert {name: how for name, how in through.items() if name not in held} == {}
    assert found.strays == []
    refused = [one for one in found.outcomes.values() if one.error]
    assert len(refused) > len(TABLE) / 2, "they were tried"


@pytest.mark.slow
def test_without_a_gate_they_pass() -> None:
    """So that the test above can fail: a control of every attempt that has one."""
    found = series("control", able(TABLE))
    assert mistaken(found.outcomes) == {}
    assert {name: one.error for name, one in found.outcomes.items() if not one.evidence} == {}
    assert len(found.outcomes) > 200


@pytest.mark.slow
def test_a_flood_is_bounded_and_others_are_served() -> None:
    """Ten thousand connections of one command, half requests: the gate keeps so many and no more, and a
    command of another session hardly notices."""
    command = [sys.executable, "-m", "conformance.bypasses.flood"]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=80, check=True)
    found = json.loads(done.stdout)
    assert found["trouble"] == ""
    flooding, served = found["said"]["flood"], found["said"]["served"]
    held = sum(int(line.split()[0]) for line in flooding["stdout"].split("\n") if line)
    assert held > 4_096, "connections wait to be taken, or are cut"
    if max(int(line.split()[2]) for line in flooding["stdout"].split("\n") if line) < 8:
        # Nothing is crowded where a flood takes longer than the 10 s in which a request has to come.
        assert any("those that have waited longest for a request are closed" in one for one in flooding["denials"])
    assert (served["exit"], served["denials"]) == (0, [])
    requests, longest = served["stdout"].split()
    assert int(requests) > 20
    assert float(longest) < 5
    assert found["left"] == 0, "connections to servers are closed with their command"


def test_the_table_of_bypasses_is_complete() -> None:
    assert GROUPS
    assert len(TABLE) >= 300
    assert all(attempt.tries for attempt in TABLE.values())
    assert {name for held in NOT_HELD.values() for name in held} <= set(TABLE)
