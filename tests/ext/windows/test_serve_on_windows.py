"""``mudroom serve`` in a Windows Python: the page's server as a process of its own, asked as by a browser and by a
program. Run by ``dev/wine``.

Wine does not tell which process made a socket, so its connections are refused as another user's, as they have to be;
with the file ``known`` beside the project they are taken for this user's, so that the rest can be tried.
"""

from __future__ import annotations

import http.client
import json
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

if sys.platform != "win32":
    pytest.skip("needs Windows, or dev/wine", allow_module_level=True)

from mudroom.core.tree.windows_path import inner_path
from mudroom.ext.web.server.server import listen
from mudroom.policy.config import environment, places
from test_on_windows import WINE
from test_session_on_windows import Place, place  # noqa: F401 - a fixture

_PROGRAM = """\
import os, signal, sys, threading
sys.path[:0] = {places!r}
threading.Thread(target=lambda: (os.read(0, 1), signal.raise_signal(signal.SIGBREAK)), daemon=True).start()
from mudroom.ext.windows.stage import nt_private
from mudroom.ext.windows.win32 import tcp_peer
real = tcp_peer.stranger_here
tcp_peer.stranger_here = lambda *ends: None if os.path.exists({known!r}) else real(*ends)
if {wine!r}:
    nt_private.is_private = lambda _descriptor: True
from mudroom.ext.windows.cli.windows import start
sys.exit(start(["serve", "--json", *sys.argv[1:]]))
"""
_PRESS = """\
import ctypes, signal, sys
for number in (signal.SIGINT, signal.SIGBREAK):
    signal.signal(number, signal.SIG_IGN)
kernel = ctypes.WinDLL("kernel32", use_last_error=True)
kernel.FreeConsole()
kernel.AttachConsole(int(sys.argv[1])) or sys.exit(f"AttachConsole: {ctypes.get_last_error()}")
kernel.GenerateConsoleCtrlEvent(int(sys.argv[2]), 0) or sys.exit(f"the event: {ctypes.get_last_error()}")
"""
_SECONDS = 60


class Answer(NamedTuple):
    status: int
    data: Any
    headers: dict[str, str]


class Serving:
    """A server of the state directory of ``place``, in a console of its own."""

    def __init__(self, place: Place, *words: str) -> None:  # noqa: F811
        self._known = place.root / "known"
        program = _PROGRAM.format(places=sys.path, known=str(self._known), wine=WINE)
        self._log = place.root / "log.txt"
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-c", program, "--port", "0", *words],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                creationflags=subprocess.CREATE_NEW_CONSOLE,
            )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, self._log.read_text()
        self.told = json.loads(line)
        self.port = int(self.told["url"].rpartition(":")[2].strip("/"))
        self.know(True)

    def know(self, known: bool) -> None:
        self._known.touch() if known else self._known.unlink()

    def ask(self, method: str, path: str, body: object = None, **headers: str | None) -> Answer:
        """``headers``: None leaves one out that programs of this user send."""
        usual = {"Host": f"127.0.0.1:{self.port}", "Authorization": "Bearer " + self.told["token"]}
        sent = {name.replace("_", "-"): value for name, value in {**usual, **headers}.items() if value is not None}
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=_SECONDS)
        try:
            connection.putrequest(method, path, skip_host=True)
            data = b"" if body is None else json.dumps(body).encode()
            for name, value in {**sent, "Content-Length": str(len(data)), "Content-Type": "application/json"}.items():
                connection.putheader(name, value)
            connection.endheaders(data)
            answer = connection.getresponse()
            text, kind = answer.read(), answer.getheader("content-type", "")
            return Answer(answer.status, json.loads(text) if "json" in kind else text, dict(answer.getheaders()))
        finally:
            connection.close()

    def get(self, path: str) -> Any:
        answer = self.ask("GET", "/api/v1" + path)
        assert answer.status == 200, answer
        return answer.data

    def post(self, path: str, body: object) -> Any:
        answer = self.ask("POST", "/api/v1" + path, body)
        assert answer.status in (200, 201, 202), answer
        return answer.data

    def lines(self) -> Iterator[str]:
        """Yield the lines of the stream of events."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=_SECONDS)
        connection.request("GET", "/api/v1/events", headers={"Authorization": "Bearer " + self.told["token"]})
        answer = connection.getresponse()
        try:
            while line := answer.readline():
                yield line.decode().rstrip()
        finally:
            connection.close()

    def finished(self, job: dict[str, Any]) -> Any:
        """Wait for a job by the stream of events, and return its result."""
        lines = self.lines()
        while self.get("/jobs/" + job["id"])["state"] == "running":
            next(lines)
        done = self.get("/jobs/" + job["id"])
        assert done["state"] == "done", done
        return done["landed"]

    def press(self, event: int) -> int:
        """Press Ctrl-C or Ctrl-Break in the console of the server, and return its exit code. Wine has no Ctrl-Break:
        the server's C runtime raises it in another thread, as it would for that."""
        if WINE and event == signal.CTRL_BREAK_EVENT:
            assert self.process.stdin is not None
            self.process.stdin.close()
            return self.process.wait(_SECONDS)
        words = [sys.executable, "-c", _PRESS, str(self.process.pid), str(event)]
        subprocess.run(words, check=True, timeout=_SECONDS)
        return self.process.wait(_SECONDS)

    def end(self) -> str:
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()
        return self._log.read_text()


@pytest.fixture
def serving(place: Place) -> Iterator[Serving]:  # noqa: F811
    made = Serving(place)
    yield made
    assert made.end() == ""


