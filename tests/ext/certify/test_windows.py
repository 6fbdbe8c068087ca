"""Rows for Windows against a stand-in that confines: all hold; each mutant of it fells exactly its row; a call that
reports success and does nothing opens nothing; nor does a liar."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from certify.windows_lab import (
    FELLS_ALL,
    FORBIDDEN,
    LOSING,
    NO_FACTS,
    VOLUME,
    WindowsLab,
    measured,
    mutants_told,
    refusals,
    renames_are_refused,
)
from certify.windows_model import USERS, Machine, Program, Token
from certify.windows_program import TEXT, run
from mudroom.errors import Unsupported
from mudroom.ext.certify import trial
from mudroom.ext.certify.ground import TrialGround
from mudroom.ext.certify.row import RowResult, TrialRow, closed, opens
from mudroom.ext.certify.table import WINDOWS
from mudroom.ext.certify.volume import DEEDS as OF_THE_VAULT
from mudroom.ext.certify.windows_trial import prepare_by
from mudroom.ext.windows.core.windows_plan import WindowsPlan
from mudroom.ext.windows.sandbox import calls
from mudroom.ext.windows.win32 import types as w
from mudroom.ext.windows.win32.api import CallFailed
from tiers import QUICK, half

ROWS = {row.name: row for row in WINDOWS}
SANDBOX = [row for row in WINDOWS if row.way != "vault"]
SOME = [ROWS[name] for name in ("write", "policy", "handles", "clipboard", "users", "cmd", "memory", "breakaway")]
"""Of each kind, for mutants that are tried against other rows than their own."""


def failed(results: Mapping[str, RowResult]) -> dict[str, str]:
    return {name: result.verdict for name, result in results.items() if result.verdict != "held"}


def mutant(lab: WindowsLab, row: TrialRow, refused: frozenset[tuple[str, str]]) -> Machine:
    if row.name in FORBIDDEN:
        return lab.machine(forbid=frozenset((FORBIDDEN[row.name],)))
    assert refused, row.name
    return lab.machine(permit=refused)


def test_each_row_has_a_deed() -> None:
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(TEXT, names)
    deeds = {*names["DEEDS"], *OF_THE_VAULT}
    assert {name for row in WINDOWS for name in (row.deed, row.twin or row.deed)} <= deeds
    assert len({row.name for row in WINDOWS}) == len(WINDOWS)


def test_every_row_holds_and_each_mutant_fells_exactly_its_row(tmp_path: Path) -> None:
    """A mutant permits what the honest stand-in refused of one row. Those of different rows have no refusal in common,
    so a mutant is the honest stand-in for all rows but its own."""
    lab, refused = WindowsLab(tmp_path), dict[str, frozenset[tuple[str, str]]]()
    for row in SANDBOX:
        machine = lab.machine()
        (result,) = lab.results(machine, [row]).values()
        assert result.verdict == "held", result
        refused[row.name] = refusals(machine)
    names = list(refused)
    assert [(one, other) for one in names for other in names if one < other and refused[one] & refused[other]] == []
    told = mutants_told()
    assert list(told) == [row.name for row in WINDOWS] and all(told.values())
    for row in SANDBOX:
        assert measured(row, refused[row.name]) == told[row.name], "see tests/ext/certify/document.py: --measure"
        tried = SANDBOX if not QUICK and row.name not in FELLS_ALL else [row]
        wanted = "not shown" if row.canary == "works" else "fell"
        assert failed(lab.results(mutant(lab, row, refused[row.name]), tried)) == {row.name: wanted}


def test_a_machine_on_which_nobody_makes_links(tmp_path: Path) -> None:
    """Without developer mode the control is refused, for the same reason as the deed."""
    lab = WindowsLab(tmp_path)
    result = lab.results(lab.machine(has_links=False), [ROWS["symlink"]])["symlink"]
    assert (result.verdict, result.errno) == ("held", 1314)
    without = ROWS["symlink"]._replace(nobody=())
    assert lab.results(lab.machine(has_links=False), [without])["symlink"].verdict == "not shown"


def test_what_the_firewall_drops_without_an_answer_is_refused(tmp_path: Path) -> None:
    """As others measured it on Windows: a connection to the host's loopback times out, a datagram is sent to nobody."""
    lab, names = WindowsLab(tmp_path), ("loopback", "udp", "served", "bridge")
    found = lab.results(lab.machine(), [ROWS[name] for name in names])
    told = {name: (result.verdict, result.errno) for name, result in found.items()}
    dropped = ("held", errno.ETIMEDOUT)
    assert told == {"loopback": dropped, "udp": ("held", 0), "served": dropped, "bridge": dropped}
    assert found["udp"].found == "it had no effect outside"


