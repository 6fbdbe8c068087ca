"""The options of ``mudroom.open``: each holds for the commands of its room, and for no other."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

import mudroom
from conftest import Place
from rooms import environ_of, open_room, policy

HOST = "nowhere.example"
FETCH = f"curl -sS --max-time 20 http://{HOST}/ || true"


@pytest.fixture
def port() -> Iterator[int]:
    """The port of a server on this machine's loopback that says hello."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", "6")
            self.end_headers()
            self.wfile.write(b"hello\n")

        def log_message(self, *_words: object) -> None:
            """Print nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    yield int(server.server_address[1])
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_host_is_allowed_for_one_room(place: Place, port: int) -> None:
    fetch = f"curl -sS http://localhost:{port}/ || true"
    with mudroom.open(place.project, allow=[f"localhost:{port}"], environ=environ_of(place)) as room:
        assert room.run(fetch).stdout == "hello\n"
    with open_room(place) as other:
        assert other.run(fetch).stdout == ""
    assert not (place.project / ".mudroom").exists(), "nothing was written for it"


def test_a_deny_of_the_policy_stays(place: Place, port: int) -> None:
    policy(place, "network: {deny: [localhost]}\n")
    with mudroom.open(place.project, allow=[f"localhost:{port}"], environ=environ_of(place)) as room:
        assert room.run(f"curl -sS http://localhost:{port}/ || true").stdout == ""


def test_a_refused_host_is_a_denial_with_its_reason(place: Place) -> None:
    with mudroom.open(place.project, ask="never", environ=environ_of(place)) as room:
        result = room.run(FETCH)
    assert [(denial.kind, denial.target, denial.times) for denial in result.denials] == [("network", f"{HOST}:80", 1)]
    assert result.denials[0].reason in str(result.denials[0])
    with mudroom.open(place.project, network="none", environ=environ_of(place)) as room:
        assert room.run(FETCH).denials == ()


def test_a_host_is_asked_about(place: Place) -> None:
    asked: list[mudroom.Question] = []

    def ask(question: mudroom.Question) -> bool:
        asked.append(question)
        return False

    with mudroom.open(place.project, agent="coder", ask=ask, environ=environ_of(place)) as room:
        result = room.run(["curl", "-sS", f"http://{HOST}/"], fork="a")
    assert [(one.kind, one.host, one.port, one.agent, one.fork) for one in asked if one.kind == "host"] == [
        ("host", HOST, 80, "coder", "a")
    ]
    assert str(asked[-1]) == f"may coder reach {HOST}:80?"
    assert "refused by the program" in result.denials[0].reason


def test_a_host_is_asked_about_in_the_event_loop(place: Place) -> None:
    async def main() -> None:
        asked = asyncio.Event()

        async def ask(_question: mudroom.Question) -> bool:
            asked.set()
            await asyncio.Event().wait()
            return True

        async with mudroom.aopen(place.project, ask=ask, environ=environ_of(place)) as room:
            task = asyncio.create_task(room.run(FETCH, fork="a"))
            await asked.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert (await room.run("true", fork="a")).ok

    asyncio.run(main())


def test_a_secret_is_shown_to_one_room(place: Place) -> None:
    place.write(".env", "KEY=abc\n")
    with open_room(place) as room:
        assert room.run("cat .env").stdout == ""
    with mudroom.open(place.project, show=[".env"], environ=environ_of(place)) as room:
        assert room.run("cat .env").stdout == "KEY=abc\n"


def test_variables_time_and_what_can_be_read(place: Place) -> None:
    outside = place.home / "data"
    outside.mkdir()
    (outside / "x").write_text("of the home\n")
    options = {"env": {"MODE": "fast"}, "timeout": 0.3, "read": [outside]}
    with mudroom.open(place.project, environ=environ_of(place), **options) as room:  # type: ignore[arg-type]
        assert room.run(f"echo $MODE; cat {outside}/x").stdout == "fast\nof the home\n"
        assert room.run("exec sleep 1000").timed_out
        assert room.run("sleep 0.5; echo later", timeout=60).stdout == "later\n"
    with open_room(place) as room:
        assert room.run(f"echo $MODE; cat {outside}/x").stdout == "\n"


def test_a_limit_holds(place: Place) -> None:
    with mudroom.open(place.project, limits={"file_size": "1MB"}, environ=environ_of(place)) as room:
        result = room.run("head -c 2000000 /dev/zero > big", fork="a")
    assert not result.ok and result.changes[0].size <= 1_000_000


@pytest.mark.parametrize("function", [mudroom.open, mudroom.aopen])
def test_an_unknown_option_is_refused_as_by_python(place: Place, function: Callable[..., object]) -> None:
    with pytest.raises(TypeError, match=rf"^{function.__name__}\(\) got an unexpected keyword argument 'agnet'$"):
        function(place.project, agnet="coder")
