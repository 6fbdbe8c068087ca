"""Records that are part of mudroom: they open the same system with the same code, and nothing else."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from macbox import enforcing_sandbox_exec

from certify.test_opening import context
from mudroom.errors import Unsupported
from mudroom.ext.certify import identity as identity_module
from mudroom.ext.certify import shipped, table
from mudroom.ext.certify.cli.certificate import findings, lines
from mudroom.ext.certify.cli.certify import certify_first, certify_here
from mudroom.ext.certify.identity import Identity, identity
from mudroom.ext.certify.opening import look, open_platform
from mudroom.ext.certify.record import encode, save
from mudroom.ext.certify.row import Certificate, RowResult, Verdict
from mudroom.ext.certify.table import MACOS
from mudroom.ext.macos.client import DarwinClient
from mudroom.ext.macos.platform import PLATFORM as DARWIN

HERE = Identity("darwin", "macOS 15.6 24G84", "arm64", "tool", "code", "python", "host", 501, "0 255 0", "3.13 user")
ROWS = tuple(row for row in MACOS if row.name in ("plain_write", "tcp"))


def certificate(here: Identity = HERE, made: int = 7, **verdicts: Verdict) -> Certificate:
    rows = tuple(RowResult(row.name, verdicts.get(row.name, "held")) for row in ROWS)
    return Certificate(here.platform, here.system, here.machine, made, rows)


def values(here: Identity = HERE, made: int = 7, **verdicts: Verdict) -> dict[str, Any]:
    made_of = encode(certificate(here, made, **verdicts))
    return {"schema": "mudroom.certificate/1", "facts": here.shared, **made_of}


def put(directory: Path, record: Any) -> Path:
    content = record if isinstance(record, bytes) else json.dumps(record).encode()
    path = directory / f"{hashlib.sha256(content).hexdigest()}.json"
    path.write_bytes(content)
    return path


@pytest.fixture
def records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    place = tmp_path / "records"
    place.mkdir()
    monkeypatch.setattr(shipped, "DIRECTORY", str(place))
    monkeypatch.setitem(table.TABLES, "darwin", ROWS)
    return place


def test_a_record_of_this_system_and_this_code_counts(records: Path) -> None:
    put(records, values())
    assert shipped.load(HERE, ROWS) == certificate()


@pytest.mark.parametrize("fact", ["python", "host", "user", "volume"])
def test_a_fact_of_one_machine_does_not_matter(records: Path, fact: str) -> None:
    put(records, values())
    other: dict[str, Any] = {fact: 502 if fact == "user" else "another"}
    assert shipped.load(HERE._replace(**other), ROWS) == certificate()


@pytest.mark.parametrize("fact", sorted(HERE.shared))
def test_a_record_of_another_platform_build_code_or_kind_of_machine_opens_nothing(records: Path, fact: str) -> None:
    other: dict[str, Any] = {fact: "another"}
    put(records, values(HERE._replace(**other)))
    assert shipped.load(HERE, ROWS) is None


def test_where_the_kind_of_machine_is_unknown_no_record_counts(records: Path) -> None:
    put(records, values(HERE._replace(kind="")))
    assert shipped.load(HERE._replace(kind=""), ROWS) is None


def edited(path: Path) -> None:
    path.write_bytes(path.read_bytes().replace(b'"fell"', b'"held"'))


def cut_off(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-9])


def renamed(path: Path) -> None:
    path.rename(path.with_name("0" * 64 + ".json"))


def unreadable(path: Path) -> None:
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize("spoil", [edited, cut_off, renamed, unreadable], ids=lambda spoil: spoil.__name__)
def test_a_damaged_record_opens_nothing(records: Path, spoil: Callable[[Path], None]) -> None:
    spoil(put(records, values(tcp="fell")))
    assert shipped.load(HERE, ROWS) is None


WRONG: list[Any] = [
    b"", b"[", b"[]", b"7", b"[" * 100_000, b"\xff",
    {},
    {**values(), "schema": "mudroom.certificate/2"},
    {**values(), "facts": None},
    {**values(), "facts": {**HERE.shared, "more": "1"}},
    {**values(), "rows": values()["rows"][:1]},
    {**values(), "rows": values()["rows"][:1] * 2},
    {**values(), "rows": [*values()["rows"], {"name": "more", "verdict": "held"}]},
    {**values(), "rows": [{**row, "verdict": "passed"} for row in values()["rows"]]},
    {**values(), "rows": "held"},
    {**values(), "system": "macOS 26.0 25A1"},
    {**values(), "machine": "x86_64"},
    {**values(), "made": "7"},
    {**values(), "more": 1},
]  # fmt: skip


@pytest.mark.parametrize("record", WRONG, ids=range(len(WRONG)))
def test_what_is_no_record_opens_nothing_and_stops_no_other(records: Path, record: Any) -> None:
    put(records, record)
    assert shipped.load(HERE, ROWS) is None
    put(records, values())
    assert shipped.load(HERE, ROWS) == certificate()


def test_without_the_directory_there_is_no_record(tmp_path: Path) -> None:
    assert shipped.load(HERE, ROWS, str(tmp_path / "none")) is None


def test_a_row_holds_if_it_held_in_each_record(records: Path) -> None:
    put(records, values(made=7, tcp="not shown"))
    put(records, values(made=8, plain_write="fell"))
    put(records, values(made=9))
    found = shipped.load(HERE, ROWS)
    assert found is not None and found.made == 9
    assert {row.name: row.verdict for row in found.rows} == {"plain_write": "fell", "tcp": "not shown"}


def test_the_readme_says_not_yet_run_until_there_is_a_record() -> None:
    """And each record that is part of mudroom can be read."""
    records = [shipped.read(content) for content in shipped.contents()]
    assert None not in records and len(records) == len(list(Path(shipped.DIRECTORY).glob("*")))
    readme = (Path(__file__).parents[3] / "README.md").read_text()
    assert ("not yet run on one" in readme) == all(record.platform == "linux" for record in records if record)


# --- what it opens ---


@pytest.fixture
def tool(tmp_path: Path) -> bytes:
    (tmp_path / "sandbox-exec").write_text("a tool")
    return bytes(tmp_path / "sandbox-exec")


def test_it_opens_the_platform_before_there_is_a_state_directory(records: Path, tmp_path: Path, tool: bytes) -> None:
    state = bytes(tmp_path / "new/state")
    with pytest.raises(Unsupported, match="not certified yet"):
        open_platform(DARWIN, state, tool)
    put(records, values(identity("darwin", bytes(tmp_path), tool)))
    assert open_platform(DARWIN, state, tool).closed == {}
    opening = look("darwin", state, tool)
    assert opening.is_shipped and "open on a hosted machine like this one" in lines(opening)[0]
    assert "1 of 1 rows held on a hosted machine like this one" in findings(ROWS, opening)[1].found


def test_rows_that_did_not_hold_stay_closed(records: Path, tmp_path: Path, tool: bytes) -> None:
    here = identity("darwin", bytes(tmp_path), tool)
    put(records, values(here, tcp="fell"))
    assert set(open_platform(DARWIN, bytes(tmp_path), tool).closed) == {"network"}
    put(records, values(here, plain_write="not shown"))
    with pytest.raises(Unsupported, match="plain_write not shown"):
        open_platform(DARWIN, bytes(tmp_path), tool)


def test_a_record_of_this_machine_comes_first_even_if_it_is_damaged(records: Path, tmp_path: Path, tool: bytes) -> None:
    here = identity("darwin", bytes(tmp_path), tool)
    put(records, values(here))
    save(bytes(tmp_path), here, certificate(here, plain_write="fell"))
    assert not look("darwin", bytes(tmp_path), tool).is_open
    (tmp_path / "certificates" / f"{here.key}.json").write_text("")
    opening = look("darwin", bytes(tmp_path), tool)
    assert opening.certificate is None and not opening.is_open


def test_a_session_tries_nothing_first_unless_the_record_leaves_it_closed(
    records: Path, tmp_path: Path, tool: bytes, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    place, tried = context(tmp_path), []
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    monkeypatch.setattr("mudroom.ext.certify.cli.certify.tried", lambda *words: tried.append(words))
    here = identity("darwin", bytes(tmp_path), tool)
    put(records, values(here))
    certify_first(place, "darwin", tool)
    assert tried == []
    put(records, values(here, plain_write="fell"))
    certify_first(place, "darwin", tool)
    assert len(tried) == 1 and "it was closed on a hosted machine like this one" in capsys.readouterr().err


def test_a_certificate_that_is_sent_is_a_record_for_another_user(records: Path, tmp_path: Path) -> None:
    """From ``mudroom doctor --certify --json FILE`` of one user to the session of another."""
    tool, sent = enforcing_sandbox_exec(tmp_path / "tool"), tmp_path / "sent.json"
    assert certify_here("darwin", tool, DarwinClient(tool=tool), str(sent), context(tmp_path, as_json=True)) == 0
    assert str(tmp_path) not in sent.read_text()
    (tmp_path / "other").mkdir()
    with pytest.raises(Unsupported):
        open_platform(DARWIN, bytes(tmp_path / "other"), tool)
    put(records, sent.read_bytes())
    assert open_platform(DARWIN, bytes(tmp_path / "other"), tool).closed == {}


def test_the_kind_of_machine_names_python_user_and_file_system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    monkeypatch.setattr(identity_module, "_filesystem", lambda _state: "apfs")
    for number, user in ((0, "root"), (501, "user")):
        monkeypatch.setattr("os.geteuid", lambda number=number: number)
        assert identity_module.kind(bytes(tmp_path), "0 255 0") == f"{version} {user} apfs 0 255 0"

    def unknown(_state: bytes) -> str:
        raise OSError(0, "its file system has no name")

    monkeypatch.setattr(identity_module, "_filesystem", unknown)
    assert identity_module.kind(bytes(tmp_path), "0 255 0") == ""
