"""``mudroom fleet`` as a user meets it: a mistake is one line, and two real workers run their commands."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import Place, full_listing
from mudroom.cli.main import run

SOURCE = Path(__file__).resolve().parents[4] / "src"


def tools_at(place: Path) -> Path:
    """Return a directory with these tests' programs and no container engine: a worker tries whether one works, and
    Podman keeps other users' files in its home."""
    tools = place / "tools"
    if not tools.is_dir():
        tools.mkdir()
        for name in ("sh", "cat", "grep", "ln", "mkdir", "rm", "tail", "true"):
            (tools / name).symlink_to(f"/usr/bin/{name}")
    return tools


class Fleet:
    """One user's command line, with a project."""

    def __init__(self, place: Place, capfd: pytest.CaptureFixture[str]) -> None:
        self.place, self._capfd = place, capfd
        self.config = place.home / ".config/mudroom/fleet.json"
        self.environ = {
            b"HOME": os.fsencode(place.home),
            b"MUDROOM_STATE": os.fsencode(place.state),
            b"PATH": b"/usr/local/bin:/usr/bin:/bin",
            b"PYTHONPATH": os.fsencode(SOURCE),
            b"LC_ALL": b"C.UTF-8",
        }

    def __call__(self, *words: str) -> tuple[int, str, str]:
        """Return the exit code, standard output and standard error."""
        before = os.getcwd()
        os.chdir(self.place.project)
        try:
            self._capfd.readouterr()
            code = run(words, self.environ)
            out, err = self._capfd.readouterr()
        finally:
            os.chdir(before)
        return code, out, err

    def worker(self, name: str) -> tuple[str, ...]:
        """Return the command for a worker on this machine, with its own home."""
        home = self.place.root / f"home of {name}"
        home.mkdir(exist_ok=True)
        own = (f"HOME={home}", f"MUDROOM_STATE={home}/state", "MUDROOM_KEEPER=0", f"PATH={tools_at(self.place.root)}")
        return ("env", *own, sys.executable, "-m", "mudroom", "worker", "--stdio")

    def add(self, *names: str) -> None:
        for name in names:
            assert self("fleet", "add", name, "--jobs", "2", "--", *self.worker(name))[0] == 0


@pytest.fixture
def fleet(place: Place, capfd: pytest.CaptureFixture[str]) -> Fleet:
    for number in range(1, 7):
        place.write(f"f{number}.txt", f"line {number}\n")
    place.write(".env", "TOKEN=planted-secret-1\n")
    return Fleet(place, capfd)


WRONG: list[tuple[tuple[str, ...], str, str]] = [
    (
        ("fleet", "ls", "big"),
        "there is no worker named big",
        "mudroom fleet add NAME -- ssh HOST mudroom worker --stdio",
    ),
    (("fleet", "rm", "big"), "there is no worker named big", "mudroom fleet add"),
    (("fleet", "add", "big"), "fleet add needs a command, after --", "--help"),
    (("fleet", "add", "--", "ssh"), "fleet add takes one name, 0 given", "--help"),
    (("fleet", "add", "../x", "--", "ssh"), "'../x' is no name of a worker", "build-1"),
    (("fleet", "add", "a", "--jobs", "0", "--", "ssh"), "--jobs 0 is not a number", "1 to"),
    (("fleet", "run", "--", "true"), "there are no workers", "fleet add"),
    (("fleet", "run"), "fleet run needs a command", "--help"),
    (("fleet", "ls", "--", "true"), "fleet ls takes no command", "--help"),
    (("fleet", "logs", "r9-9"), "there is no errand r9-9", "mudroom fleet runs"),
    (("fleet", "cancel", "r9"), "there is no errand r9", "mudroom fleet runs"),
    (("fleet", "runs", "r9"), "there is no run r9", "mudroom fleet runs"),
    (("fleet", "resume"), "this project has no runs", "mudroom fleet run"),
    (("fleet", "fetch", "r1-1"), "there is no errand r1-1", "mudroom fleet runs"),
    (("run", "--on", "big", "--", "true"), "there is no worker named big", "fleet add"),
    (("exec", "--on", "big", "--fork", "x", "--", "true"), "--on is not for", "exec --on"),
]


