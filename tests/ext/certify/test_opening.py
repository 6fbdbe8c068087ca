"""From a record to what a session may do."""

from __future__ import annotations

import argparse
import json
import os
import sys
from contextlib import closing
from pathlib import Path

import pytest
from macbox import BARE, SPEC, enforcing_sandbox_exec, fake_sandbox_exec

from conftest import Place
from mudroom.cli.doctor.report import SANDBOX
from mudroom.cli.host.doctor import configure
from mudroom.cli.terminal.context import Context
from mudroom.cli.terminal.terminal import Terminal
from mudroom.core.settings import Settings
from mudroom.errors import Unsupported, UsageError
from mudroom.ext.certify import table
from mudroom.ext.certify.cli import certify as certify_verb
from mudroom.ext.certify.cli.certificate import lines
from mudroom.ext.certify.cli.certify import certify_first, certify_here, execute, findings_here, tried_on_linux
from mudroom.ext.certify.identity import identity
from mudroom.ext.certify.opening import look, open_platform, restrict
from mudroom.ext.certify.record import save
from mudroom.ext.certify.row import Certificate, RowResult, Verdict, closed, results, sentence
from mudroom.ext.certify.table import MACOS
from mudroom.ext.macos.client import DarwinClient
from mudroom.ext.macos.platform import PLATFORM as DARWIN
from mudroom.sandbox.platform import LINUX, platform_here
from mudroom.session import Session

HELD = Certificate("darwin", "s", "m", 0, tuple(RowResult(row.name, "held") for row in MACOS))


@pytest.fixture
def tool(tmp_path: Path) -> bytes:
    (tmp_path / "sandbox-exec").write_text("a tool")
    return bytes(tmp_path / "sandbox-exec")


def keep(state: Path, tool: bytes, **verdicts: Verdict) -> None:
    rows = tuple(row._replace(verdict=verdicts.get(row.name, "held")) for row in HELD.rows)
    save(bytes(state), identity("darwin", bytes(state), tool), HELD._replace(rows=rows))


def test_without_a_record_the_platform_is_closed(tmp_path: Path, tool: bytes) -> None:
    with pytest.raises(Unsupported, match="not certified yet") as caught:
        open_platform(DARWIN, bytes(tmp_path), tool)
    assert "mudroom doctor --certify" in caught.value.hint


def test_without_a_state_directory_the_platform_is_closed(tmp_path: Path, tool: bytes) -> None:
    with pytest.raises(Unsupported, match="not certified yet"):
        open_platform(DARWIN, bytes(tmp_path / "none"), tool)


def test_a_record_opens_it(tmp_path: Path, tool: bytes) -> None:
    keep(tmp_path, tool)
    platform = open_platform(DARWIN, bytes(tmp_path), tool)
    assert platform.closed == {}
    assert platform.compile(SPEC, "arm64") == DARWIN.compile(SPEC, "arm64")


def test_a_closed_gate_is_refused_before_any_of_it_starts(place: Place, tmp_path: Path) -> None:
    client = DarwinClient(tool=fake_sandbox_exec(tmp_path))
    place._client = client
    session = place.session(Settings(network="gate"), platform=restrict(DARWIN, {"gate": "not here; set network.mode"}))
    with pytest.raises(Unsupported, match="network: gate") as caught:
        session.run([b"true"])
    assert caught.value.hint == "not here; set network.mode"
    assert session.machine._gate is None
    assert (
        place.session(Settings(network="none"), platform=restrict(DARWIN, {"gate": "x"})).run([b"true"]).exit_code == 0
    )
    place.close()
    client.close()


@pytest.mark.parametrize("verdict", ["fell", "not shown"])
@pytest.mark.parametrize("row", ["plain_write", "quoting"])
def test_a_row_of_the_platform_closes_it(tmp_path: Path, tool: bytes, row: str, verdict: Verdict) -> None:
    keep(tmp_path, tool, **{row: verdict})
    with pytest.raises(Unsupported, match=f"{row} {verdict}"):
        open_platform(DARWIN, bytes(tmp_path), tool)


def test_another_tool_closes_it(tmp_path: Path, tool: bytes) -> None:
    keep(tmp_path, tool)
    Path(os.fsdecode(tool)).write_text("another tool")
    with pytest.raises(Unsupported, match="another system, mudroom or Python"):
        open_platform(DARWIN, bytes(tmp_path), tool)


