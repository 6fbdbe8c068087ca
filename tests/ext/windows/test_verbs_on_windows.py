"""Verbs that look after forks, conflicts and rules, a shell in a fork, and the tools of an agent (MCP), in a Windows
Python: each from its words to its result. Run by ``dev/wine``."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

if sys.platform != "win32":
    pytest.skip("needs Windows, or dev/wine", allow_module_level=True)

from mudroom.ext.windows.win32.pipe_end import is_read, is_readable
from mudroom.vault.apply.execution import Executor
from test_session_on_windows import Place, client_here, place  # noqa: F401 - a fixture

RUN = ("exec", "--net", "none", "--fork")


def change(place: Place, fork: str, line: str) -> None:  # noqa: F811
    assert place.say(*RUN, fork, "--", "cmd", "/d", "/s", "/c", line).code == 0


def forks(place: Place) -> list[str]:  # noqa: F811
    return [row["fork"] for row in json.loads(place.say("ls", "--json").out)["forks"]]


def test_forks_are_made_listed_renamed_and_thrown_away(place: Place) -> None:  # noqa: F811
    assert place.say("fork", "new", "one").code == 0
    change(place, "two", 'echo "a b" ^& c> "new file.txt"')  # a line for cmd.exe is read as it was typed
    assert '+"a b" & c' in place.say("diff", "two").out
    assert forks(place) == ["two", "one"] or forks(place) == ["one", "two"]
    assert "two  1 file" in place.say("ls").out
    assert place.say("fork", "rename", "one", "three").code == 0
    assert sorted(forks(place)) == ["three", "two"]
    assert place.say("fork", "rm", "--yes", "three").code == 0
    said = place.say("discard", "two", "nothing")
    assert (said.code, said.err.count("\n")) == (125, 1) and forks(place) == ["two"], said
    assert place.say("discard", "two").code == 0
    assert forks(place) == []
    assert set(place.files()) == {"a.txt", "sub/b.bin"}


def test_undo_and_redo_to_the_byte(place: Place) -> None:  # noqa: F811
    before = place.files()
    change(place, "work", "echo three>> a.txt& echo new> made.txt& del sub\\b.bin")
    assert place.say("apply", "--yes", "work").code == 0
    applied = place.files()
    assert place.say("undo", "--yes").code == 0 and place.files() == before
    assert place.say("redo", "--yes").code == 0 and place.files() == applied
    assert place.say("undo", "--yes").code == 0 and place.files() == before


def test_a_conflict_is_decided_and_lands(place: Place) -> None:  # noqa: F811
    change(place, "work", "echo theirs> a.txt& echo new> new.txt")
    (place.project / "a.txt").write_bytes(b"mine\r\n")
    assert place.say("apply", "--yes", "work").code == 3
    assert "a.txt" in place.say("resolve", "work").out
    said = place.say("resolve", "work", "a.txt", "--theirs")
    assert said.code == 0, said
    assert place.say("apply", "--yes", "work").code == 0
    assert place.files()["a.txt"] == b"theirs\r\n" and place.files()["new.txt"] == b"new\r\n"


def test_a_killed_apply_is_recovered(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    before = place.files()
    change(place, "work", "echo three>> a.txt& del sub\\b.bin")
    with monkeypatch.context() as patched:

        def cut_off(*_words: Any, **_more: Any) -> None:
            raise KeyboardInterrupt

        patched.setattr(Executor, "run", cut_off)
        assert place.say("apply", "--yes", "work").code == 130
    said = place.say("recover")
    assert said.code == 0 and "work" in said.err + said.out, said
    files = place.files()
    assert files in (before, {"a.txt": b"one\r\ntwo\r\nthree\r\n"}), files
    assert place.say("recover").code == 0  # nothing is left to be done
    assert place.files() == files


def test_a_verify_line_is_read_by_cmd(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    for module in ("client", "platform"):  # apply makes its client itself
        name = f"mudroom.ext.windows.sandbox.{module}.WindowsClient"
        monkeypatch.setattr(name, client_here, raising=False)
    (place.project / ".mudroom").mkdir()
    (place.project / ".mudroom" / "policy.yaml").write_text(
        'run: {network: none}\nverify:\n  when: always\n  command: |\n    echo "a b" & if exist bad.txt exit 3\n'
    )
    assert place.say("policy", "trust", "--yes").code == 0
    before = place.files()
    change(place, "good", "echo x> good.txt")
    change(place, "bad", "echo x> bad.txt")
    said = place.say("apply", "--yes", "bad")
    assert said.code == 5 and "exited with 3" in said.err and '"a b"' in said.out + said.err, said
    assert place.files() == before
    assert place.say("apply", "--yes", "good").code == 0
    assert place.files() == before | {"good.txt": b"x\r\n"}


@pytest.mark.slow
def test_rules_and_stored_data(place: Place) -> None:  # noqa: F811
    assert place.say("policy", "init").code == 0
    assert (place.project / ".mudroom" / "policy.yaml").is_file()
    assert place.say("policy", "init").code == 125  # it is the user's by now
    assert place.say("policy", "check").code == 0 and "run.level: 1" in place.say("policy", "show").out
    change(place, "work", "echo x> made.txt")
    assert place.say("vault", "check").out.strip() == "the vault is whole"
    assert "1 fork" in place.say("vault", "ls").out
    assert place.say("vault", "export", "work", "work.bundle").code == 0
    assert place.say("discard", "--yes", "work").code == 0
    said = place.say("vault", "import", "work.bundle")
    assert said.code == 0 and forks(place) == ["work"], said
    assert "+x" in place.say("diff", "work").out
    assert place.say("vault", "gc").code == 0
    assert place.say("approve").err.strip() == "nothing waits for an approval"


def test_help_and_completion(place: Place) -> None:  # noqa: F811
    with pytest.raises(SystemExit) as ended:
        place.say("help", "shell")
    assert ended.value.code == 0
    assert place.say("completion", "bash").out.startswith("# bash completion")
    assert place.say("help").out == place.say("--help").out
    assert place.say("help", "nothing").code == 125
    assert place.say("help", "keeper").code == 125


@contextmanager
def typed(text: bytes) -> Iterator[None]:
    """Have this text on stdin, and then its end."""
    read, write = os.pipe()
    os.write(write, text)
    os.close(write)
    before = os.dup(0)
    os.dup2(read, 0)
    os.close(read)
    try:
        yield
    finally:
        os.dup2(before, 0)
        os.close(before)


def test_a_shell_in_a_fork(place: Place) -> None:  # noqa: F811
    before = place.files()
    with typed(b"echo hi> made.txt\r\ncd\r\n"):
        said = place.say("shell", "--fork", "work", "--net", "none")
    assert said.code == 0, said
    assert place.files() == before
    assert "+hi" in place.say("diff", "work").out


_SERVER = """\
import os, sys
sys.path[:0] = {places!r}
import test_session_on_windows as tests
if tests.WINE:
    tests.nt_private.is_private = lambda _descriptor: True