def test_tools_that_do_not_start_in_a_container_leave_the_platform_open() -> None:
    """No stock Windows gives a container NUL or the path of a handle."""
    assert shut({"nul": "not shown", "final_path": "not shown", "local_pipe": "not shown"}) == {"tools"}
    assert shut({"python": "not shown"}) == {"platform"}


def test_a_container_that_makes_no_junction_is_none_that_is_open(tmp_path: Path) -> None:
    lab = WindowsLab(tmp_path)
    result = lab.results(lab.machine(has_links=False), [ROWS["junction"]])["junction"]
    assert (result.verdict, result.errno) == ("held", 13)


def test_where_mudroom_itself_is_in_a_job_a_command_may_leave_none_either(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hosted runner starts its steps in a job that nobody leaves."""
    monkeypatch.setattr(trial, "_control", lambda *_words: (False, 13))
    lab = WindowsLab(tmp_path)
    assert lab.results(lab.machine(), [ROWS["breakaway"]])["breakaway"].verdict == "held"
    may_leave = step("job", lambda flags, *more: (flags | w.JOB_OBJECT_LIMIT_BREAKAWAY_OK, *more))
    assert lab.results(lab.machine(), [ROWS["breakaway"]], change=may_leave)["breakaway"].verdict == "fell"


SILENT: Mapping[str, str] = {
    "grant": "no command runs", "label": "no command runs", "resume": "no command runs", "restricts": "no command runs",
    "set_limits": "no command runs", "set_integrity": "no command runs", "contains": "no command runs",
    "joins": "no command runs", "protect": "policy", "deny": "policy_0", "set_ui": "clipboard",
    "lists handles": "handles",
}  # fmt: skip
"""Calls that report success and do nothing, and the row that falls: a command that cannot run is found by what
``ext/windows/sandbox/run.py`` reads back, or because its twin did nothing."""
HARMLESS = frozenset((
    "make_directory", "revoke", "unprotect", "delete_profile", "set_default_dacl", "set_cpu_rate", "terminate_job",
))  # fmt: skip
"""Those by which no command gets more: directories of its own, rights of a SID that no process has any more, rights in
its own pipes, its share of the processors. Closing a job ends its processes, as terminating it does."""
_READ_BACK = frozenset((
    "own_token", "process_token", "privileges", "integrity", "restricting", "user", "logon", "container",
    "capabilities", "create_job", "limit_flags", "create_port", "next_message", "accounting", "is_in_job",
    "process_ids", "create_process", "wait", "exit_code", "hold", "release", "create_profile", "restrict",
))  # fmt: skip
"""Those that return something."""


def test_a_call_that_does_nothing_opens_nothing(tmp_path: Path) -> None:
    parts = (calls.FileCalls, calls.TokenCalls, calls.JobCalls, calls.ProcessCalls)
    every = {name for part in parts for name in vars(part) if not name.startswith("_")}
    assert every <= {*SILENT, *HARMLESS, *_READ_BACK}
    lab, rows = WindowsLab(tmp_path), [*SOME, ROWS["policy_0"]] if QUICK else SANDBOX
    for name, row in half(SILENT.items()):
        found = failed(lab.results(lab.machine(silent=frozenset((name,))), rows))
        if row == "no command runs":
            assert found["write"] == "not shown" and "platform" in shut(found), name
        else:
            assert found == {row: "fell"}, name
    for name in half(sorted(HARMLESS)):
        assert failed(lab.results(lab.machine(silent=frozenset((name,))), rows)) == {}, name
    both = lab.machine(silent=frozenset(("terminate_job", "close")))
    assert failed(lab.results(both, [ROWS["nested"]])) == {"nested": "fell"}


def shut(failed: Mapping[str, str]) -> set[str]:
    rows = tuple(RowResult(row.name, "fell" if row.name in failed else "held") for row in WINDOWS)
    return set(closed(WINDOWS, NO_FACTS._replace(rows=rows)))


Change = Callable[[WindowsPlan], WindowsPlan]


def step(name: str, change: Callable[..., tuple[Any, ...]]) -> Change:
    """Return a change of the arguments of one step."""

    def changed(plan: WindowsPlan) -> WindowsPlan:
        steps = [(name, *change(*one[1:])) if one[0] == name else one for one in plan.steps]
        return plan._replace(steps=tuple(steps))

    return changed


def without(name: str) -> Change:
    return lambda plan: plan._replace(steps=tuple(one for one in plan.steps if one[0] != name))


NETWORK = ("internetClient", "internetClientServer", "privateNetwork")
TOO_MUCH: Mapping[str, tuple[Change, set[str]]] = {
    "all users among the restricting SIDs": (
        step("token", lambda flags, sids: (flags, (*sids, USERS) if sids else ())),
        {"users"},
    ),
    "a job that may be left": (
        step("job", lambda flags, *more: (flags | w.JOB_OBJECT_LIMIT_BREAKAWAY_OK, *more)),
        {"breakaway"},
    ),
    "a job without the limit of memory": (step("job", lambda flags, count, _memory: (flags, count, 0)), {"memory"}),
    "a job without the limit of processes": (
        step("job", lambda flags, _count, memory: (flags, 0, memory)),
        {"processes"},
    ),
    "a clipboard that may be read": (step("ui", lambda bits: (bits & ~2,)), {"clipboard"}),
    "no restriction of the desktop": (without("ui"), {"clipboard"}),
    "a policy that inherits": (without("protect"), {"policy"}),
    "no denial at level 0": (without("deny"), {"policy_0"}),
    "capabilities of the network": (step("profile", lambda name, _none: (name, NETWORK)), {"tcp"}),
    "medium integrity": (step("integrity", lambda _level: (0x2000,)), {"integrity"}),
    "the user among the restricting SIDs": (
        step("token", lambda flags, sids: (flags, (*sids, "@user") if sids else ())),
        {"restricted", "users"},
    ),
}
"""Plans with one right too many, and the rows that fall."""


def test_one_right_too_many_is_found(tmp_path: Path) -> None:
    lab = WindowsLab(tmp_path)
    for name, (change, wanted) in half(TOO_MUCH.items()):
        rows = [*SOME, *(ROWS[row] for row in wanted if ROWS[row] not in SOME)] if QUICK else SANDBOX
        assert failed(lab.results(lab.machine(), rows, change=change)) == dict.fromkeys(wanted, "fell"), name


def test_a_right_in_what_is_beside_the_copy_is_found(tmp_path: Path) -> None:
    def beside(plan: WindowsPlan) -> WindowsPlan:
        (grant,) = [one for one in plan.steps if one[0] == "grant" and one[1].endswith("work")]
        above = grant[1].removesuffix("\\fork\\work")
        more = (("grant", above, *grant[2:]), ("label", above, 0x1000))
        steps = list(plan.steps)
        steps[steps.index(grant) : steps.index(grant)] = more
        return plan._replace(steps=tuple(steps))

    names = ("write", "read", "create", "unlink", "mkdir", "listing", "rename", "link", "project", "junction", "stream")
    lab = WindowsLab(tmp_path)
    found = lab.results(lab.machine(), [*(ROWS[name] for name in names), ROWS["policy"]], change=beside)
    assert failed(found) == dict.fromkeys(names, "fell")


def test_a_right_of_others_that_cannot_be_given_is_told(tmp_path: Path) -> None:
    def grant(*_arguments: object) -> None:
        raise CallFailed("SetSecurityInfo", 5)

    lab = WindowsLab(tmp_path)
    machine = lab.machine()
    prepare = prepare_by(SimpleNamespace(grant=grant))
    with pytest.raises(Unsupported, match="a directory of others needs SetSecurityInfo; found: error 5"):
        prepare(TrialGround(ROWS["users"], str(tmp_path)), 0)
    machine.calls = machine.calls._replace(files=SimpleNamespace(grant=grant))
    result = lab.results(machine, [ROWS["users"]])["users"]
    assert (result.verdict, result.found) == ("not shown", "no command runs: Unsupported")


@pytest.mark.parametrize(
    ("change", "found"),
    [
        (
            step("relay", lambda program, line, *more: (program, line.replace("= 0x12019B", "= 0x12019F"), *more)),
            "no command runs: Unsupported",
        ),
        (step("bridge", lambda name, _trustee: (name, "S-1-15-2-9")), "no command runs: Unsupported"),
        (
            step("relay", lambda program, line, *more: (program, line[:-1] + str((int(line[-1]) + 1) % 10), *more)),
            "its permitted twin did not work either",
        ),
    ],
    ids=["asks to make instances", "pipe of another container", "listens at another port"],
)
def test_without_a_way_to_the_gate_no_row_of_it_holds(tmp_path: Path, change: Change, found: str) -> None:
    lab, rows = WindowsLab(tmp_path), [row for row in WINDOWS if row.way == "gate"]
    assert [row.name for row in rows] == ["bridge", "bridge_address", "bridge_pipe"]
    results = lab.results(lab.machine(), rows, change=change)
    assert {(result.verdict, result.found) for result in results.values()} == {("not shown", found)}
    assert shut(failed(results)) == {"gate"}


def test_rows_of_the_vault_for_windows(tmp_path: Path) -> None:
    lab, rows = WindowsLab(tmp_path), [ROWS["sharing"], ROWS["reparse"]]
    with renames_are_refused():
        assert failed(lab.results(lab.machine(), rows, VOLUME)) == {}
        for row in rows:
            assert failed(lab.results(lab.machine(), rows, LOSING[row.name])) == {row.name: "fell"}
    assert lab.results(lab.machine(), rows, VOLUME)["sharing"].verdict == "not shown", "nothing is in the way"


def lie(name: str, lab: WindowsLab) -> Machine:
    """Return a stand-in that lies."""

    def nothing(_machine: Machine, _program: Program) -> None:
        """Exit 0 without running."""

    def answer(_machine: Machine, program: Program) -> None:
        lines = [json.dumps(["plain_write", 0, ""]), json.dumps(["plain_write", 13, ""])]
        program.output = "\n".join(lines).encode()

    def crash(_machine: Machine, program: Program) -> None:
        program.code = 0xC0000005

    def words(_machine: Machine, program: Program) -> None:
        program.output = lab.words.encode()

    def refuse(_machine: Machine, program: Program) -> None:
        program.output = b'["plain_write", 13, ""]\n["plain_write", 13, ""]\n'

    made = {"nothing": nothing, "answer": answer, "crash": crash, "words": words, "refuse": refuse}
    if name == "hangs":
        return lab.machine(silent=frozenset(("wait",)))
    if name == "starts nothing":
        return lab.machine(forbid=frozenset(("start",)))
    return lab.machine(made[name])


@pytest.mark.parametrize("name", ["nothing", "answer", "crash", "words", "refuse", "hangs", "starts nothing"])
def test_a_liar_opens_nothing(tmp_path: Path, name: str) -> None:
    lab = WindowsLab(tmp_path)
    found = failed(lab.results(lie(name, lab), [ROWS["write"], ROWS["registry"]]))
    assert found == {"write": "not shown", "registry": "not shown"}
    assert not opens([ROWS["write"]], None) and "platform" in shut(found)


def test_a_sandbox_that_confines_the_first_commands_only(tmp_path: Path) -> None:
    lab, count = WindowsLab(tmp_path), 0

    def first(machine: Machine, program: Program) -> None:
        nonlocal count
        count += 1
        if count > 2:
            program.token = Token()
        program.output = run(machine, program, lab.words)

    found = failed(lab.results(lab.machine(first), [ROWS[name] for name in ("write", "read", "unlink", "kill")]))
    assert found == {"unlink": "fell", "kill": "fell"}


def test_where_nothing_confines_each_row_falls(tmp_path: Path) -> None:
    def free(machine: Machine, program: Program) -> None:
        program.token, program.job = Token(), None
        program.handles = frozenset(machine.inheritable)
        program.output = run(machine, program, lab.words)

    lab = WindowsLab(tmp_path)
    rows = [row for row in SANDBOX if row.canary != "works" and row.name != "nested"]
    assert failed(lab.results(lab.machine(free), rows)) == {row.name: "fell" for row in rows}


def test_the_stand_in_leaves_nothing_behind(tmp_path: Path) -> None:
    before = os.getcwd()
    lab = WindowsLab(tmp_path)
    machine = lab.machine()
    lab.results(machine, [ROWS["registry"], ROWS["nested"]])
    assert os.getcwd() == before and not machine.keys
    assert all(holder.is_over for holder in machine.held.values() if holder.job is not None)
