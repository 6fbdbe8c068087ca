"""``mudroom hook`` as an agent and as a user meet it: whole processes, files, output, exit codes."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import forked
from conftest import Place
from mudroom.ext.agents.core.hook_contract import CONTRACTS
from test_vault_verb import Cli
from tiers import pairs

pytestmark = pytest.mark.both_users
SHARED = {
    "claude": ".claude/settings.local.json",
    "codex": ".codex/config.toml",
    "gemini": ".gemini/settings.json",
    "opencode": "opencode.json",
    "cursor": ".cursor/hooks.json",
}


@pytest.fixture
def cli(place: Place) -> Cli:
    place.write("calc.py", "return a - b\n")
    return Cli(place)


def run(cli: Cli, agent: str, event: Any, *options: str, cwd: Path | None = None) -> Any:
    """Return the answer to an event."""
    text = event if isinstance(event, str) else json.dumps(event)
    done = forked.run(
        ["hook", *options, "run", agent],
        cwd=cwd or cli.place.project,
        env=cli.environment,
        input=text,
    )
    assert done.returncode == 0, done.stderr
    assert not done.stderr
    return json.loads(done.stdout)


def claude(cli: Cli, tool: str, *options: str, **arguments: Any) -> Any:
    event = {
        "hook_event_name": "PreToolUse",
        "tool_name": tool,
        "tool_input": arguments,
        "cwd": str(cli.place.project),
    }
    return run(cli, "claude", event, *options)["hookSpecificOutput"]


# --- run ---


def test_commands_and_edits_meet_in_the_fork(cli: Cli) -> None:
    command = claude(cli, "Bash", command='echo "it\'s" >made; pwd')
    assert command["permissionDecision"] == "allow"
    done = subprocess.run(
        ["bash", "-c", command["updatedInput"]["command"]],
        cwd=cli.place.project,
        env=cli.environment,
        capture_output=True,
        check=False,
    )
    assert (done.returncode, done.stdout.decode(), done.stderr) == (0, f"{cli.place.project}\n", b"")
    edited = claude(cli, "Edit", file_path="calc.py", old_string="-")["updatedInput"]["file_path"]
    assert edited != str(cli.place.project / "calc.py")
    Path(edited).write_text("return a + b\n")
    assert Path(edited).with_name("made").read_text() == "it's\n"
    seen = claude(cli, "Bash", command=f"cat {edited}")["updatedInput"]["command"]
    done = subprocess.run(
        ["bash", "-c", seen], cwd=cli.place.project, env=cli.environment, capture_output=True, check=False
    )
    assert done.stdout == b"return a + b\n", done.stderr
    assert (cli.place.project / "calc.py").read_text() == "return a - b\n"
    assert os.listdir(cli.place.project) == ["calc.py"]
    assert "+return a + b" in cli("diff", "claude").stdout
    cli("unmount", "claude")


def test_a_mount_that_has_ended_is_made_again(cli: Cli) -> None:
    """As by a restart of the machine. Its directory is a plain one then: an edit there would be in no fork."""
    edited = Path(claude(cli, "Edit", file_path="calc.py")["updatedInput"]["file_path"])
    edited.write_text("first\n")
    if os.path.ismount(edited.parent):
        words = ["umount"] if os.geteuid() == 0 else ["fusermount3", "-u"]
        subprocess.run([*words, str(edited.parent)], check=True)
        assert not edited.exists()
    again = Path(claude(cli, "Edit", file_path="calc.py")["updatedInput"]["file_path"])
    assert again.read_text() == "first\n"
    again.write_text("second\n")
    assert "+second" in cli("diff", "claude").stdout
    cli("unmount", "claude")


NO_EVENTS = ["", "{", "[]", "null", "[" * 100_000, '"' + "x" * 1_000_000 + '"', "\ufeff{}", '{"hook_event_name": "X"}']


@pytest.mark.parametrize(("agent", "text"), pairs(list(CONTRACTS), NO_EVENTS))
def test_what_is_not_an_event_is_refused(cli: Cli, agent: str, text: str) -> None:
    answer = json.dumps(run(cli, agent, text))
    assert "mudroom: " in answer and "den" in answer


def test_commands_are_left_to_the_prefix_of_the_installation_only(cli: Cli) -> None:
    """Settings of a project may set the variable, too."""
    shell = cli.place.root / "mudroom-hook-shell"
    shell.write_text("#!/bin/sh\n")
    shell.chmod(0o755)
    event = {"hook_event_name": "PreToolUse", "tool_name": "Bash", "tool_input": {"command": "ls"}, "cwd": "/"}
    options = ("--project", str(cli.place.project))
    cli.environment["CLAUDE_CODE_SHELL_PREFIX"] = str(shell)
    assert run(cli, "claude", event, *options, "--prefix", str(shell)) == {}
    assert run(cli, "claude", event, *options)["hookSpecificOutput"]["permissionDecision"] == "allow"
    assert run(cli, "claude", event, *options, "--prefix", "/other")["hookSpecificOutput"]["updatedInput"]
    shell.chmod(0o644)
    assert run(cli, "claude", event, *options, "--prefix", str(shell)) != {}
    del cli.environment["CLAUDE_CODE_SHELL_PREFIX"]
    assert run(cli, "claude", event, *options, "--prefix", str(shell)) != {}


def test_a_place_that_is_no_project_is_refused(cli: Cli) -> None:
    event = {"hook_event_name": "PreToolUse", "tool_name": "Write", "tool_input": {"file_path": "x"}, "cwd": "/"}
    answer = run(cli, "claude", event, cwd=Path("/"))["hookSpecificOutput"]
    assert answer["permissionDecision"] == "deny"
    assert "the project cannot be /" in answer["permissionDecisionReason"]


def test_a_path_through_a_link_of_the_fork_is_refused(cli: Cli) -> None:
    outside = cli.place.root / "outside"
    outside.mkdir()
    (cli.place.project / "out").symlink_to(outside)
    answer = claude(cli, "Write", file_path="out/x", content="x")
    assert answer["permissionDecision"] == "deny"
    assert f"to {outside}/x" in answer["permissionDecisionReason"]
    cli("unmount", "claude")


def test_an_unknown_agent_is_a_usage_error(cli: Cli) -> None:
    done = cli("hook", "run", "nobody")
    assert done.returncode == 125
    assert done.stderr == "mudroom: there is no hook for 'nobody' (known: " + ", ".join(CONTRACTS) + ")\n"
    assert cli("hook", "remove").returncode == 125


# --- install ---


def project_files(cli: Cli) -> dict[str, bytes]:
    project = cli.place.project
    return {str(path.relative_to(project)): path.read_bytes() for path in project.rglob("*") if path.is_file()}


@pytest.mark.parametrize(("agent", "scope"), pairs(list(CONTRACTS), ["project", "user"]))
def test_installing_twice_checking_and_removing(cli: Cli, agent: str, scope: str) -> None:
    def hook(*options: str) -> Any:
        return cli("hook", "install", agent, "--scope", scope, *options)

    def files() -> dict[str, bytes]:
        own = cli.place.home.rglob("*")
        return {**project_files(cli), **{str(path): path.read_bytes() for path in own if path.is_file()}}

    before = files()
    assert hook("--check").returncode == 1
    dry = hook("--dry-run")
    assert dry.returncode == 0
    assert "+++ " in dry.stdout
    assert files() == before
    assert hook().returncode == 0
    installed = files()
    assert installed != before
    assert hook("--check").returncode == 0
    again = hook()
    assert "nothing to change" in again.stderr
    assert files() == installed
    assert hook("--remove").returncode == 0
    assert files() == before
    assert hook("--check").returncode == 1
    assert "nothing to change" in hook("--remove").stderr


@pytest.mark.parametrize("agent", SHARED)
def test_a_user_s_file_is_kept_byte_for_byte(cli: Cli, agent: str) -> None:
    path = cli.place.project / SHARED[agent]
    users = b"# mine\r\n[tui]\r\na = 1\r\n" if agent == "codex" else b'{ // mine\r\n\t"x": [1,],\r\n}\r\n'
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(users)
    path.chmod(0o640)
    assert cli("hook", "install", agent).returncode == 0
    assert b"mine" in path.read_bytes()
    assert path.stat().st_mode & 0o777 == 0o640
    assert cli("hook", "install", agent, "--remove").returncode == 0
    assert path.read_bytes() == users
    assert path.stat().st_mode & 0o777 == 0o640


def test_what_the_user_adds_meanwhile_stays(cli: Cli) -> None:
    path = cli.place.project / SHARED["claude"]
    path.parent.mkdir()
    path.write_text('{\n  "permissions": {"ask": ["Bash(rm:*)"]}\n}\n')
    cli("hook", "install", "claude")
    path.write_text(path.read_text().replace('"Bash(rm:*)"', '"Bash(rm:*)", "Read(/x)"'))
    assert cli("hook", "install", "claude", "--check").returncode == 0
    cli("hook", "install", "claude", "--remove")
    assert json.loads(path.read_text()) == {"permissions": {"ask": ["Bash(rm:*)", "Read(/x)"]}}


def test_a_change_is_named_and_repaired(cli: Cli) -> None:
    path = cli.place.project / SHARED["claude"]
    cli("hook", "install", "claude", "--fork", "try", "--allow-tool", "mcp__x__*")
    whole = path.read_text()
    assert '"--fork",\n              "try"' in whole
    path.write_text(whole.replace('"timeout": 60', '"timeout": 1'))
    checked = cli("hook", "install", "claude", "--check")
    assert checked.returncode == 1
    assert checked.stdout == f"{path}: hooks.PreToolUse is changed or outdated\n"
    cli("hook", "install", "claude")
    assert path.read_text() == whole, "options that are not given are those of the installation"
    [shell] = cli.place.state.glob("hooks/*/mudroom-hook-shell")
    shell.chmod(0o644)
    assert cli("hook", "install", "claude", "--check").stdout == f"{shell}: is not executable\n"


def test_settings_that_are_a_link(cli: Cli) -> None:
    path = cli.place.project / SHARED["claude"]
    path.parent.mkdir()
    outside = cli.place.root / "dotfiles.json"
    outside.write_text("{}\n")
    path.symlink_to(outside)
    done = cli("hook", "install", "claude")
    assert done.returncode == 125
    assert done.stderr == (
        f"mudroom: {path} is a link that leads out of the project, to {outside} (replace it by a file)\n"
    )
    assert outside.read_text() == "{}\n"
    path.unlink()
    settings = cli.place.home / ".claude"
    settings.mkdir()
    (settings / "settings.json").symlink_to(outside)
    done = cli("hook", "install", "claude", "--scope", "user")
    assert f"{settings}/settings.json is a link: {outside} is edited" in done.stderr
    assert "mudroom-hook" in outside.read_text()
    assert (settings / "settings.json").is_symlink()
    cli("hook", "install", "claude", "--scope", "user", "--remove")
    assert outside.read_text() == "{}\n"
    outside.unlink()
    done = cli("hook", "install", "claude", "--scope", "user")
    assert done.returncode == 125
    assert "does not exist" in done.stderr


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{"a": ', "line 1: it ends too early"),
        (b"\xff", "is not UTF-8"),
        (b'{"env": {"CLAUDE_CODE_SHELL_PREFIX": "/mine"}}', "env.CLAUDE_CODE_SHELL_PREFIX is set already"),
        (b"[]", "the file is not an object"),
    ],
)
def test_a_file_that_cannot_be_edited_stays(cli: Cli, content: bytes, message: str) -> None:
    path = cli.place.project / SHARED["claude"]
    path.parent.mkdir()
    path.write_bytes(content)
    done = cli("hook", "install", "claude")
    assert done.returncode == 125
    assert done.stderr.count("\n") == 1
    assert message in done.stderr
    assert path.read_bytes() == content
    assert not list(cli.place.state.glob("hooks/*")), "all or nothing"


def test_a_project_whose_path_is_no_text(cli: Cli) -> None:
    """Settings are JSON, which is text."""
    odd = cli.place.root / os.fsdecode(b"p\xff")
    odd.mkdir()
    done = cli("hook", "install", "claude", cwd=odd)
    told = f"mudroom: {cli.place.root}/p\\xff is not UTF-8, and settings of agents are (rename it)\n"
    assert (done.returncode, done.stderr, list(odd.iterdir())) == (125, told, [])


def test_a_file_that_cannot_be_read_is_named(cli: Cli) -> None:
    path = cli.place.project / SHARED["claude"]
    path.parent.mkdir()
    path.write_text("{}")
    path.chmod(0)
    done = cli("hook", "install", "claude")
    if os.getuid() == 0:  # who may read it
        assert done.returncode == 0
        return
    assert done.returncode == 125
    assert done.stderr == f"mudroom: {path} cannot be read: Permission denied (ls -l {path})\n"


@pytest.mark.parametrize("make", [os.mkdir, os.mkfifo], ids=["directory", "fifo"])
def test_what_is_no_file_is_named(cli: Cli, make: Callable[[Path], None]) -> None:
    path = cli.place.project / SHARED["claude"]
    path.parent.mkdir()
    make(path)
    done = cli("hook", "install", "claude")
    assert done.returncode == 125
    assert done.stderr == f"mudroom: {path} is not a regular file (ls -ld {path})\n"


def test_the_state_of_all_agents(cli: Cli) -> None:
    cli("hook", "install", "gemini")
    rows = {row["agent"]: row for row in cli.json("hook")["agents"]}
    assert list(rows) == list(CONTRACTS)
    assert rows["gemini"]["project"] == "installed, fork gemini"
    assert rows["claude"]["project"] == rows["gemini"]["user"] == "none"
    (cli.place.project / ".gemini/settings.json").write_text("{")
    assert "broken" in {row["agent"]: row for row in cli.json("hook")["agents"]}["gemini"]["project"]
    lines = cli("hook").stdout.splitlines()
    assert len(lines) == len(CONTRACTS)


def test_the_prefix_of_claude_fails_without_mudroom(cli: Cli) -> None:
    cli("hook", "install", "claude")
    [shell] = cli.place.state.glob("hooks/*/mudroom-hook-shell")
    line = "true && eval 'echo x >made; cat made' < /dev/null && pwd -P >| /tmp/mudroom-cwd"
    words = [str(shell), line]
    done = subprocess.run(words, cwd=cli.place.project, env=cli.environment, capture_output=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"x\n", b"")
    assert not (cli.place.project / "made").exists()
    shell.write_text(shell.read_text().replace(shlex.quote(sys.executable), "/nothing"))
    done = subprocess.run(words, cwd=cli.place.project, env=cli.environment, capture_output=True, check=False)
    assert done.returncode in (126, 127)
    assert not (cli.place.project / "made").exists()


def test_the_prefix_of_claude_leaves_mudroom_s_own_server_its_forks(cli: Cli) -> None:
    """Started in a sandbox, the server works on a vault that is lost with it."""
    cli("hook", "install", "claude")
    [shell] = cli.place.state.glob("hooks/*/mudroom-hook-shell")
    client = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "tester", "version": "1"}}
    call = {"name": "write", "arguments": {"path": "made", "content": "x"}}
    lines = [
        json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params})
        for number, (method, params) in enumerate((("initialize", client), ("tools/call", call)))
    ]
    own = f"{shlex.quote(sys.executable)} -P -m mudroom mcp"
    for line in ("mudroom mcp", own):
        server = subprocess.Popen(
            [str(shell), line],
            cwd=cli.place.project,
            env=cli.environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert server.stdin is not None
        assert server.stdout is not None
        for text in lines:
            server.stdin.write(text.encode() + b"\n")
            server.stdin.flush()
            assert "result" in json.loads(server.stdout.readline())
        server.communicate(timeout=60)
    assert [row["fork"] for row in cli.json("ls")["forks"]] == ["tester", "tester-2"]
    assert "+x" in cli("diff", "tester").stdout
    more = subprocess.run(
        [str(shell), "mudroom mcp; echo x >made"], cwd=cli.place.project, env=cli.environment, input=b"", check=False
    )
    assert more.returncode == 0
    assert not (cli.place.project / "made").exists()


def test_inside_mudroom_a_hook_refuses_and_says_so(cli: Cli) -> None:
    cli.environment["MUDROOM"] = "1"
    for options, scope in ((("--project", str(cli.place.project)), ""), ((), " --scope user")):
        answer = claude(cli, "Bash", *options, command="true")
        assert answer["permissionDecision"] == "deny"
        assert "runs inside mudroom" in answer["permissionDecisionReason"]
        assert f"(mudroom hook install claude --remove{scope})" in answer["permissionDecisionReason"]


@pytest.mark.parametrize(("scope", "option"), [("project", ""), ("user", " --scope user")])
def test_an_agent_with_a_hook_is_not_started_inside(cli: Cli, tmp_path: Path, scope: str, option: str) -> None:
    program = tmp_path / "bin/claude"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\necho started\n")
    program.chmod(0o755)
    cli.environment["PATH"] = f"{program.parent}:{os.environ['PATH']}"
    cli("hook", "install", "claude", "--scope", scope)
    done = cli("claude", "--no-such-option")
    assert done.returncode == 125
    whose = "this project" if scope == "project" else "all projects"
    assert done.stderr == (
        f"mudroom: the hook of claude is installed for {whose}, and inside mudroom it cannot work "
        f"(mudroom hook install claude --remove{option}; or start claude as it is, with its hook)\n"
    )
    assert "started" not in done.stdout
    cli("hook", "install", "claude", "--remove", "--scope", scope)
    assert "started" in cli("claude").stdout


def test_a_check_that_finds_nothing_names_the_command(cli: Cli) -> None:
    done = cli("hook", "install", "gemini", "--check", "--scope", "user")
    assert done.returncode == 1
    assert done.stderr == "note: mudroom hook install gemini --scope user writes it\n"


def test_what_the_agent_alone_has_added_goes_with_the_hook(cli: Cli) -> None:
    """opencode writes $schema into each file of settings that it reads."""
    path = cli.place.project / "opencode.json"
    for more in ({}, {"model": "x"}):
        cli("hook", "install", "opencode")
        settings = {"$schema": "https://opencode.ai/config.json", **more, **json.loads(path.read_text())}
        path.write_text(json.dumps(settings, indent=2))
        assert cli("hook", "install", "opencode", "--remove").returncode == 0
        assert path.exists() == bool(more)
    assert json.loads(path.read_text())["model"] == "x"


def test_a_fork_that_stays_mounted_is_named(cli: Cli) -> None:
    cli("hook", "install", "claude")
    cli("fork", "new", "claude")
    assert cli("mount", "claude").returncode == 0
    done = cli("hook", "install", "claude", "--remove")
    assert "mudroom unmount claude\n" in done.stdout + done.stderr
    assert cli("unmount", "claude").returncode == 0
    assert "unmount" not in cli("hook", "install", "claude", "--remove").stderr
