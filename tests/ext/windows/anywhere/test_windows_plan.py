"""The plan that is compiled for Windows, readable on any machine."""

from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st
from windows_fake import RELAY

from mudroom.core.confinement.limit import Limits
from mudroom.core.confinement.spec import Bind, Copy, HostView, Overlay, SandboxSpec
from mudroom.errors import Unsupported, UsageError
from mudroom.ext.windows.core.windows_plan import CHANGE, JOB, OPS, READ, WindowsPlan, describe, explain
from mudroom.ext.windows.sandbox.plan import (
    JOB_FLAGS,
    WindowsCommand,
    WindowsMachine,
    compile_plan,
    container_name,
    cpu_rate,
    session_sid,
    system_variables,
)
from mudroom.policy.setting_type import shell_command
from tiers import each

NONCE = bytes(range(16))
SPEC = SandboxSpec(
    project=b"C:\\Users\\me\\p",
    view=Copy(b"C:\\v\\work"),
    cwd=b"c:\\users\\ME\\p\\sub",
    home=b"C:\\Users\\me",
    scratch=b"C:\\v\\s",
    binds=(
        Bind(b"C:\\tool", b"C:\\tool"),
        Bind(b"C:\\cache", b"C:\\cache", True),
        Bind(b"C:\\x", b"C:\\Users\\me\\p\\.mudroom"),
    ),
)  # fmt: skip
BARE = SPEC._replace(around=HostView(live=(Bind(b"C:\\login", b"C:\\login", True),)), network="open")
ENVIRON = {"SystemRoot": "C:\\Windows", "PATH": "C:\\bin", "TEMP": "C:\\secret", "userprofile": "C:\\Users\\me"}
COMMAND = WindowsCommand("C:\\bin\\x.exe", ("x", "a b"), ENVIRON)

NO_LIMITS, FOUR = Limits(), WindowsMachine(4)

RELAYING = WindowsMachine(4, python=RELAY, relay="import sys\nprint(1)\n")


def plan(
    spec: SandboxSpec = SPEC,
    limits: Limits = NO_LIMITS,
    command: WindowsCommand = COMMAND,
    machine: WindowsMachine = FOUR,
) -> WindowsPlan:
    return compile_plan(spec, limits, command, machine, NONCE)


def only(found: WindowsPlan, op: str) -> list[tuple[object, ...]]:
    return [step[1:] for step in found.steps if step[0] == op]


def test_level_one_as_it_is_shown() -> None:
    assert list(explain(plan(limits=Limits(memory=1 << 30, processes=50, cpus=1.5)))) == [
        "AppContainer",
        "  1. AppContainer mudroom.000102030405060708090a0b0c0d0e0f, no capability",
        "  2. directory C:\\v\\s\\home",
        "  3. directory C:\\v\\s\\home\\AppData",
        "  4. directory C:\\v\\s\\home\\AppData\\Local",
        "  5. directory C:\\v\\s\\home\\AppData\\Roaming",
        "  6. directory C:\\v\\s\\home\\Temp",
        "  7. let @package read, execute, write, delete: C:\\v\\work",
        "  8. integrity label low: C:\\v\\work",
        "  9. let @package read, execute, write, delete: C:\\v\\s",
        " 10. integrity label low: C:\\v\\s",
        " 11. let @package read and execute: C:\\tool",
        " 12. let @package read, execute, write, delete: C:\\cache",
        " 13. the user's token without its privileges",
        " 14. only for @user, the system and administrators; let @package read and execute: C:\\v\\work\\.mudroom",
        " 15. objects that it creates without an ACL also give access to @user, @logon, @package",
        " 16. integrity of the token: low",
        " 17. job object: ends with mudroom, no breaking away, 50 processes, 1073741824 bytes of memory",
        " 18. processor time, of all processors together: at most 37.5 %",
        " 19. restrictions of the desktop: 0xff",
        " 20. a completion port that is told what the job's limits do",
        " 21. inherits its three standard handles, and no other",
        " 22. mitigations of the process: 0x1010000100000000",
        ' 23. create the process, suspended, in the job: "C:\\bin\\x.exe" "a b", in C:\\v\\work\\sub',
        " 24. check that all of that is in force: job, token, AppContainer; else end it",
        " 25. let it run",
        f"  +  {JOB}",
        "  +  limit processes: threads do not count on Windows",
        "  +  the command works in a copy of the project, at another path",
    ]


def test_the_gate_is_a_pipe_and_a_relay_in_the_container() -> None:
    found = plan(SPEC._replace(network="gate", proxy=41000), machine=RELAYING)
    ((name, trustee),), ((program, line, block, cwd, contained),) = only(found, "bridge"), only(found, "relay")
    assert name.startswith("mudroom-") and len(name) == 40 and trustee == "@package"  # type: ignore[attr-defined,arg-type]
    words = ' "-I" "-S" "-c" '.replace('"', "")
    assert line == f'"{program}"{words}"import sys\nprint(1)\n" \\\\.\\pipe\\{name} 41000'
    assert (program, cwd, contained) == (RELAY, "C:\\v\\s\\home", True)
    assert "secret" not in block and "SystemRoot=C:\\Windows" in block  # type: ignore[operator]
    assert only(found, "profile")[0][1] == ()
    assert found.notes[-1] == "the gate is reached by a named pipe and a relay in the container"
    assert not only(plan(), "bridge")