def test_a_missing_tool_closes_it(tmp_path: Path) -> None:
    with pytest.raises(Unsupported, match="cannot be found out"):
        open_platform(DARWIN, bytes(tmp_path), bytes(tmp_path / "none"))


@pytest.mark.parametrize(
    ("row", "refused", "permitted"),
    [
        ("tcp", SPEC, SPEC._replace(network="open")),
        ("store_read", BARE, SPEC),
        ("accent", SPEC._replace(cwd="/p/\u00e9".encode(), project="/p/\u00e9".encode()), SPEC),
    ],
)
def test_a_closed_part_is_refused_and_no_more(tmp_path: Path, tool: bytes, row: str, refused, permitted) -> None:  # type: ignore[no-untyped-def]
    fallen: dict[str, Verdict] = {row: "fell"}
    keep(tmp_path, tool, **fallen)
    platform = open_platform(DARWIN, bytes(tmp_path), tool)
    assert platform.compile(permitted, "arm64") == DARWIN.compile(permitted, "arm64")
    with pytest.raises(Unsupported, match=f"{row} fell"):
        platform.compile(refused, "arm64")


def test_leftovers_refuse_no_command(tmp_path: Path, tool: bytes) -> None:
    keep(tmp_path, tool, leftover="fell")
    assert open_platform(DARWIN, bytes(tmp_path), tool).compile(SPEC, "arm64") == DARWIN.compile(SPEC, "arm64")
    assert list(look("darwin", bytes(tmp_path), tool).closed) == ["leftovers"]
    assert restrict(DARWIN, {}) is DARWIN


def test_the_row_of_the_gate_closes_the_gate() -> None:
    fallen = HELD._replace(
        rows=tuple(row._replace(verdict="fell") if row.name == "gate_port" else row for row in HELD.rows)
    )
    platform = restrict(DARWIN, {part: sentence(part, rows) for part, rows in closed(MACOS, fallen).items()})
    with pytest.raises(Unsupported, match="gate_port fell"):
        platform.compile(SPEC._replace(network="gate", proxy=9), "arm64")


def test_linux_is_asked_nothing() -> None:
    def never(_platform: object) -> None:
        raise AssertionError

    assert platform_here("linux", never) is LINUX  # type: ignore[arg-type]


# --- the verb ---


def context(tmp_path: Path, *, as_json: bool = False) -> Context:
    environ = {b"HOME": bytes(tmp_path), b"MUDROOM_STATE": bytes(tmp_path / "state"), b"PATH": b"/usr/bin:/bin"}
    return Context(environ, Terminal(environ), as_json, None)


@pytest.fixture
def two_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [row for row in MACOS if row.name in ("plain_write", "tcp")]
    monkeypatch.setitem(table.TABLES, "darwin", rows)


def test_certify_opens_the_platform(tmp_path: Path, two_rows: None, capsys: pytest.CaptureFixture[str]) -> None:
    tool = enforcing_sandbox_exec(tmp_path / "tool")
    assert certify_here("darwin", tool, DarwinClient(tool=tool), None, context(tmp_path)) == 0
    assert "certified" in capsys.readouterr().out
    assert open_platform(DARWIN, bytes(tmp_path / "state"), tool).closed == {}
    assert os.listdir(tmp_path / "state") == ["certificates"]


def test_a_session_on_a_certified_platform(tmp_path: Path, two_rows: None) -> None:
    """From the certificate to an undo, with a sandbox that confines."""
    tool, place = enforcing_sandbox_exec(tmp_path / "tool"), context(tmp_path)
    project, state = tmp_path / "project", tmp_path / "state"
    project.mkdir()
    (project / "file").write_text("one\n")
    secret = tmp_path / "secret"
    secret.write_text("secret")
    certify_here("darwin", tool, DarwinClient(tool=tool), None, place)
    client = DarwinClient(tool=tool)
    with (
        closing(client),
        Session.open(
            bytes(project),
            state=bytes(state),
            home=bytes(tmp_path),
            environ=place.environ,
            platform=open_platform(DARWIN, bytes(state), tool),
            client=client,
            settings=Settings(network="none"),
        ) as session,
    ):
        script = f"echo two >> file; cat {secret}; echo x > {tmp_path}/outside; echo x > {project}/file; echo $?"
        result = session.run([b"sh", b"-c", script.encode()])
        assert b"secret" not in result.stdout and not (tmp_path / "outside").exists()
        assert (project / "file").read_text() == "one\n"
        session.changes.apply(result.fork)
        assert (project / "file").read_text() == "one\ntwo\n"
        session.changes.undo()
        assert (project / "file").read_text() == "one\n"


