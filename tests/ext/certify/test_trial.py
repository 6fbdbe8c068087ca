"""Rows against an enforcing stand-in for sandbox-exec: all hold; each mutant of it fells exactly its row; a liar opens
nothing."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import socket
from collections.abc import Sequence
from pathlib import Path

import pytest
from macbox import fake_sandbox_exec

from certify.document import document, measured, mutants_told
from certify.lab import LOSING, NO_FACTS, SILENT, UNENFORCED, VOLUME, WITHOUT, Lab, Refusal, lose_plans
from mudroom.ext.certify import canary
from mudroom.ext.certify import trial as trial_module
from mudroom.ext.certify.canary import listen_tcp
from mudroom.ext.certify.deed import DEEDS, tried
from mudroom.ext.certify.killed_apply import MOMENTS, try_killed_apply
from mudroom.ext.certify.macos import mac_trial
from mudroom.ext.certify.row import RowResult, TrialRow, closed, opens
from mudroom.ext.certify.table import MACOS, READINGS
from mudroom.ext.certify.trial import certify
from mudroom.ext.certify.volume import Volume, try_volume
from mudroom.ext.macos.client import DarwinClient
from tiers import QUICK, half

ROWS = {row.name: row for row in MACOS}
SOME = ("plain_write", "gate_port", "store_read", "precedence", "pasteboard", "file_size", "no_replace")
"""Of each kind, for the quick tier."""


def rows_of_the_tier() -> list[TrialRow]:
    return [ROWS[name] for name in half(SOME)] if QUICK else list(MACOS)


@pytest.mark.limit(400)
def test_every_row_holds_and_each_mutant_fells_exactly_its_row(tmp_path: Path) -> None:
    """A mutant permits what the honest stand-in refused of one row. Those of different rows have no refusal in common,
    so a mutant is the honest stand-in for all rows but its own."""
    lab, rows = Lab(tmp_path), rows_of_the_tier()
    refused: dict[str, frozenset[Refusal]] = {}
    for row in rows:
        (result,) = lab.results(lab.tool(), [row]).values()
        assert result.verdict == "held", result
        refused[row.name] = lab.refusals(row)
    shared = [(one, other) for one in refused for other in refused if one < other and refused[one] & refused[other]]
    assert shared == []
    told = mutants_told()
    for row in rows:
        assert measured(row, refused[row.name]) == told[row.name], "see tests/ext/certify/document.py: --measure"
        fallen = fell(lab, row, refused[row.name], [row])[row.name]
        assert fallen.verdict == ("not shown" if row.canary == "works" else "fell"), fallen


def fell(lab: Lab, row: TrialRow, refused: frozenset[Refusal], rows: Sequence[TrialRow]) -> dict[str, RowResult]:
    """Return what rows make of the mutant of a row."""
    if row.name in WITHOUT:
        return lab.results(lab.tool(), rows, without=WITHOUT[row.name])
    if row.name in LOSING:
        return lab.results(lab.tool(), rows, volume=LOSING[row.name])
    settings = UNENFORCED.get(row.name) or {"permit": sorted(tuple(one) for one in refused)}
    assert any(settings.values()), row.name
    return lab.results(lab.tool(**settings), rows)


def test_the_document_has_each_row_with_its_mutant_and_each_certificate() -> None:
    told = mutants_told()
    assert list(told) == [row.name for row in MACOS] and all(told.values())
    text = (Path(__file__).parents[3] / "docs/evidence/CERTIFICATION.md").read_text()
    assert text == document(), "see tests/ext/certify/document.py"


@pytest.mark.deep
@pytest.mark.limit(400)
@pytest.mark.parametrize("name", ["plain_write", "precedence", "leftover", "shell", "pasteboard", "file_size", "swap"])
def test_a_mutant_changes_no_other_row(tmp_path: Path, name: str) -> None:
    lab = Lab(tmp_path)
    lab.results(lab.tool(), [ROWS[name]])
    results = fell(lab, ROWS[name], lab.refusals(ROWS[name]), MACOS)
    limits = {row for row in WITHOUT if name in WITHOUT}  # a plan without limits has neither
    assert {row for row, result in results.items() if result.verdict != "held"} == {name, *limits}


@pytest.mark.deep
@pytest.mark.parametrize("reading", ["last", "operation", "filter", "filter, operation"])
def test_each_known_reading_is_told(tmp_path: Path, reading: str) -> None:
    lab = Lab(tmp_path)
    result = lab.results(lab.tool(reading=reading), [ROWS["precedence"]])["precedence"]
    assert (result.verdict, result.found in READINGS.values()) == ("held", True)


# --- the volume ---


def of_the_vault(name: str, volume: Volume, tmp_path: Path) -> tuple[str, str, int]:
    (tmp_path / name).mkdir(exist_ok=True)
    found = try_volume(name, volume, str(tmp_path / name))
    shutil.rmtree(tmp_path / name)
    return found


def test_rows_of_the_vault_hold_and_a_volume_that_lies_fells_its_row(tmp_path: Path) -> None:
    """A mutant replaces one call, which no other row makes."""
    ours = {row.name for row in MACOS if row.way == "vault"}
    assert set(LOSING) == set(SILENT) == ours, "those of Windows are in test_windows.py"
    names = [name for name in LOSING if not QUICK or name != "kill_9"]
    for name in names:
        assert of_the_vault(name, VOLUME, tmp_path)[0] == "held", name
        assert of_the_vault(name, LOSING[name], tmp_path)[0] == "fell", name
        assert of_the_vault(name, SILENT[name], tmp_path)[0] != "held", name
        others = [other for other in names if other != name and other != "kill_9"]
        assert {of_the_vault(other, LOSING[name], tmp_path)[0] for other in others} == {"held"}, name


def test_a_call_that_the_volume_lacks_is_not_shown(tmp_path: Path) -> None:
    def lacks(*_arguments: object) -> bool:
        raise OSError(errno.ENOTSUP, "not supported")

    lacking = Volume(lacks, lacks, lacks, lacks, lacks, lacks, lacks, lacks)  # type: ignore[arg-type]
    for name in LOSING:
        assert of_the_vault(name, lacking, tmp_path)[::2] == ("not shown", errno.ENOTSUP), name
    assert of_the_vault("sharing", VOLUME, tmp_path)[::2] == ("not shown", errno.ENOTSUP)
    assert of_the_vault("clone", VOLUME._replace(clone=lambda *_arguments: False), tmp_path)[0] == "not shown"


def test_an_apply_that_is_not_killed_shows_nothing(tmp_path: Path) -> None:
    assert try_killed_apply(str(tmp_path), run=lambda _words: 0) == (
        None,
        "the apply was not killed in the state before a plan",
    )


@pytest.mark.deep
def test_each_moment_of_a_kill_is_needed_by_a_mutant(tmp_path: Path) -> None:
    """A volume that loses the plan loses the apply from the state ready on; in each state before, nothing is lost."""
    found = {}
    for number, moment in enumerate(MOMENTS):
        (tmp_path / str(number)).mkdir()
        found[moment] = try_killed_apply(str(tmp_path / str(number)), run=lose_plans, moments=[moment])[0]
    assert list(found.values()) == [True, True, False, False, False]


LIARS = {
    "exits 0 without running": "exit 0",
    "refuses everything": "echo no >&2; exit 71",
    "dies by a signal": "kill -9 $$",
    "answers without running": 'echo \'["plain_write", 0, ""]\'; echo \'["plain_write", 1, ""]\'',
    "another program": 'exec /bin/echo "$@"',
    "writes what the command would": 'mkdir -p "$PWD/twin"; echo mark > "$PWD/twin/target"; exit 0',
    "runs true only": 'case "$4" in */true) exec "$4";; esac; exit 0',
    "hangs for a command": 'case "$4" in */true) exec "$4";; esac; exec sleep 1000',
}


@pytest.mark.parametrize("lie", LIARS)
def test_a_liar_opens_nothing(tmp_path: Path, lie: str) -> None:
    lab, tool = Lab(tmp_path), tmp_path / "liar"
    tool.write_text(f"#!/bin/sh\n{LIARS[lie]}\n")
    tool.chmod(0o755)
    rows = [ROWS["plain_write"]]
    results = lab.results(bytes(tool), rows, patience=0.5)
    assert results["plain_write"].verdict == "not shown"
    assert not opens(rows, NO_FACTS._replace(rows=tuple(results.values())))


@pytest.mark.deep
def test_a_sandbox_that_hangs_before_any_command_opens_nothing(tmp_path: Path) -> None:
    lab, tool = Lab(tmp_path), tmp_path / "liar"
    tool.write_text("#!/bin/sh\nsleep 1000\n")
    tool.chmod(0o755)
    assert lab.results(bytes(tool), [ROWS["plain_write"]])["plain_write"].verdict == "not shown"


def test_a_sandbox_that_confines_nothing_fells_each_row(tmp_path: Path) -> None:
    lab, tool = Lab(tmp_path), fake_sandbox_exec(tmp_path)
    rows = [
        row
        for row in rows_of_the_tier()
        if row.canary != "works" and row.way != "vault" and row.name not in (*WITHOUT, "leftover")
    ]  # the warden's; permitted
    results = lab.results(tool, rows)
    assert {name: result.verdict for name, result in results.items()} == {row.name: "fell" for row in rows}


def test_it_ends_after_its_time_and_tells_how_far_it_is(tmp_path: Path) -> None:
    """Rows that are left when the time is over are not shown. Time is a counter here: each row takes 100 seconds."""
    moments, told = iter(range(0, 10_000, 100)), list[tuple[int, int]]()
    place = Path(os.path.realpath(tmp_path))
    honest = Lab(place)
    client = DarwinClient(tool=honest.tool())
    rows = [ROWS["plain_write"]] * 5
    trial = mac_trial(client, home=bytes(place / "home"), search=[], volume=VOLUME)
    (place / "now").mkdir()
    made = certify(
        rows, trial, str(place / "now"), NO_FACTS, clock=lambda: float(next(moments)),
        progress=lambda number, count, _name: told.append((number, count)),
    )  # fmt: skip
    client.close()
    assert [row.verdict for row in made.rows][-2:] == ["not shown"] * 2
    assert made.rows[-1].found == "the time for all rows was over"
    assert told == [(number, 5) for number in range(1, 6)]
    assert os.listdir(place / "now") == []


def test_a_sandbox_that_confines_the_first_commands_only(tmp_path: Path) -> None:
    """Each row is a command of its own."""
    lab = Lab(tmp_path)
    honest, tool = os.fsdecode(lab.tool()), tmp_path / "liar"
    tool.write_text(
        f"#!/bin/sh\necho x >> {tmp_path}/count\n"
        f'[ $(wc -l < {tmp_path}/count) -le 2 ] && exec {honest} "$@"\nshift 3\nexec "$@"\n'
    )
    tool.chmod(0o755)
    rows = [ROWS["plain_write"], ROWS["plain_read"], ROWS["unlink"]]
    results = lab.results(bytes(tool), rows)
    assert [result.verdict for result in results.values()] == ["held", "fell", "fell"]
    assert not opens(MACOS, NO_FACTS._replace(rows=tuple(results.values())))


def test_a_link_local_address_is_reached_by_its_scope(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a Mac without a network has one. A name of an interface in the address alone has no effect."""
    found = link_local()
    if found is None:
        pytest.skip("no interface here has a link-local address")
    monkeypatch.setattr(canary, "other_address", lambda: found)
    with contextlib.ExitStack() as stack:
        stack.enter_context(contextlib.chdir(tmp_path))  # each deed goes to a directory of its own
        made = canary.put_up(stack, str(tmp_path / "c"), "connection")
        facts = dict(made.facts)
        assert facts["port_other"], "it is listened at"
        assert tried(DEEDS["connect_other"], facts, str(tmp_path / "d"))[0] == 0
        assert made.is_done("")
        assert tried(DEEDS["connect_other"], {**facts, "scope": 0}, str(tmp_path / "e"))[0] != 0


