"""The reason for a container's end, from its engine's events."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from mudroom.ext.containers.core.container import Engine
from mudroom.ext.containers.engine.box import describe_end, explain_end, parse_events
from tiers import each

FULL = "its memory was full, and the kernel ended the launcher with the command"
ITSELF = "its engine says that it ended by itself or was killed from outside"


def docker(action: str, **attributes: str) -> dict[str, object]:
    return {"Type": "container", "Action": action, "Actor": {"ID": "c", "Attributes": attributes}}


@each(
    ("events", "said"),
    [
        ([docker("kill", signal="9"), docker("die", exitCode="137")], "its engine was told to kill it (signal 9)"),
        ([docker("oom"), docker("die", exitCode="137")], FULL),
        ([docker("die", exitCode="255")], ITSELF + " (exit code 255)"),
        ([{"Name": "c", "Status": "died", "ContainerExitCode": 137}], ITSELF + " (exit code 137)"),
        ([{"Name": "c", "Status": "remove"}], "its engine was told to remove it"),
        ([], "its engine does not know why"),
    ],
)
def test_each_end_has_its_clause(events: list[dict[str, object]], said: str) -> None:
    assert describe_end(parse_events("\n".join(map(json.dumps, events)).encode())) == said


def test_what_cannot_be_read_is_left_out() -> None:
    assert parse_events(b"\xff\n[]\nnonsense\n") == []


def test_the_last_minute_is_asked_about_if_the_clock_was_set_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "docker"
    program.write_text('#!/bin/sh\necho "$*" >&2; exit 1\n')
    program.chmod(0o755)
    monkeypatch.setattr("mudroom.ext.containers.engine.box.time.time", lambda: 1000.0)
    said = [explain_end(Engine("docker", os.fsencode(program)), "c", since, {}) for since in (900.0, 5000.0)]
    assert ["--since=900 " in said[0], "--since=940 " in said[1]] == [True, True]
    assert all("--until=1000.000" in one for one in said)


def test_an_engine_that_is_gone_is_named(tmp_path: Path) -> None:
    program = tmp_path / "docker"
    program.write_text("#!/bin/sh\necho 'Cannot connect to the Docker daemon' >&2; exit 1\n")
    program.chmod(0o755)
    said = explain_end(Engine("docker", os.fsencode(program)), "c", 0.0, {})
    assert said == "its engine cannot be asked why (docker: Cannot connect to the Docker daemon)"
