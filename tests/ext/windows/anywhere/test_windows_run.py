"""Plans performed on a recording Windows: the order of calls, and complete undo when any call fails."""

from __future__ import annotations

import pytest
from windows_fake import PACKAGE, Fake

from mudroom.core.confinement.limit import LimitReached, Limits
from mudroom.errors import CommandNotStarted, MudroomError, Unsupported
from mudroom.ext.windows.core.windows_plan import OPS, WindowsPlan
from mudroom.ext.windows.sandbox.calls import Creation, Process
from mudroom.ext.windows.sandbox.run import _Performing, start
from mudroom.ext.windows.win32 import types as w
from mudroom.ext.windows.win32.api import CallFailed
from test_windows_plan import BARE, COMMAND, RELAYING, SPEC, only, plan
from tiers import each

STDIO = (1, 2, 3)
LIMITS = Limits(memory=1 << 20, processes=5, cpus=0.5)
PLANS = {
    "contained": plan(limits=LIMITS),
    "network": plan(SPEC._replace(network="open")),
    "bare": plan(BARE, LIMITS),
    "gate": plan(SPEC._replace(network="gate", proxy=41000), machine=RELAYING),
    "terminal": plan(command=COMMAND._replace(terminal=(80, 25))),
}
NAME = "mudroom.000102030405060708090a0b0c0d0e0f"


def test_a_gate_s_pipe_is_there_before_its_relay_and_the_command_after_both() -> None:
    fake = Fake()
    running = start(fake.calls, PLANS["gate"], STDIO)
    rows = [line for line in fake.log if line.startswith(("bridge", "create_process", "resume", "await", "container"))]
    assert rows == [
        f"bridge {only(PLANS['gate'], 'bridge')[0][0]} {PACKAGE}",
        "create_process C:\\py\\python.exe",
        "container process token",
        "resume thread",
        "await_relay True False",
        "create_process C:\\bin\\x.exe",
        "container process token",
        "resume thread",
    ]
    relay, command = fake.made
    assert relay.stdio is None and command.stdio == STDIO
    assert (relay.container, relay.job, relay.token) == (command.container, command.job, command.token)
    assert running.close() == ()
    assert not fake.handles


def test_the_calls_in_their_order() -> None:
    fake = Fake()
    running = start(fake.calls, PLANS["contained"], STDIO)
    begun = list(fake.log)
    assert begun == [
        f"create_profile {NAME}",
        "make_directory C:\\v\\s\\home",
        "make_directory C:\\v\\s\\home\\AppData",
        "make_directory C:\\v\\s\\home\\AppData\\Local",
        "make_directory C:\\v\\s\\home\\AppData\\Roaming",
        "make_directory C:\\v\\s\\home\\Temp",
        f"grant C:\\v\\work {PACKAGE} 0x1301bf",
        "label C:\\v\\work 0x1000",
        f"grant C:\\v\\s {PACKAGE} 0x1301bf",
        "label C:\\v\\s 0x1000",
        f"grant C:\\tool {PACKAGE} 0x1200a9",
        f"grant C:\\cache {PACKAGE} 0x1301bf",
        "own_token",
        "user own token",
        "logon own token",
        "privileges own token",
        "restrict own token 0x1 [(20, 0), (19, 0)]",
        "close own token",
        f"protect C:\\v\\work\\.mudroom S-1-5-21-1-1-1-1000 S-1-5-18 S-1-5-32-544 {PACKAGE} 0x1200a9",
        f"set_default_dacl token S-1-5-21-1-1-1-1000 S-1-5-5-0-7 {PACKAGE}",
        "set_integrity token 0x1000",
        "create_job",
        "set_limits 0x2608 5 1048576",
        "set_cpu_rate 1250",
        "set_ui 0xff",
        "create_port",
        "create_process C:\\bin\\x.exe",
        "is_in_job",
        "limit_flags job",
        "process_token process",
        "privileges process token",
        "integrity process token",
        "container process token",
        "capabilities process token",
        "close process token",
        "resume thread",
    ]
    assert running.close() == ()
    assert fake.log[len(begun) :] == [
        "terminate_job job 137",
        "close thread",
        "close process",
        "close port",
        "close job",
        f"unprotect C:\\v\\work\\.mudroom {PACKAGE}",
        "close token",
        f"revoke C:\\cache {PACKAGE}",
        f"revoke C:\\tool {PACKAGE}",
        f"revoke C:\\v\\s {PACKAGE}",
        f"revoke C:\\v\\work {PACKAGE}",
        f"delete_profile {NAME}",
    ]
    assert fake.left == []


