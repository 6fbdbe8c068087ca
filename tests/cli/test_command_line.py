"""The command line as a user meets it: whole processes, their output, their exit codes."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

import mudroom
from conftest import Place, full_listing, tick
from screen import Screen
from test_vault_verb import MUDROOM, Cli


@pytest.fixture
def cli(place: Place) -> Cli:
    return Cli(place)


def test_run_yes_then_undo_then_log(cli: Cli) -> None:
    cli.place.write("package.json", '{\n  "name": "x"\n}\n')
    done = cli("run", "--yes", "--", "sh", "-c", "echo out; sed -i 's/x/y/' package.json; mkdir m; seq 3 > m/numbers")
    assert done.returncode == 0
    assert done.stdout == "out\n"
    assert "would change 2 files" in done.stderr
    assert "package.json  +1 -1" in done.stderr
    assert (cli.place.project / "m/numbers").read_text() == "1\n2\n3\n"
    undone = cli("undo")
    assert undone.returncode == 0
    assert not (cli.place.project / "m").exists()
    log = cli("log")
    assert [line.split()[3] for line in log.stdout.splitlines()] == ["run", "apply", "undo"]
    assert cli("log", "verify").stdout == "the journal is intact\n"


def test_json_has_the_documented_form(cli: Cli) -> None:
    cli.place.write("package.json", "{}\n")
    done = cli(
        "run", "--json", "--yes", "--", "sh", "-c", "echo out; echo err >&2; echo '// x' >> package.json; exit 3"
    )
    result = json.loads(done.stdout)
    assert done.returncode == 3
    assert result["schema"] == "mudroom.result/1"
    assert result["command"][0] == "sh"
    assert (result["exit_code"], result["signal"], result["timed_out"], result["level"]) == (3, None, False, 1)
    assert (result["stdout"], result["stderr"], result["truncated"]) == ("out\n", "err\n", False)
    assert result["changes"]["summary"] == {
        "added": 0, "modified": 1, "deleted": 0, "renamed": 0, "lines_added": 1, "lines_removed": 0, "bytes": 8,
    }  # fmt: skip
    file = result["changes"]["files"][0]
    assert (file["path"], file["change"], file["type"], file["lines_added"]) == ("package.json", "modified", "file", 1)
    assert result["applied"]["state"] == "applied"
    assert result["applied"]["undo"] == "u1"
    assert set(result) >= {"verdict", "duration_ms", "checkpoint", "denials", "notes", "fork"}


def test_no_and_keep_and_apply(cli: Cli) -> None:
    before = full_listing(cli.place.project)
    assert cli("run", "--no", "--", "touch", "a").returncode == 0
    kept = cli("run", "--keep", "--", "sh", "-c", "echo 1 > a; echo 2 > b")
    assert full_listing(cli.place.project) == before
    name = cli("ls").stdout.split()[0]
    assert name in kept.stderr
    assert "+1" in cli("diff", name).stdout
    assert cli("diff", name, "b").stdout.count("diff --git") == 1
    assert cli("apply", name, "--yes", "b").returncode == 0
    assert (cli.place.project / "b").exists()
    assert not (cli.place.project / "a").exists()
    assert cli("apply", "--yes").returncode == 0, "the only fork needs no name"
    assert (cli.place.project / "a").exists()
    assert cli("ls").stderr == "no forks\n"


def test_a_conflict_is_exit_code_3(cli: Cli) -> None:
    cli.place.write("f", "base\n")
    cli("run", "--keep", "--", "sh", "-c", "echo fork >> f; echo g > g")
    cli.place.write("f", "user\n")
    done = cli("apply", "--yes")
    assert done.returncode == 3
    assert "conflict  f: also changed in the project" in done.stderr
    assert (cli.place.project / "f").read_text() == "user\n"
    assert (cli.place.project / "g").read_text() == "g\n"
    report = json.loads(cli("apply", "--yes", "--json").stdout)
    assert report["state"] == "conflicts"
    assert report["conflicts"][0]["path"] == "f"


def test_the_fork_moved_is_exit_code_4(cli: Cli) -> None:
    cli("run", "--keep", "--", "sh", "-c", "mkdir d; echo 1 > d/f; echo 2 > g")
    fork = next((cli.place.state / "vaults").glob("*/layers/*/tree"))
    (fork / "d/f").write_text("not what was reviewed\n")
    done = cli("apply", "--yes")
    assert done.returncode == 4
    assert "d/f in the fork is not what was reviewed" in done.stderr
    assert os.listdir(cli.place.project) == []


def test_bad_input_is_one_clear_line(cli: Cli) -> None:
    for words, code, message in (
        (["run", "--", "no-such-program"], 127, "no-such-program: command not found"),
        (
            ["run", "--", "cd", "src"],
            127,
            "cd: command not found (a word of the shell itself: mudroom run -- sh -c 'cd …",
        ),
        (["run", "--", "./no/such"], 127, "./no/such: command not found"),
        (["run", "--", ""], 127, "'': command not found (the first word is empty"),
        (["run", "--", "", "x"], 127, "'': command not found (the first word is empty"),
        (["run", "--", "/etc"], 126, "/etc: permission denied"),
        (["run"], 125, "no command was given"),
        (["run", "--timeout", "soon", "--", "true"], 125, "--timeout is 'soon', which is not a time"),
        (["run", "--read", "/no/such", "--", "true"], 125, "--read /no/such: no such file"),
        (["diff"], 125, "has no forks"),
        (["diff", "nope"], 125, "there is no fork named nope"),
        (["undo"], 125, "there is nothing to undo"),
        (["undo", "u7"], 125, "there is no apply named u7"),
        (["--project", "/", "ls"], 125, "--project belongs behind the verb (mudroom ls --project /)\n"),
        (["--project", "/a b", "run", "--", "ls"], 125, "(mudroom run --project '/a b' -- ls)\n"),
        (["--frobnicate"], 125, "there is no verb '--frobnicate' (options follow the verb; "),
        (["ls", "--project", "/"], 125, "the project cannot be /"),
        (["ls", "--project", "/no/such"], 125, "/no/such does not exist"),
        (["ls", "--project", "/etc/passwd"], 125, "/etc/passwd is not a directory"),
    ):
        done = cli(*words)
        assert (done.returncode, len(done.stderr.splitlines())) == (code, 1), (words, done.stderr)
        assert message in done.stderr, words


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
@pytest.mark.parametrize("words", ["run --yes -- sh -c 'echo said; echo more >> f'", "status", "exec --json -- true"])
def test_a_standard_descriptor_is_closed(cli: Cli, words: str, closed: str) -> None:
    """Otherwise a socket of mudroom's own has its number, and the command waits for the end of that."""
    cli.place.write("f", "1\n")
    program = " ".join(MUDROOM)
    done = subprocess.run(
        ["sh", "-c", f"exec {program} {words} {closed}"],
        cwd=cli.place.project, env=cli.environment, stdin=subprocess.DEVNULL, capture_output=True, text=True,
        timeout=60, check=False,
    )  # fmt: skip
    assert (done.returncode, "Traceback" in done.stderr) == (0, False), done.stderr
    if words.startswith("run"):
        assert (cli.place.project / "f").read_text() == "1\nmore\n"
        assert ("said" in done.stdout) == (">&-" not in closed.split())


