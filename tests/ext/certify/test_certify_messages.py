"""Messages about a certificate: the whole line that a user of a Mac or of Windows reads."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from macbox import SPEC, enforcing_sandbox_exec

from certify.test_opening import keep
from mudroom.errors import MudroomError, Unsupported
from mudroom.ext.certify import opening, table
from mudroom.ext.certify.ground import TrialGround
from mudroom.ext.certify.opening import make, open_platform
from mudroom.ext.certify.row import Certificate
from mudroom.ext.certify.trial import Trial
from mudroom.ext.certify.windows_trial import OTHERS, prepare_by
from mudroom.ext.macos.platform import PLATFORM as DARWIN
from mudroom.ext.windows.win32.api import CallFailed

TRIED = "(mudroom doctor --certify tries it, in less than a minute)"


@pytest.fixture
def tool(tmp_path: Path) -> bytes:
    return enforcing_sandbox_exec(tmp_path / "tool")


def test_a_platform_that_is_closed(tmp_path: Path, tool: bytes) -> None:
    needs = "mudroom needs a certificate of this machine; found:"
    rows = [(tool, f"{needs} it is not certified yet {TRIED}")]
    gone = bytes(tmp_path / "gone")
    rows.append(
        (gone, f"{needs} the facts that a certificate is for cannot be found out: No such file or directory {TRIED}")
    )
    for program, told in rows:
        with pytest.raises(Unsupported) as raised:
            open_platform(DARWIN, bytes(tmp_path), program)
        assert str(raised.value) == told


def test_a_sandbox_that_did_not_hold(tmp_path: Path, tool: bytes) -> None:
    keep(tmp_path, tool, plain_write="fell")
    with pytest.raises(Unsupported) as raised:
        open_platform(DARWIN, bytes(tmp_path), tool)
    assert str(raised.value).startswith("mudroom needs a sandbox that holds here; found: ")
    assert str(raised.value).endswith("plain_write fell (mudroom doctor --certify tries it again)")


def test_a_part_that_did_not_hold(tmp_path: Path, tool: bytes) -> None:
    keep(tmp_path, tool, tcp="fell")
    with pytest.raises(Unsupported) as raised:
        open_platform(DARWIN, bytes(tmp_path), tool).compile(SPEC, "arm64")
    assert str(raised.value).startswith("a closed network needs a certificate of it; found: ")
    assert str(raised.value).endswith(f"tcp fell {TRIED}")


def test_a_path_that_the_profile_may_not_have(tmp_path: Path, tool: bytes) -> None:
    keep(tmp_path, tool, accent="not shown")
    with pytest.raises(Unsupported) as raised:
        open_platform(DARWIN, bytes(tmp_path), tool).compile(SPEC._replace(cwd="/p/\u00e9".encode()), "arm64")
    closed = "paths that are not ASCII are refused: accent not shown"
    assert str(raised.value) == f"a path that is not ASCII needs a certificate of it; found: {closed} {TRIED}"


NO_ROWS = Trial(None, None, None)  # type: ignore[arg-type]  # no row is tried
MADE = "no certificate was made:"


@pytest.mark.parametrize("case", ["tool", "state", "tool gone"])
def test_a_certificate_that_cannot_be_made(
    case: str, tmp_path: Path, tool: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``tool``: an update replaces sandbox-exec during the trial."""
    state, file = tmp_path / "state", Path(os.fsdecode(tool))
    state.mkdir()
    monkeypatch.setitem(table.TABLES, "darwin", [row for row in table.MACOS if row.name == "plain_write"])
    monkeypatch.setattr(opening, "certify", lambda *_words, **_named: replace_tool(case, file))
    if case == "state":
        (state / "certificates").write_text("a file")
    told = {
        "tool": "no certificate was made: the system changed meanwhile",
        "state": f"{MADE} {state}/certificates: File exists",
        "tool gone": f"{MADE} {file}: No such file or directory",
    }[case]
    with pytest.raises(MudroomError) as raised:
        make("darwin", bytes(state), tool, NO_ROWS, bytes(tmp_path))
    assert str(raised.value) == f"{told} (run the command again)"
    assert not list(state.rglob("*.json*"))


def replace_tool(case: str, file: Path) -> Certificate:
    if case == "tool":
        file.write_text("a newer tool")
    if case == "tool gone":
        file.unlink()
    return Certificate("darwin", "s", "m", 0)


def test_rights_that_cannot_be_given_on_windows() -> None:
    class Refusing:
        def grant(self, _path: str, _sid: str, _rights: int) -> None:
            raise CallFailed("SetNamedSecurityInfoW", 5)

    row = next(row for row in table.WINDOWS if row.where in OTHERS)
    with pytest.raises(Unsupported) as raised:
        prepare_by(Refusing())(TrialGround(row, "C:/trial/1"), 0)  # type: ignore[arg-type]
    assert str(raised.value) == "a directory of others needs SetNamedSecurityInfoW; found: error 5"