def calls_of(found: WindowsPlan) -> int:
    fake = Fake()
    start(fake.calls, found, STDIO)
    assert fake.ran
    return len(fake.log)


EACH = [(name, number) for name, found in PLANS.items() for number in range(calls_of(found))]


@each(("name", "number"), EACH)
def test_whatever_fails_nothing_runs_and_nothing_is_left(name: str, number: int) -> None:
    fake = Fake(number)
    with pytest.raises(Unsupported) as raised:
        start(fake.calls, PLANS[name], STDIO)
    assert raised.value.found == "error 5" and raised.value.needs == fake.failing
    assert f" needs {fake.failing}; found: error 5" in str(raised.value)
    assert not fake.ran
    # a handle that cannot be closed is lost, and said to be; all else is taken back
    lost = ["own token"] if fake.log[number] == "close own token" else []
    lost += ["process token"] if fake.log[number] == "close process token" else []
    assert fake.left == lost


@each(("name", "number"), EACH)
def test_also_where_it_goes_on_failing_nothing_runs(name: str, number: int) -> None:
    fake = Fake(number, always=True)
    with pytest.raises(MudroomError):
        start(fake.calls, PLANS[name], STDIO)
    assert not fake.ran and not fake.alive
    assert not fake.profiles and not fake.entries  # their way back has other calls


@each("failing", ["revoke", "delete_profile", "close process", "close job", "terminate_job", "close_console"])
def test_what_cannot_be_taken_back_is_said_and_hinders_nothing_else(failing: str) -> None:
    whole = Fake()
    running = start(whole.calls, PLANS["terminal"], None)
    begun = len(whole.log)
    running.close()
    number = next(i for i, line in enumerate(whole.log) if line.startswith(failing) and i >= begun)
    fake = Fake(number)
    left = start(fake.calls, PLANS["terminal"], None).close()
    assert len(left) == 1 and "error 5" in left[0]
    assert len(fake.log) == len(whole.log)


@each(
    ("name", "lie", "told"),
    [
        ("contained", "job", "the job object needs a process that is in it; found: one that is not"),
        (
            "contained",
            "limits",
            "holding the limits of the job needs a job that keeps them; found: one that has lost some",
        ),
        (
            "contained",
            "privileges",
            "a command without privileges needs a token without any; found: one that still has some",
        ),
        ("contained", "integrity", "low integrity needs a token of that level; found: one of a higher level"),
        ("contained", "container", "a sandbox needs a process in its AppContainer; found: one that is not in it"),
        (
            "contained",
            "capabilities",
            "a closed network needs an AppContainer with no more capabilities than asked for; found: one with others",
        ),
        (
            "bare",
            "restricting",
            "writing only where it is meant to needs a write-restricted token; found: one that is not",
        ),
        (
            "bare",
            "privileges",
            "a command without privileges needs a token without any; found: one that still has some",
        ),
    ],
)
def test_what_is_given_in_word_only_is_found_out(name: str, lie: str, told: str) -> None:
    fake = Fake(lies=frozenset({lie}))
    with pytest.raises(Unsupported) as raised:
        start(fake.calls, PLANS[name], STDIO)
    assert str(raised.value) == f"{told} (no command was run; mudroom doctor tries the sandbox)"
    assert not fake.ran and fake.left == []


