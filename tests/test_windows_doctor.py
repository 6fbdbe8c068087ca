"""Doctor's rows for Windows, on a runner that answers as a good and as a bad Windows would."""

from __future__ import annotations

import pytest

from mudroom.windowsdoctor import Asked, Tried, diagnose

OUTSIDE = "C:\\out.txt"


def good(asked: Asked) -> Tried:
    if asked.network == "gate" or asked.limits.io:
        return Tried(error="cannot be had")
    return Tried(7 if "exit 7" in asked.line else 0, b"in\r\n" if "echo in" in asked.line else b"")


def states(rows: list[object]) -> dict[str, str]:
    return {row.protection: row.state for row in rows}  # type: ignore[attr-defined]


def test_a_good_windows() -> None:
    found = states(list(diagnose(good, OUTSIDE)))
    assert found == {
        "a sandbox": "strict",
        "nothing of the host in sight": "strict",
        "all that a command started ends with it": "strict",
        "no network": "degraded",
        "the gate": "missing",
        "a terminal of its own": "strict",
        "level 0: writing only in the fork": "degraded",
        "limit: memory": "strict",
        "limit: processes": "strict",
        "limit: cpus": "strict",
        "limit: io": "missing",
    }


def test_one_that_can_do_nothing() -> None:
    rows = diagnose(lambda asked: Tried(error="no AppContainer"), OUTSIDE)
    assert {row.state for row in rows} <= {"missing", "not probed"}
    assert all("no AppContainer" in row.found for row in rows)


def test_one_where_the_probe_sees_what_it_should_not() -> None:
    def leaky(asked: Asked) -> Tried:
        return Tried(0, b"in\r\nsecret" if "type" in asked.line else b"in\r\n")

    assert states(list(diagnose(leaky, OUTSIDE)))["nothing of the host in sight"] == "missing"


@pytest.mark.parametrize("error", ["the completion port: error 5"])
def test_one_that_leaves_something_behind(error: str) -> None:
    rows = diagnose(lambda asked: Tried(0, b"in\r\n", error), OUTSIDE)
    assert states(list(rows))["all that a command started ends with it"] == "missing"
