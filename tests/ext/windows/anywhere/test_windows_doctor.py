"""Doctor's rows for Windows, on a runner that answers as a good and as a bad Windows would."""

from __future__ import annotations

from pathlib import Path

import pytest

from mudroom.ext.windows.cli.doctor import CmdTrial, ProbeRequest, diagnose


@pytest.fixture
def outside(tmp_path: Path) -> str:
    (tmp_path / "out.txt").write_bytes(b"secret")
    return str(tmp_path / "out.txt")


def good(asked: ProbeRequest) -> CmdTrial:
    if asked.network == "gate" or asked.limits.io:
        return CmdTrial(error="cannot be had")
    return CmdTrial(7 if "exit 7" in asked.line else 0, b"in\r\n" if "echo in" in asked.line else b"")


def states(rows: list[object]) -> dict[str, str]:
    return {row.protection: row.state for row in rows}  # type: ignore[attr-defined]


def test_a_good_windows(outside: str) -> None:
    found = states(list(diagnose(good, outside)))
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


def test_one_that_can_do_nothing(outside: str) -> None:
    rows = diagnose(lambda asked: CmdTrial(error="no AppContainer"), outside)
    assert {row.state for row in rows} <= {"missing", "not probed"}
    assert all("no AppContainer" in row.found for row in rows)


def test_one_where_the_probe_sees_what_it_should_not(outside: str) -> None:
    def leaky(asked: ProbeRequest) -> CmdTrial:
        return CmdTrial(0, b"in\r\nsecret" if "type" in asked.line else b"in\r\n")

    assert states(list(diagnose(leaky, outside)))["nothing of the host in sight"] == "missing"


@pytest.mark.parametrize("error", ["the completion port: error 5"])
def test_one_that_leaves_something_behind(error: str, outside: str) -> None:
    rows = diagnose(lambda asked: CmdTrial(0, b"in\r\n", error), outside)
    assert states(list(rows))["all that a command started ends with it"] == "missing"


@pytest.mark.parametrize("level", [0, 1])
@pytest.mark.parametrize("out", [b"in", b""])
def test_one_where_a_file_outside_is_written(level: int, out: bytes, outside: str) -> None:
    """Whatever the command says of it: the file is looked at. Each row tells of its own probe."""

    def writes(asked: ProbeRequest) -> CmdTrial:
        if outside in asked.line and asked.level == level:
            with open(outside, "ab") as stream:
                stream.write(b"x\r\n")
            return CmdTrial(0, out)
        return good(asked)

    names = ["level 0: writing only in the fork", "nothing of the host in sight"]
    found = {row.protection: row for row in diagnose(writes, outside)}
    assert found[names[level]].state == "missing" and "written" in found[names[level]].found
    assert found[names[1 - level]].state != "missing"


def test_one_where_a_file_outside_is_removed(outside: str) -> None:
    def removes(asked: ProbeRequest) -> CmdTrial:
        if outside in asked.line:
            Path(outside).unlink()
        return good(asked)

    found = states(list(diagnose(removes, outside)))
    assert found["nothing of the host in sight"] == found["level 0: writing only in the fork"] == "missing"