def test_certify_with_a_liar_closes_it_and_the_file_names_nothing(
    tmp_path: Path, two_rows: None, capsys: pytest.CaptureFixture[str]
) -> None:
    tool, sent = fake_sandbox_exec(tmp_path), tmp_path / "sent.json"
    assert certify_here("darwin", tool, DarwinClient(tool=tool), str(sent), context(tmp_path, as_json=True)) == 1
    assert capsys.readouterr().out == ""
    told = json.loads(sent.read_text())
    assert [row["verdict"] for row in told["rows"]] == ["fell", "fell"]
    assert str(tmp_path) not in sent.read_text() and os.uname().nodename not in sent.read_text()
    with pytest.raises(UsageError, match="exists already"):
        certify_here("darwin", tool, DarwinClient(tool=tool), str(sent), context(tmp_path, as_json=True))


def arguments(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    configure(parser)
    return parser.parse_args(words)


def test_on_linux_the_rows_say_what_held_and_nothing_is_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [row for row in table.LINUX if row.name in ("shell", "plain_write", "tcp")]
    monkeypatch.setitem(table.TABLES, "linux", rows)
    assert execute(arguments(), context(tmp_path)) == 0
    assert "3 of 3 rows held" in capsys.readouterr().out
    sent = tmp_path / "certificate.json"
    assert execute(arguments(str(sent)), context(tmp_path, as_json=True)) == 0
    text = sent.read_text()
    told = json.loads(text)
    assert told["platform"] == "linux" and [row["verdict"] for row in told["rows"]] == ["held"] * 3
    assert str(tmp_path) not in text and os.uname().nodename not in text
    assert os.listdir(tmp_path / "state") == []
    with pytest.raises(UsageError, match="exists already"):
        execute(arguments(str(sent)), context(tmp_path, as_json=True))


@pytest.mark.deep
def test_all_rows_of_linux_hold(tmp_path: Path) -> None:
    certificate = tried_on_linux(context(tmp_path))
    failed = [row for row in results(table.expected("linux", certificate), certificate) if row.verdict != "held"]
    assert [row for row in failed if row.name not in ("clone", "ipv6")] == [], "no clones on ext4; not every machine"


def test_it_runs_by_itself_once_where_somebody_sees_it(
    tmp_path: Path, tool: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs: list[bytes] = []

    def tried(platform: str, tool: bytes, _client: object, context: Context) -> Certificate:
        runs.append(tool)
        keep(tmp_path / "state", tool)
        return HELD

    (tmp_path / "state").mkdir(mode=0o700)
    monkeypatch.setattr(certify_verb, "tried", tried)
    for is_terminal, platform, count in (
        (False, "darwin", 0),
        (True, "linux", 0),
        (True, "darwin", 1),
        (True, "darwin", 1),
    ):
        monkeypatch.setattr(sys.stdin, "isatty", lambda is_terminal=is_terminal: is_terminal, raising=False)
        certify_first(context(tmp_path), platform, tool)
        assert len(runs) == count


# --- what is told of it ---


def test_doctor_and_status_tell_what_is_certified_and_closed(tmp_path: Path, tool: bytes) -> None:
    (missing,), is_open = findings_here(bytes(tmp_path), "darwin", tool)
    assert not is_open and missing.protection == SANDBOX
    assert (missing.state, missing.found) == (
        "missing",
        "it is not certified yet",
    ) and "mudroom doctor --certify" in missing.fix
    assert lines(look("darwin", bytes(tmp_path), tool)) == ["none: it is not certified yet"]
    keep(tmp_path, tool, tcp="fell", kill="not shown")
    found = {finding.protection: finding for finding in findings_here(bytes(tmp_path), "darwin", tool)[0]}
    assert found["certified: files"].state == "strict"
    assert found["certified: network"].state == "missing" and "tcp" in found["certified: network"].found
    assert found["certified: processes"].state == "not probed"
    assert found["closed: network"].state == "missing" and "closed: platform" in found
    assert found[SANDBOX][1:3] == ("missing", "no command runs: kill not shown")
    told = lines(look("darwin", bytes(tmp_path), tool))
    environ = context(tmp_path).environ
    (tmp_path / "certificates").rename(tmp_path / "elsewhere")
    assert certify_verb.certified(environ, "darwin", tool) == ["none: it is not certified yet"]
    assert told == [
        "s, closed",
        "closed: no command runs: kill not shown",
        "closed: commands run with network: open alone: tcp fell",
    ]
