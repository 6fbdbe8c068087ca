"""Published holes of the tools of other agents, tried here (tests/conformance/published.toml)."""

from __future__ import annotations

import os

import pytest

from conformance.bypasses import groups as _of_bypasses  # noqa: F401  importing it fills the table
from conformance.escapes import groups as _of_escapes  # noqa: F401
from conftest import Place
from mudroom.ext.agents.tools.table import TOOLS, call
from mudroom.ext.agents.tools.workspace import ToolWorkspace


def workspace(place: Place) -> ToolWorkspace:
    return ToolWorkspace(place.session(agent="agent"), "f")


@pytest.mark.parametrize("pattern", ["--pre=./evil", "-X./evil", "--exec=./evil", "-f/etc/passwd"])
def test_a_pattern_of_a_tool_is_never_an_option(place: Place, pattern: str) -> None:
    place.write("evil", "#!/bin/sh\ntouch ran\n", 0o755)
    place.write("a", f"one {pattern} two\n")
    found = call(workspace(place), "grep", {"pattern": pattern})
    assert not found.is_error
    assert [match["path"] for match in found.data["matches"]] == ["a"]
    assert not call(workspace(place), "glob", {"pattern": pattern}).is_error
    assert [name for name in os.listdir(place.project) if name == "ran"] == []
    assert [entry["name"] for entry in call(workspace(place), "list", {}).data["entries"]] == ["a", "evil"]


@pytest.mark.parametrize("name", ["dangerouslyDisableSandbox", "sandbox", "unsandboxed", "level", "env", "net"])
def test_no_argument_of_a_tool_leaves_the_sandbox(place: Place, name: str) -> None:
    assert [tool for tool, row in TOOLS.items() if name in row.input_schema["properties"]] == []
    result = call(workspace(place), "bash", {"command": "id", name: True})
    assert result.is_error
    assert name in result.text


@pytest.mark.parametrize("cwd", ["/", "..", "../..", "/etc", "sub/../..", "out", "out/x"])
def test_a_working_directory_outside_is_refused(place: Place, cwd: str) -> None:
    place.write("sub/a", "x")
    (place.project / "out").symlink_to(place.root)
    result = call(workspace(place), "bash", {"command": "pwd", "cwd": cwd})
    assert result.is_error, result.text
    assert not call(workspace(place), "bash", {"command": "pwd", "cwd": "sub"}).is_error