def test_level_nought_writes_only_where_its_sid_may() -> None:
    found = plan(BARE)
    sid = "S-1-5-21-50462976-117835012-185207048-252579084"
    assert session_sid(NONCE) == sid
    assert only(found, "token") == [(0xD, (sid, "@logon", "S-1-1-0"))]
    assert only(found, "grant") == [
        ("C:\\v\\work", sid, CHANGE), ("C:\\v\\s", sid, CHANGE), ("C:\\cache", sid, CHANGE), ("C:\\login", sid, CHANGE)
    ]  # fmt: skip
    assert only(found, "default_dacl") == [(("@user", "@logon", sid),)]
    assert not only(found, "profile") and not only(found, "integrity")
    assert any(note.startswith("files that Everyone may write are writable at level 0") for note in found.notes)


@pytest.mark.parametrize("spec", [SPEC, BARE], ids=["contained", "bare"])
def test_nothing_runs_before_it_is_looked_at(spec: SandboxSpec) -> None:
    ops = [step[0] for step in plan(spec).steps]
    assert ops[-3:] == ["create", "check", "resume"]
    assert set(ops) <= OPS and {"token", "job", "ui", "stdio"} <= set(ops)


@pytest.mark.parametrize("spec", [SPEC, BARE], ids=["contained", "bare"])
def test_the_users_own_sid_restricts_nothing(spec: SandboxSpec) -> None:
    assert "@user" not in only(plan(spec), "token")[0][1]  # type: ignore[operator]


def test_no_limit_lets_anything_break_away() -> None:
    every = only(plan(limits=Limits(memory=1, processes=2, cpus=0.1)), "job")[0]
    assert every == (JOB_FLAGS | 0x208, 2, 1)
    assert isinstance(every[0], int) and not every[0] & 0x1800


def test_capabilities_follow_the_network() -> None:
    assert only(plan(), "profile")[0][1] == ()
    opened = plan(SPEC._replace(network="open"))
    assert only(opened, "profile")[0][1] == ("internetClient", "internetClientServer", "privateNetwork")
    assert any("loopback" in note for note in opened.notes)


MASKS = "an AppContainer, to which denials reportedly do not apply (do not share the directory of C:\\k)"
LIMIT = "needs a mechanism that enforces it; found: job objects, which have no such limit"
DEGRADE = "(leave it out, or set limits.missing: degrade)"


@each(
    ("spec", "machine", "limits", "told"),
    [
        (
            SPEC._replace(view=Overlay((b"C:\\",), b"", b"")), FOUR, NO_LIMITS,
            "an overlay view needs an overlay file system; found: Windows, which has none (set run.view: copy)",
        ),
        (
            SPEC._replace(network="gate"), FOUR, NO_LIMITS,
            "the gate needs a Python that runs in the container; found: none (--net none)",
        ),
        (
            BARE._replace(network="gate"), FOUR, NO_LIMITS,
            "the gate at level 0 needs an AppContainer; found: a restricted token, which no firewall knows "
            "(use level 1)",
        ),
        (
            BARE._replace(network="none"), FOUR, NO_LIMITS,
            "no network at level 0 needs an AppContainer; found: a restricted token, which no firewall knows "
            "(use level 1)",
        ),
        (
            SPEC._replace(masks=(b"C:\\k",)), FOUR, NO_LIMITS,
            "hiding files outside of the project needs a denial that applies to the sandbox; found: " + MASKS,
        ),
        *(
            (
                hidden, FOUR, NO_LIMITS,
                "hiding files at level 0 needs a token that may read less than its user; found: a write-restricted "
                "one, which reads all that the user can (use level 1)",
            )
            for hidden in (
                BARE._replace(masks=(b"C:\\k",)),
                BARE._replace(around=HostView(covered=(b"C:\\k",))),
            )
        ),
        (SPEC, FOUR, Limits(io=1), f"limit io, 1 bytes/s {LIMIT} {DEGRADE}"),
        (SPEC, FOUR, Limits(open_files=9), f"limit open files, 9 {LIMIT} {DEGRADE}"),
        (SPEC, FOUR, Limits(file_size=9), f"limit file size, 9 bytes {LIMIT} {DEGRADE}"),
        (SPEC, FOUR, Limits(total_memory=2048), f"limit memory, 2 KiB for all commands {LIMIT} {DEGRADE}"),
        (
            SPEC, WindowsMachine(4, in_job=True), NO_LIMITS,
            "closing the clipboard and the desktop needs a job that is in no other one; found: mudroom in another job, "
            "inside which no job can close the desktop (start mudroom from a console of its own (conhost), or set "
            "limits.missing: degrade)",
        ),
    ],
)  # fmt: skip
def test_what_cannot_be_given_is_refused(spec: SandboxSpec, machine: WindowsMachine, limits: Limits, told: str) -> None:
    with pytest.raises(Unsupported) as raised:
        plan(spec, limits, machine=machine)
    assert str(raised.value) == told