def test_what_is_wrong_is_one_line(fleet: Fleet) -> None:
    for words, problem, hint in WRONG:
        code, _out, err = fleet(*words)
        assert code == 125, words
        line = err.strip()
        assert problem in line and hint in line and "\n" not in line, (words, err)
    fleet.add("a")
    code, _out, err = fleet("fleet", "add", "a", "--", "ssh", "other")
    assert code == 125 and err.startswith("mudroom: there is a worker named a already: env "), err
    assert err.endswith(" (mudroom fleet add a --replace -- …, or mudroom fleet rm a)\n")
    (fleet.place.root / "nul").write_bytes(b"a\0b\n")
    lines = fleet("fleet", "run", "--each", str(fleet.place.root / "nul"), "--", "true")
    told = f"mudroom: {fleet.place.root}/nul is not a file of lines (one line for each errand)\n"
    assert (lines[0], lines[2]) == (125, told)
    assert fleet("fleet", "add", "a", "--replace", "--", *fleet.worker("a"))[0] == 0
    for words, problem in (
        (("fleet", "run", "--"), "no command was given"),
        (("fleet", "run", "--on", "b", "--", "true"), "there is no worker named b (known are: a)"),
        (("fleet", "run", "-n", "0", "--", "true"), "-n 0: not a number of errands"),
        (("fleet", "run", "-n", "2", "--each", "f1.txt", "--", "true"), "-n and --each exclude each other"),
        (("fleet", "run", "--each", "missing", "--", "true"), "--each missing: No such file or directory"),
        (("fleet", "run", "--each", "/dev/null", "--", "true"), "/dev/null has no lines"),
        (("fleet", "run", "--fetch", "some", "--", "true"), "--fetch some: not known"),
        (("fleet", "run", "--retry", "-1", "--", "true"), "--retry -1: not a number"),
        (("fleet", "run", "--timeout", "soon", "--", "true"), "--timeout"),
    ):
        code, _out, err = fleet(*words)
        assert code == 125 and problem in err and len(err.strip().splitlines()) == 1, (words, err)


def test_workers_are_in_a_file_of_the_user_alone(fleet: Fleet) -> None:
    fleet.add("a")
    assert fleet.config.stat().st_mode & 0o777 == 0o600
    assert fleet.config.parent.stat().st_mode & 0o777 == 0o700
    good = fleet.config.read_text()
    fleet.config.chmod(0o644)
    assert "chmod 600" in fleet("fleet", "ls")[2]
    fleet.config.unlink()
    elsewhere = fleet.place.root / "elsewhere.json"
    elsewhere.write_text(good)
    elsewhere.chmod(0o600)
    fleet.config.symlink_to(elsewhere)
    assert "not a file that only you" in fleet("fleet", "run", "--", "true")[2]
    fleet.config.unlink()
    for text, problem in (("{", "is damaged"), ('{"format": 9, "workers": {}}', "has format 9"), ("[]", "is damaged")):
        fleet.config.write_text(text)
        fleet.config.chmod(0o600)
        code, _out, err = fleet("fleet", "ls")
        assert code == 125 and problem in err and len(err.splitlines()) == 1


def test_a_project_names_no_worker(fleet: Fleet) -> None:
    """A pulled project must not say which commands run on this machine."""
    config = json.dumps({"format": 1, "workers": {"evil": {"argv": ["touch", str(fleet.place.root / "owned")]}}})
    for name in ("fleet.json", ".mudroom/fleet.json", ".config/mudroom/fleet.json"):
        fleet.place.write(name, config, 0o600)
    assert fleet("fleet", "ls") == (
        0,
        "",
        "no workers; mudroom fleet add NAME -- ssh HOST mudroom worker --stdio adds one\n",
    )
    assert not (fleet.place.root / "owned").exists()


def test_a_worker_that_cannot_be_reached_says_why(fleet: Fleet) -> None:
    for name, words, reason in (
        ("gone", ("/nonexistent/program",), "/nonexistent/program: No such file or directory"),
        ("missing", ("sh", "-c", "mudroom-of-nobody worker --stdio"), "mudroom-of-nobody: not found"),
        ("text", ("echo", "Welcome to this machine!"), "it is no mudroom worker"),
        ("silent", ("false",), "false exited with 1"),
        ("echo", ("cat",), "it is no mudroom worker"),
        ("inner", ("sh", "-c", "echo bash: mudroom: command not found >&2; exit 127"), "install mudroom there"),
        ("keyless", ("sh", "-c", "echo 'Host key verification failed.' >&2; exit 255"), "connect once by hand"),
        ("shown", ("sh", "-c", r"printf '\033]0;x\007bad\n' >&2; exit 1"), "bad"),
    ):
        assert fleet("fleet", "add", name, "--", *words)[0] == 0
        code, out, _err = fleet("fleet", "ls", name)
        assert code == 1 and reason in out and "\x1b" not in out and len(out.splitlines()) == 1, (name, out)
    code, _out, err = fleet("fleet", "run", "--on", "missing", "--", "true")
    assert code == 125 and "mudroom-of-nobody: not found" in err
    rows = json.loads(fleet("fleet", "ls", "--json")[1])["workers"]
    assert len(rows) == 8 and not any(row["usable"] for row in rows)


def test_an_agent_s_login_stays_here(fleet: Fleet) -> None:
    assert fleet("fleet", "add", "silent", "--", "false")[0] == 0
    said = "codex has no login on a worker: logins stay on this machine (mudroom codex)"
    assert said in fleet("fleet", "run", "--", "/opt/bin/codex", "exec", "say hello")[2]
    assert "login" not in fleet("fleet", "run", "--", "true")[2]