@each(("code", "exit_code"), [(2, 127), (3, 127), (193, 126), (740, 126)])
def test_a_program_that_cannot_be_started_is_no_missing_protection(code: int, exit_code: int) -> None:
    class Refusing(Fake):
        def create_process(self, creation: Creation) -> Process:
            raise CallFailed("CreateProcessAsUserW" if creation.program else "", code)

    fake = Refusing()
    with pytest.raises(CommandNotStarted) as raised:
        start(fake.calls, PLANS["contained"], STDIO)
    assert raised.value.exit_code == exit_code and fake.left == []


@pytest.mark.parametrize(("name", "op"), [("contained", "protect"), ("bare", "deny")])
def test_what_is_not_there_is_not_hidden(name: str, op: str) -> None:
    found = PLANS[name]
    assert op in [step[0] for step in found.steps]
    fake = Fake()
    steps = tuple((op, "gone", *step[2:]) if step[0] == op else step for step in found.steps)
    running = start(fake.calls, found._replace(steps=steps), STDIO)
    running.close()
    assert "gone" not in " ".join(fake.log) and fake.left == []


def test_what_the_process_is_made_of() -> None:
    fake = Fake()
    start(fake.calls, PLANS["network"], STDIO)
    made = fake.made[0]
    assert made.stdio == STDIO and made.container == PACKAGE and made.console == 0
    assert made.capabilities == ("S-1-15-3-1", "S-1-15-3-2", "S-1-15-3-3")
    assert made.mitigations == 0x1010000100000000
    bare = Fake()
    start(bare.calls, PLANS["bare"], STDIO)
    assert not bare.made[0].container and not bare.made[0].capabilities and not bare.made[0].mitigations


def test_handles_that_were_not_given_are_not_guessed() -> None:
    fake = Fake()
    with pytest.raises(Unsupported, match="standard handles"):
        start(fake.calls, PLANS["contained"])
    assert fake.left == [] and not fake.made


def test_a_terminal() -> None:
    fake = Fake()
    running = start(fake.calls, PLANS["terminal"])
    running.resize(100, 40)
    assert fake.log[-1] == "resize_console 100 40" and fake.made[0].console == 7 and fake.made[0].stdio is None
    running.close()
    closing = [line for line in fake.log if line in ("close output", "close input", "close_console")]
    assert closing == ["close output", "close input", "close_console"]


@pytest.mark.parametrize("name", PLANS)
@pytest.mark.parametrize("missing", ["check", "job", "token"])
def test_a_plan_without_its_confinement_runs_nothing(name: str, missing: str) -> None:
    fake = Fake()
    steps = tuple(step for step in PLANS[name].steps if step[0] != missing)
    with pytest.raises((ValueError, KeyError), match=r"a plan that|^0$"):  # 0: a job that the record does not have
        start(fake.calls, PLANS[name]._replace(steps=steps), STDIO)
    assert not fake.ran and fake.left == []
    assert missing == "check" or not fake.made


def test_waiting_and_ending() -> None:
    fake = Fake()
    running = start(fake.calls, PLANS["contained"], STDIO)
    assert running.wait(0.25) is None and fake.log[-1] == "wait 250"
    assert running.wait() == 3 and "wait 2147483646" in fake.log
    assert running.accounting() == (1.5, 3, 1, 4096)
    running.terminate()
    assert not fake.alive
    assert running.close() == () and running.close() == ()


def test_limits_that_were_reached() -> None:
    fake = Fake()
    running = start(fake.calls, PLANS["contained"], STDIO)
    told = (w.JOB_OBJECT_MSG_ACTIVE_PROCESS_LIMIT, w.JOB_OBJECT_MSG_NEW_PROCESS, w.JOB_OBJECT_MSG_JOB_MEMORY_LIMIT)
    fake.messages += [(message, 1) for message in (*told, *told[:1])]
    assert running.reached(LIMITS) == (
        LimitReached("memory", "refused", 1 << 20, amount=1),
        LimitReached("processes", "refused", 5, amount=2),
    )
    assert running.reached(Limits()) == ()


def test_every_op_is_performed_by_a_method() -> None:
    assert all(callable(getattr(_Performing, op)) for op in OPS)