def test_the_home_directory_is_no_project(cli: Cli) -> None:
    done = cli("run", "--", "true", cwd=cli.place.home)
    assert done.returncode == 125
    assert "your home directory is in it" in done.stderr
    alone, named = cli(cwd=cli.place.home), cli("status", "--project", str(cli.place.home))
    assert alone.returncode == 0 and "mudroom works in a project" in alone.stdout
    assert named.returncode == 125 and "your home directory is in it" in named.stderr


def test_a_directory_that_cannot_be_read(cli: Cli) -> None:
    if os.geteuid() == 0:
        pytest.skip("root may read every directory")
    cli.place.project.chmod(0o000)
    try:
        done = cli("ls", "--project", str(cli.place.project), cwd=cli.place.root)
    finally:
        cli.place.project.chmod(0o755)
    assert done.returncode == 125
    assert "cannot be read" in done.stderr


def test_a_command_from_a_subdirectory(cli: Cli) -> None:
    cli.place.write(".git/HEAD", "ref: refs/heads/main\n")
    cli.place.write("src/deep/f", "x\n")
    done = cli("run", "--yes", "--", "sh", "-c", "pwd; touch here ../up", cwd=cli.place.project / "src/deep")
    assert done.stdout == f"{cli.place.project}/src/deep\n"
    assert (cli.place.project / "src/deep/here").exists()
    assert (cli.place.project / "src/up").exists()


def test_waiting_can_be_interrupted(cli: Cli) -> None:
    session = cli.place.session()
    with session.alone("undo", lambda _other: None):
        second = cli.start("run", "--no", "--", "true", text=True)
        assert second.stderr is not None
        assert "waiting for" in second.stderr.readline()
        second.send_signal(signal.SIGINT)
        _out, err = second.communicate(timeout=60)
    assert second.returncode == 130
    assert "interrupted" in err


def test_killing_mudroom_ends_the_sandbox(cli: Cli) -> None:
    first = cli.start("run", "--yes", "--", "sh", "-c", "echo running; while :; do date > f; done", text=True)
    assert first.stdout is not None
    assert first.stdout.readline() == "running\n"
    first.kill()
    first.communicate(timeout=60)  # its pipes end when the last process that has them, in the sandbox, is gone
    assert os.listdir(cli.place.project) == []
    assert cli("run", "--yes", "--", "touch", "later").returncode == 0
    assert os.listdir(cli.place.project) == ["later"]
    assert "cut off" in cli("ls").stdout