machine = tests.WindowsMachine(os.cpu_count() or 1)
client = tests.WindowsClient(tests.NATIVE, variables=os.environ, machine=machine, shape=tests.without_container)
sys.exit(tests.start(sys.argv[1:], client))
"""


class Agent:
    """A client of ``mudroom mcp``, which it starts: messages by the pipes of its stdin and stdout."""

    def __init__(self, log: Path, *words: str) -> None:
        program = _SERVER.format(places=sys.path)
        with log.open("wb") as told:
            self.server = subprocess.Popen(
                [sys.executable, "-c", program, "mcp", *words],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=told,
            )
        self._number = 0

    def ask(self, method: str, **params: Any) -> Any:
        self._number += 1
        self.tell(method, id=self._number, **params)
        assert self.server.stdout is not None
        while (answer := json.loads(self.server.stdout.readline())).get("id") != self._number:
            pass
        return answer.get("result", answer.get("error"))

    def tell(self, method: str, id: int | None = None, **params: Any) -> None:  # noqa: A002
        message = {"jsonrpc": "2.0", "method": method, "params": params} | ({} if id is None else {"id": id})
        assert self.server.stdin is not None
        self.server.stdin.write(json.dumps(message).encode() + b"\n")
        self.server.stdin.flush()

    def call(self, tool: str, **arguments: Any) -> Any:
        result = self.ask("tools/call", name=tool, arguments=arguments)
        return result.get("structuredContent", result)

    def end(self) -> tuple[int, bytes]:
        """Close its stdin, and return its exit code and what it has left on stdout."""
        assert self.server.stdin is not None and self.server.stdout is not None
        self.server.stdin.close()
        rest = self.server.stdout.read()
        return self.server.wait(60), rest


def converse(agent: Agent) -> dict[str, Any]:
    heard = dict[str, Any]()
    info = {"name": "claude-code", "version": "1"}
    begun = agent.ask("initialize", protocolVersion="2025-06-18", capabilities={}, clientInfo=info)
    heard["server"] = begun["serverInfo"]["name"]
    agent.tell("notifications/initialized")
    heard["tools"] = {tool["name"] for tool in agent.ask("tools/list")["tools"]}
    heard["write"] = agent.call("write", path="src/made.txt", content="hello\n")
    heard["bash"] = agent.call("bash", command='type src\\made.txt& echo "x y"> b.txt& exit 4')
    heard["lines"] = agent.call("bash", command="echo one\necho two")
    heard["background"] = agent.call("bash", command="ping -n 60 127.0.0.1", background=True)
    heard["ended"] = agent.call("bash", command="ping -n 60 127.0.0.1 >nul", timeout=0.5)
    heard["read"] = agent.call("read", path="b.txt")
    heard["grep"] = agent.call("grep", pattern="hel+o")
    heard["diff"] = agent.call("diff")
    heard["outside"] = agent.call("read", path="../../secret")
    return heard


def test_an_agent_works_in_a_fork_by_mcp(place: Place) -> None:  # noqa: F811
    before, log = place.files(), place.root / "log.txt"
    agent = Agent(log, "--net", "none", "--ask", "never")
    try:
        heard = converse(agent)
        assert agent.end() == (0, b""), log.read_text()
    finally:
        agent.server.kill()
        agent.server.communicate()
    assert heard["server"] == "mudroom" and {"bash", "read", "write", "edit", "diff"} <= heard["tools"]
    bash, told = heard["bash"], log.read_text()
    assert bash.get("exit_code") == 4 and "hello" in bash["output"], (bash, told)
    assert heard["ended"]["timed_out"] is True, heard["ended"]
    for answer, words in (
        ("lines", "cmd.exe reads one line"),
        ("background", "a command in the background needs namespaces that others can join; found: a job"),
        ("outside", "leads out of the project with '..'"),
        ("read", "x y"),
        ("grep", "made.txt"),
        ("diff", "made.txt"),
    ):
        assert words in json.dumps(heard[answer]), (heard[answer], told)
    assert "Traceback" not in told
    assert place.files() == before
    assert place.say("apply", "--yes", "claude-code").code == 0
    assert place.files() == {**before, "src/made.txt": b"hello\n", "b.txt": b'"x y"\r\n'}


def test_a_pipe_is_read_until_its_reader_has_gone(tmp_path: Path) -> None:
    read, write = os.pipe()
    assert is_read(write) and is_read(write) and not is_readable(read)
    os.write(write, b"x")
    assert is_readable(read)
    assert os.read(read, 10) == b"x"  # the questions have passed nothing
    os.close(read)
    assert not is_read(write)
    os.close(write)
    with (tmp_path / "file").open("wb") as file:
        assert is_read(file.fileno())