RUN = ("exec", "--fork", "work", "--net", "none", "--", "cmd", "/d", "/c")


def review_apply_and_undo(place: Place, serving: Serving) -> None:  # noqa: F811
    before = place.files()
    assert place.say(*RUN, "echo three>> a.txt& echo new> made.txt& del sub\\b.bin").code == 0

    project = serving.get("/projects")[0]["id"]
    at = f"/projects/{project}"
    assert [fork["name"] for fork in serving.get(at)["forks"]] == ["work"]
    changes = serving.get(f"{at}/forks/work/changes")
    rows = {row["path"]: row["id"] for row in changes["rows"]}
    assert set(rows) == {"a.txt", "made.txt", "sub/b.bin"}
    shown = json.dumps(serving.get(f"{at}/forks/work/diff?file={rows['a.txt']}"))
    assert "three" in shown

    events = serving.lines()
    assert next(line for line in events if line.startswith("event:")) == "event: hello"
    job = serving.post(f"{at}/forks/work/apply", {"reviewed": changes["fingerprint"]})
    landed = serving.finished(job)
    assert (landed["state"], landed["written"], landed["removed"]) == ("applied", 2, 1)
    assert place.files() == {"a.txt": b"one\r\ntwo\r\nthree\r\n", "made.txt": b"new\r\n"}
    assert any('"what": "applies"' in line for line in events)  # live: the stamp of the vault has changed

    assert serving.finished(serving.post(f"{at}/undo", {}))["state"] == "undone"
    assert place.files() == before
    refused = serving.ask("POST", f"/api/v1{at}/forks/work/commands", {"command": ["cmd"]})
    assert refused.status == 409 and "background" in refused.data["error"]
    assert serving.post(f"{at}/forks", {"name": "second"})["name"] == "second"
    assert serving.ask("DELETE", f"/api/v1{at}/forks/second").status == 200
    names = [row["name"] for row in serving.get("/folders")["folders"]]
    assert names == [str(inner_path(str(place.root / "home")), "utf-8")]


def look_who_is_let_in(serving: Serving) -> None:
    me = "/api/v1/me"
    assert serving.ask("GET", me).status == 200
    refused = {
        401: [{"Authorization": None}, {"Authorization": "Bearer " + "x" * 43}],
        421: [{"Host": "evil.example"}, {"Host": f"evil:{serving.port}"}, {"Host": f"127.0.0.1:{serving.port + 1}"}],
        403: [{"Origin": "http://evil.example"}, {"Origin": "null"}, {"Sec_Fetch_Site": "cross-site"}],
    }  # fmt: skip
    for status, cases in refused.items():
        for headers in cases:
            answer = serving.ask("GET", me, **headers)
            assert answer.status == status, (headers, answer)

    # a login is valid once, and its cookie only with the page's key
    path = "/login" + serving.told["login"].partition("/login")[2]
    entered = serving.ask("GET", path, Authorization=None)
    cookie, key = entered.headers["set-cookie"].partition(";")[0], entered.headers["location"].partition("#k=")[2]
    assert entered.status == 303 and key
    assert serving.ask("GET", path, Authorization=None).status == 403
    assert serving.ask("GET", me, Authorization=None, Cookie=cookie).status == 401
    assert serving.ask("GET", me, Authorization=None, Cookie=cookie, X_Mudroom_Csrf=key).status == 200
    assert serving.ask("GET", "/", Authorization=None).status == 200

    # the other end's owner: where the system does not tell, the connection is another user's
    serving.know(False)
    answer = serving.ask("GET", me)
    assert (answer.status == 403 and "another user" in answer.data["error"]) if WINE else answer.status == 200, answer
    assert serving.ask("GET", "/").status == 200  # public files
    serving.know(True)


def look_at_a_second_one(place: Place, serving: Serving) -> None:  # noqa: F811
    """One server for each state directory, whose port is its own: the second prints an address of the first."""
    again = place.say("serve", "--json")
    assert again.code == 0 and json.loads(again.out)["url"] == serving.told["url"], again
    assert place.say("serve", "--port", "1").code == 125
    with pytest.raises(Exception, match="Address already in use"):
        listen(serving.port)
    with socket.socket() as other:  # nor can another process take it beside us
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with pytest.raises(OSError):
            other.bind(("127.0.0.1", serving.port))


def end_by(event: int, serving: Serving, place: Place) -> None:  # noqa: F811
    assert serving.press(event) == 0
    directory = Path(places(environment()).state.decode()) / "serve"
    assert sorted(path.name for path in directory.iterdir()) == ["key", "lock"]
    assert place.say("serve", "--link").code == 125
    for made in listen(serving.port):  # the port is free again
        made.close()


def test_forget_and_the_port_of_another_are_one_line(place: Place) -> None:  # noqa: F811
    assert place.say("serve", "--forget").out.strip() == "every browser is logged out, and none is notified"
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = str(other.getsockname()[1])
        said = place.say("serve", "--port", port)
    assert (said.code, said.out) == (125, "") and said.err.count("\n") == 1, said
    assert f"port {port}: Address already in use" in said.err


def test_the_page_from_its_login_to_its_end(place: Place, serving: Serving) -> None:  # noqa: F811
    review_apply_and_undo(place, serving)
    look_who_is_let_in(serving)
    look_at_a_second_one(place, serving)
    end_by(signal.CTRL_BREAK_EVENT, serving, place)


@pytest.mark.slow
def test_ctrl_c_leaves_nothing_either(place: Place, serving: Serving) -> None:  # noqa: F811
    end_by(signal.CTRL_C_EVENT, serving, place)