def test_the_prompt_diff_then_apply(cli: Cli) -> None:
    cli.place.write("f", "one\n")
    script = "echo two >> f; test -t 0 && test -t 1 && stty size"
    terminal = Screen(cli.place, *MUDROOM, "run", "--", "sh", "-c", script, PAGER="cat")
    terminal.expect(r"\[a\]pply  \[c\]ancel  \[d\]iff")
    assert (cli.place.project / "f").read_text() == "one\n"
    terminal.type("d\n")
    terminal.expect(r"\+two")
    terminal.expect(r"\[a\]pply  \[c\]ancel  \[d\]iff")
    terminal.type("a\n")
    terminal.expect("applied: ")
    assert terminal.exit_code() == 0
    assert (cli.place.project / "f").read_text() == "one\ntwo\n"


def test_the_prompt_cancel(cli: Cli) -> None:
    terminal = Screen(cli.place, *MUDROOM, "run", "--", "touch", "f")
    terminal.expect(r"\[a\]pply")
    terminal.type("c\n")
    assert terminal.exit_code() == 0
    assert os.listdir(cli.place.project) == []
    assert cli("ls").stderr == "no forks\n"


def test_ctrl_c_reaches_the_command_and_the_prompt_comes(cli: Cli) -> None:
    # Not dash: a SIGINT that it catches just before it forks waits until the child ends.
    program = "import time; open('f', 'w').write('half'); print('ready', flush=True); time.sleep(1000)"
    terminal = Screen(cli.place, *MUDROOM, "run", "--", sys.executable, "-I", "-S", "-c", program, columns=300)
    terminal.expect("ready")
    terminal.type("\x03")
    terminal.expect("was ended by signal 2")
    terminal.expect(r"\[a\]pply")
    terminal.type("k\n")
    terminal.expect("kept as run-")
    assert terminal.exit_code() == 130


def test_a_job_control_shell_works_and_gives_the_terminal_back(cli: Cli) -> None:
    terminal = Screen(cli.place, *MUDROOM, "run", "--", "bash", "--norc", "--noediting", "-i")
    terminal.expect("bash-")
    terminal.type("sh -c 'echo $((40+2)); exec sleep 1000'\n")
    terminal.expect("42\r\n")
    terminal.type("\x1a")
    terminal.expect("Stopped")
    terminal.type("echo $((6*7)) > f\nexit\nexit\n")  # the first exit only warns of the stopped job
    terminal.expect(r"\[a\]pply")
    terminal.type("a\n")
    terminal.expect("applied: ")
    assert (cli.place.project / "f").read_text() == "42\n"
    terminal.exit_code()


@pytest.mark.deep
def test_help_has_examples(cli: Cli) -> None:
    from mudroom.cli.main import offered_verbs

    assert all(f"\n  {verb} " in cli("--help", "--all").stdout for verb in offered_verbs())
    for verb in offered_verbs():
        assert "examples:" in cli(verb, "--help").stdout, verb


def test_explain_prints_the_plan_and_runs_nothing(cli: Cli) -> None:
    done = cli("run", "--explain", "--", "touch", "f")
    assert "namespaces: user, mount, pid" in done.stdout
    assert f"staged view at {cli.place.project}" in done.stdout
    assert os.listdir(cli.place.project) == []


def test_a_socket_is_not_shown(cli: Cli) -> None:
    """Read-only is no protection against connecting."""
    path = cli.place.root / "s"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        done = cli("run", "--no", "--read", str(path), "--", "true")
    assert done.returncode == 125
    assert "is a socket: a command that connects to it" in done.stderr and done.stderr.count("\n") == 1


def test_mudroom_inside_mudroom_says_what_holds_it(cli: Cli) -> None:
    inner = f"MUDROOM_STATE=/tmp/state {sys.executable} -m mudroom run --level 0 --yes -- true"
    done = cli("run", "--no", "--read", str(Path(mudroom.__file__).parents[1]), "--", "sh", "-c", inner)
    assert done.returncode == 126
    assert done.stderr.splitlines()[1:3] == [
        "mudroom: true: a sandbox that watches system calls is around this one already (run it without mudroom)",
        "note: this is inside mudroom, whose sandbox may hold no second one; a command here is staged already",
    ]


def test_a_failure_inside_mudroom_says_where_it_is(cli: Cli) -> None:
    """The kernel's own words for a second sandbox in the first are device or resource busy."""
    cli.place.write("script", "true\n")
    tick()
    outside = cli("run", "--", "./script")
    cli.environment["MUDROOM"] = "1"
    inside = cli("run", "--", "./script")
    assert outside.returncode == inside.returncode == 126
    assert "inside mudroom" not in outside.stderr
    assert "note: this is inside mudroom" in inside.stderr