def test_or_said_where_the_policy_permits_it() -> None:
    found = plan(limits=Limits(io=1, open_files=9, missing="degrade"))
    assert {"limit io, 1 bytes/s: not enforced", "limit open files, 9: not enforced"} <= set(found.notes)


def test_the_environment_is_the_sandboxes_own() -> None:
    (_program, _line, block, cwd) = only(plan(), "create")[0]
    assert cwd == "C:\\v\\work\\sub"
    rows = str(block).split("\0")
    assert rows[-2:] == ["", ""]
    assert "TEMP=C:\\v\\s\\home\\Temp" in rows and "USERPROFILE=C:\\v\\s\\home" in rows and "HOMEDRIVE=C:" in rows
    assert "SystemRoot=C:\\Windows" in rows and "NoDefaultCurrentDirectoryInExePath=1" in rows
    assert not any("secret" in row or "userprofile" in row for row in rows)


def test_batch_files_are_run_by_the_systems_own_shell() -> None:
    batch = WindowsCommand("C:\\n\\npm.cmd", ("npm", "ci"), {**ENVIRON, "ComSpec": "C:\\evil.exe"})
    program, line, _block, _cwd = only(plan(command=batch), "create")[0]
    assert program == "C:\\Windows\\System32\\cmd.exe"
    assert line == '"C:\\Windows\\System32\\cmd.exe" /e:on /v:off /d /s /c ""C:\\n\\npm.cmd" ci"'
    rows: tuple[tuple[tuple[str, ...], dict[str, str], str], ...] = (
        (("npm", '"&calc'), ENVIRON, "(run the program that it starts)"),
        (
            ("npm",), {},
            "C:\\n\\npm.cmd is a batch file, and cmd.exe cannot be found: SystemRoot is not set "
            "(set SystemRoot=C:\\Windows)",
        ),
    )  # fmt: skip
    for words, environ, told in rows:
        with pytest.raises(UsageError) as raised:
            plan(command=batch._replace(words=words, variables=environ))
        assert str(raised.value).endswith(told)


def test_a_terminal_instead_of_handles() -> None:
    found = plan(command=COMMAND._replace(terminal=(80, 25)))
    assert only(found, "terminal") == [(80, 25)] and not only(found, "stdio")


@given(st.floats(0.001, 512), st.integers(1, 512))
def test_the_rate_is_one_that_windows_takes(cpus: float, processors: int) -> None:
    assert 1 <= cpu_rate(cpus, processors) <= 10_000


def test_system_variables_are_known_in_any_case() -> None:
    assert system_variables({"SYSTEMROOT": "x", "SystemDrive": "C:", "AWS_SECRET": "y"}) == {
        "SYSTEMROOT": "x",
        "SystemDrive": "C:",
    }


@each("source", [b"C:\\users\\ME\\p\\x", b"C:\\Users\\me\\p", b"C:\\Users", b"C:\\"])
def test_nothing_gives_the_project_itself_away(source: bytes) -> None:
    with pytest.raises(UsageError) as raised:
        plan(SPEC._replace(binds=(Bind(source, b"D:\\elsewhere", True),)))
    told = f"{source.decode()} cannot be writable: it is in the project, or contains it (name a directory beside it)"
    assert str(raised.value) == told
    inside = plan(SPEC._replace(binds=(Bind(source, b"c:\\users\\me\\P\\y", True),)))
    assert not [grant for grant in only(inside, "grant") if grant[0] == source.decode()]


def test_in_somebody_elses_job_the_desktop_cannot_be_closed() -> None:
    inside = WindowsMachine(4, in_job=True)
    for found in (plan(limits=Limits(missing="degrade"), machine=inside), plan(BARE, machine=inside)):
        assert not only(found, "ui") and any("not closed" in note for note in found.notes)


def test_names_are_short_enough() -> None:
    assert len(container_name(NONCE)) <= 64


def test_every_op_has_a_description() -> None:
    for found in (plan(limits=Limits(cpus=1)), plan(BARE), plan(command=COMMAND._replace(terminal=(1, 1)))):
        assert all(describe(step) for step in found.steps)
    assert READ & ~CHANGE == 0


def test_cmd_is_started_with_the_line_as_it_is_written() -> None:
    """A command of a policy that is a text."""
    words = tuple(map(os.fsdecode, shell_command(b'pytest -q "a b" && echo %OK%', "verify.command", "win32")))
    command = WindowsCommand("C:\\Windows\\System32\\cmd.exe", words, {"SystemRoot": "C:\\Windows"})
    spec = SandboxSpec(b"C:\\p", Copy(b"C:\\v"), b"C:\\p", b"C:\\Users\\me", b"C:\\s")
    plan = compile_plan(spec, Limits(), command, WindowsMachine(4), bytes(16))
    (create,) = (step for step in plan.steps if step[0] == "create")
    assert create[2] == '"C:\\Windows\\System32\\cmd.exe" /d /s /c "pytest -q "a b" && echo %OK%"'