def test_errands_run_there_and_are_reviewed_here(fleet: Fleet) -> None:
    fleet.add("a", "b")
    before = full_listing(fleet.place.project)
    script = "echo out {i}; echo err {i} >&2; echo more >> f{i}.txt; echo new > new{i}; cat .env"
    code, out, err = fleet("fleet", "run", "-n", "3", "--judge", "grep -q more f{i}.txt", "--", "sh", "-c", script)
    assert code == 0, err
    assert sorted(line.partition("| ")[2] for line in out.splitlines()) == ["out 1", "out 2", "out 3"]
    assert err.count("judge passed") == 3 and "3 errands on a, b" in err and "of memory at most in one" in err
    assert full_listing(fleet.place.project) == before
    for number in range(1, 4):  # as the same command here
        local = script.replace("{i}", str(number))
        assert fleet("exec", "--fork", f"local{number}", "--quiet", "--", "sh", "-c", local)[0] == 0
        assert fleet("diff", f"r1-{number}")[1] == fleet("diff", f"local{number}")[1] != ""
    assert fleet("fleet", "logs", "r1-3")[1:] == ("out 3\n", "err 3\n")
    code, out, _err = fleet("fleet", "runs", "r1", "--json")
    assert [row["state"] for row in json.loads(out)["runs"][0]["errands"]] == ["kept"] * 3
    assert fleet("apply", "r1-2", "--yes")[0] == 0
    assert (fleet.place.project / "f2.txt").read_text() == "line 2\nmore\n"
    # nothing is left of it there
    code, out, err = fleet("fleet", "ls")
    assert code == 0 and [line.split()[0] for line in out.splitlines()] == ["a", "b"]
    assert "levels" in out and "kept there" not in out


def test_one_command_there_ends_as_here(fleet: Fleet) -> None:
    fleet.add("a")
    code, out, err = fleet("run", "--on", "a", "--yes", "--", "sh", "-c", "echo said; echo x >> f1.txt; exit 3")
    assert (code, out) == (3, "said\n") and "f1.txt" in err
    assert (fleet.place.project / "f1.txt").read_text() == "line 1\nx\n"
    code, out, _err = fleet("exec", "--on", "a", "--json", "--", "sh", "-c", "pwd; echo y > y")
    result = json.loads(out)
    assert code == 0 and result["stdout"] == f"{fleet.place.project}\n"
    assert [row["path"] for row in result["changes"]["files"]] == ["y"]
    assert fleet("diff", result["fork"])[1].endswith("+y\n")


def test_no_secret_leaves(fleet: Fleet) -> None:
    """Every byte that the origin sends is recorded on its way."""
    tokens = {}
    for number, name in enumerate((".env", ".env.local", "deep/down/.env", "id_rsa", ".npmrc", "server.pem", ".netrc")):
        tokens[name] = f"planted-token-{number:04}"
        text = f"//registry/:_authToken={tokens[name]}\n" if name == ".npmrc" else f"SECRET={tokens[name]}\n"
        fleet.place.write(name, text)
    fleet.place.write(".git/config", '[remote "origin"]\n\turl = https://me:planted-token-git@example.org/x\n')
    fleet.place.write(".mudroom/local/permissions.yaml", "# planted-token-answers\n")
    (fleet.place.home / ".netrc").write_text("machine x login y password planted-token-home\n")
    record = fleet.place.root / "record"
    words = fleet.worker("a")
    relay = f"tee {record} | {' '.join(_quoted(word) for word in words)}"
    assert fleet("fleet", "add", "a", "--", "sh", "-c", relay)[0] == 0
    code, out, err = fleet("fleet", "run", "-n", "2", "--", "sh", "-c", "cat .env id_rsa server.pem; echo x >> f1.txt")
    assert code == 0 and "planted" not in out + err
    sent = record.read_bytes()
    assert len(sent) > 500
    assert b"planted" not in _unpacked(sent)


def _quoted(word: str) -> str:
    import shlex

    return shlex.quote(word)


def _unpacked(sent: bytes) -> bytes:
    """Return all that was sent, and the content of its packs."""
    from mudroom.ext.fleet.base.pack import parse
    from mudroom.ext.fleet.wire.frame import FrameReader
    from mudroom.ext.fleet.wire.message import OBJECTS

    parts = [sent]
    packs = [frame.body for frame in FrameReader().feed(sent) if frame.kind == OBJECTS]
    for pack in packs:
        parts += [bytes(data) for _row, data in parse(pack)]
    assert any(b"line 1" in part for part in parts)
    return b"".join(parts)


def test_ctrl_c_ends_it_there_and_keeps_what_ended(fleet: Fleet) -> None:
    fleet.add("a")
    words = [sys.executable, "-m", "mudroom", "fleet", "run", "-n", "4", "--", "sh", "-c", _WAITS]
    process = subprocess.Popen(
        words,
        cwd=fleet.place.project,
        env={os.fsdecode(name): os.fsdecode(value) for name, value in fleet.environ.items()},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    for line in process.stdout:
        if "waiting" in line:
            process.send_signal(signal.SIGINT)
            break
    _out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    errands = json.loads(fleet("fleet", "runs", "r1", "--json")[1])["runs"][0]["errands"]
    states = {row["state"] for row in errands}
    assert states <= {"kept", "cancelled"} and "cancelled" in states, err


_WAITS = "if [ {i} = 1 ]; then echo x > x; else echo waiting; exec tail -f /dev/null; fi"