def test_a_machine_without_an_address_family_has_no_server_of_it() -> None:
    """As with ``ipv6.disable=1``: socket(2), EAFNOSUPPORT."""
    with contextlib.ExitStack() as stack:
        assert listen_tcp(stack, 4095, ("127.0.0.1", 0)) is None


def link_local() -> tuple[str, int] | None:
    """Return an address of proc(5), net/if_inet6, that begins with fe80, and the number of its interface."""
    with contextlib.suppress(OSError), open("/proc/net/if_inet6", encoding="ascii") as rows:
        for row in rows:
            digits, number = row.split()[:2]
            if digits.startswith("fe80"):
                return socket.inet_ntop(socket.AF_INET6, bytes.fromhex(digits)), int(number, 16)
    return None


def test_a_sandbox_that_reads_ascii_alone_leaves_the_platform_open(tmp_path: Path) -> None:
    """Whether sandbox-exec reads other bytes in a profile is told of in two ways."""
    lab, tool = Lab(Path(os.path.realpath(tmp_path))), tmp_path / "ascii"
    tool.write_text(
        '#!/bin/sh\nif LC_ALL=C grep -q "[^ -~]" "$2"; then echo no >&2; exit 65; fi\n'
        f'exec {os.fsdecode(lab.tool())} "$@"\n'
    )
    tool.chmod(0o755)
    found = lab.results(bytes(tool), [ROWS["quoting"], ROWS["accent"]])
    assert {name: result.verdict for name, result in found.items()} == {"quoting": "held", "accent": "not shown"}
    held = tuple(found.get(row.name, RowResult(row.name, "held")) for row in MACOS)
    assert list(closed(MACOS, NO_FACTS._replace(rows=held))) == ["names"]


@pytest.mark.parametrize(("name", "verdict"), [("multicast", "held"), ("lan", "held"), ("udp", "not shown")])
def test_multicast_that_this_user_may_not_send_has_to_be_refused_all_the_same(
    tmp_path: Path, name: str, verdict: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """macOS 15 answers EHOSTUNREACH to a program without the permission "Local Network"."""
    monkeypatch.setattr(trial_module, "_control", lambda *_words: (False, errno.EHOSTUNREACH))
    place = Path(os.path.realpath(tmp_path))
    lab = Lab(place)
    assert lab.results(lab.tool(), [ROWS[name]])[name].verdict == verdict
