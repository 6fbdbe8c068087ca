"""Level 2 on a project that appears at another path than that of its files."""

from __future__ import annotations

import os

import pytest

from conftest import Place, full_listing
from engines import EngineHere
from mudroom.core.settings import Settings

AT = b"/home/ann-of-another-machine/proj"


@pytest.mark.parametrize("view", ["auto", "copy"])
def test_a_container_shows_a_project_at_another_path(place: Place, engine: EngineHere, view: str) -> None:
    place.write("d/f", "one\n")
    place.write(".mudroom/policy.yaml", "version: 1\n")
    before = full_listing(place.project)
    session = engine.session(place, Settings(view=view), appears_at=AT)  # type: ignore[arg-type]
    script = (
        f"pwd -P; cat {AT.decode()}/d/f; echo two >>$PWD/d/f; echo x >.mudroom/policy.yaml; ls {place.project} >&2; "
        f"ls -A {AT.decode()}"
    )
    for _again in range(2):
        result = session.run([b"sh", b"-c", script.encode()], fork="k")
        said = result.stdout.decode().split("\n")
        assert (said[0], said[1], said[-3:]) == (AT.decode(), "one", [".mudroom", "d", ""]), result
        assert result.level == 2
        assert b"No such file" in result.stderr and b"policy.yaml: " in result.stderr, "neither is the base's own path"
        assert [change.path for change in result.changeset.changes] == [b"d/f"]
    assert session.run([b"pwd"], fork="k", cwd=b"d").stdout == AT + b"/d\n"
    assert full_listing(place.project) == before
    assert session.vault.source == os.fsencode(place.project)


@pytest.mark.parametrize("view", ["auto", "copy"])
def test_a_command_in_a_container_has_the_machine_s_name(place: Place, engine: EngineHere, view: str) -> None:
    """gemini and qwen encrypt the login that they keep in a file with it."""
    result = engine.session(place, Settings(view=view)).run([b"sh", b"-c", b"uname -n; cat /etc/hosts"])  # type: ignore[arg-type]
    name = os.uname().nodename
    assert result.level == 2
    assert (result.stdout.decode().split()[0], result.stdout.decode().split()[-1]) == (name, name), result
