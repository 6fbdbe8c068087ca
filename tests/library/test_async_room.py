"""Rooms for asyncio: the same names, and cancellation that leaves nothing running and every fork whole."""

from __future__ import annotations

import asyncio
import gc
import inspect
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable
from typing import Any

import pytest

import mudroom
from conftest import Place
from mudroom.errors import UsageError
from mudroom.library.async_handle import AsyncAttemptStream, AsyncBackgroundHandle, AsyncOutputStream, AsyncToolSet
from mudroom.library.background_handle import BackgroundHandle
from mudroom.library.output import OutputStream
from mudroom.library.satellite import AttemptStream, ToolSet
from rooms import LONG, environ_of, open_room, policy, processes_with, until
from tiers import each

pytestmark = pytest.mark.slow
SLEEP = f"exec sleep {LONG}"


def aopen(place: Place) -> mudroom.AsyncRoom:
    return mudroom.aopen(place.project, environ=environ_of(place))


def names_of(kind: type[Any]) -> dict[str, Any]:
    return {name: value for name, value in vars(kind).items() if not name.startswith("_")}


LEFT_OUT = {OutputStream: {"poll", "tell", "is_over"}}
"""The names that the asyncio class is made of."""


@each(
    ("kind", "other"),
    [
        (mudroom.Room, mudroom.AsyncRoom),
        (mudroom.ForkHandle, mudroom.AsyncForkHandle),
        (BackgroundHandle, AsyncBackgroundHandle),
        (OutputStream, AsyncOutputStream),
        (AttemptStream, AsyncAttemptStream),
        (ToolSet, AsyncToolSet),
    ],
)
def test_the_names_and_arguments_are_the_same(kind: type[Any], other: type[Any]) -> None:
    """``project`` and ``notes`` are attributes of a room."""
    left_out = LEFT_OUT.get(kind, set())
    attributes = {"project", "notes"} if kind is mudroom.Room else set()
    assert names_of(kind).keys() - left_out == names_of(other).keys() - attributes
    for name, value in names_of(kind).items():
        if callable(value) and name not in left_out:
            assert inspect.signature(value).parameters == inspect.signature(names_of(other)[name]).parameters, name
    arguments = [inspect.signature(function).parameters for function in (mudroom.open, mudroom.aopen)]
    assert list(arguments[0]) == list(arguments[1])


def test_commands_run_side_by_side(place: Place) -> None:
    async def main() -> list[str]:
        async with aopen(place) as room:
            results = await asyncio.gather(*(room.run(f"echo {i} > n; cat n", fork=f"try-{i}") for i in range(8)))
            assert [fork.name for fork in await room.forks()] != []
            return [result.stdout for result in results]

    assert asyncio.run(main()) == [f"{i}\n" for i in range(8)]


def test_every_call_once(place: Place) -> None:
    place.write("a.txt", "one\n")

    async def main() -> None:
        room = await aopen(place)
        fork = await room.fork("a")
        await fork.write("x/y", "1\n")
        assert (await fork.edit("x/y", "1", "2"), await fork.read("x/y"), await fork.read_bytes("x/y")) == (
            1, "2\n", b"2\n",
        )  # fmt: skip
        assert [entry.name for entry in await fork.list()] == ["a.txt", "x"]
        assert (await fork.glob("**/y"), [m.line for m in await fork.search("2")]) == (["x/y"], [1])
        await fork.move("x/y", "y")
        await fork.delete("x")
        assert (await fork.exists("y"), await fork.exists("x")) == (True, False)
        await fork.flush()
        await fork.checkpoint("half")
        assert (await fork.run("cat y; rm y", check=True)).stdout == "2\n"
        undo = await fork.rollback("half")
        assert undo is not None and set(await fork.checkpoints()) >= {"half", undo}
        assert (await fork.changes()).paths == ["y"]
        assert await fork.diff() == await room.diff("a") != ""
        async with fork.mount() as path:
            assert (path / "y").read_text() == "2\n"
        server = await fork.start("echo up; exec sleep 1000")
        while (await server.output())[0] != "up\n":
            await asyncio.sleep(0)
        assert (await server.wait(0.01), await server.poll(), (await server.output_bytes())[0]) == (None, None, b"up\n")
        assert (await room.background(server.id)).command == server.command
        assert (await server.end() or server) == await server.wait()
        assert await fork.in_use() == ""
        seen = await fork.fingerprint()
        applied = await fork.apply("y", verify=["test", "-f", "y"], reviewed=seen)
        assert applied.check().exit_code == 0
        assert (await room.undo()).ok and (await room.redo()).ok
        assert "apply" in [event.kind for event in await room.journal()]
        await (await room.fork("b")).discard()
        await room.fork("c")
        await room.discard("c")
        assert (room.project, room.notes, room.is_closed) == (str(place.project), (), False)
        await room.close()
        assert room.is_closed

    asyncio.run(main())


def test_output_comes_in_the_event_loop(place: Place) -> None:
    async def main() -> None:
        loop, heard = asyncio.get_running_loop(), list[str]()

        def hear(chunk: mudroom.OutputChunk) -> None:
            assert asyncio.get_running_loop() is loop
            heard.append(chunk.text)

        def broken(_chunk: mudroom.OutputChunk) -> None:
            raise ZeroDivisionError

        async with aopen(place) as room:
            await room.run("echo a", on_output=hear)
            assert heard == ["a\n"]
            with pytest.raises(ZeroDivisionError):
                await room.run(f"echo a; {SLEEP}", on_output=broken)
            async with room.stream("echo b; exit 3") as stream:
                assert [chunk.text async for chunk in stream] == ["b\n"]
            assert stream.result.exit_code == 3
            async with room.stream(f"echo x > made; echo c; {SLEEP}", fork="a") as stream:
                async for _chunk in stream:
                    break
            assert (await room.changes("a")).paths == ["made"]
            assert (await stream.wait()).signal == 15

    asyncio.run(main())
    assert processes_with(LONG) == []


def test_cancelling_ends_the_command_and_keeps_its_changes(place: Place) -> None:
    async def main() -> None:
        async with aopen(place) as room:
            started = asyncio.Event()
            task = asyncio.create_task(
                room.run(f"echo x > made; echo up; {SLEEP}", fork="a", on_output=lambda _chunk: started.set())
            )
            await started.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert processes_with(LONG) == []
            assert (await room.changes("a")).paths == ["made"]
            assert (await room.run("cat made", fork="a")).stdout == "x\n"

    asyncio.run(main())


def test_a_command_that_ignores_the_request_is_killed_by_the_second(place: Place) -> None:
    async def main() -> None:
        async with aopen(place) as room:
            started = asyncio.Event()
            task = asyncio.create_task(
                room.run(f"trap '' TERM; echo x > made; echo up; while :; do sleep {LONG}; done", fork="a",
                         on_output=lambda _chunk: started.set())
            )  # fmt: skip
            await started.wait()
            task.cancel()
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert processes_with(LONG) == []
            assert (await room.changes("a")).paths == ["made"]

    asyncio.run(main())


def test_a_command_that_waits_for_its_fork_is_not_waited_for(place: Place) -> None:
    """The fork is held by another command; the second one does not start when that has ended."""

    async def main() -> None:
        async with aopen(place) as room:
            started = asyncio.Event()
            holder = asyncio.create_task(
                room.run(f"echo up; {SLEEP}", fork="a", on_output=lambda _chunk: started.set())
            )
            await started.wait()
            second = asyncio.create_task(room.run("echo 2 >> made", fork="a"))
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(second, 0.05)
            assert not holder.done()
            holder.cancel()
            with pytest.raises(asyncio.CancelledError):
                await holder
            assert (await room.run("cat made", fork="a")).exit_code == 1

    asyncio.run(main())


def test_a_group_that_fails_ends_the_commands_of_the_others(place: Place) -> None:
    async def main() -> None:
        async with aopen(place) as room:
            with pytest.raises(ExceptionGroup) as failed:
                async with asyncio.TaskGroup() as group:
                    group.create_task(room.run(f"echo x > made; {SLEEP}", fork="a"))
                    group.create_task(room.run("exit 1", fork="b", check=True))
            assert isinstance(failed.value.exceptions[0], mudroom.CommandFailed)

    asyncio.run(main())
    assert processes_with(LONG) == []


PREFIX = """
import asyncio, sys
import mudroom

async def run(room, started=lambda _chunk: None):
    await room.run("echo x > made; echo up; exec sleep 7654321", fork="a", on_output=started)

"""
CLOSED_LOOP = """
async def main(started):
    async with mudroom.aopen(sys.argv[1]) as room:
        await run(room, lambda _chunk: started.set())

loop = asyncio.new_event_loop()
started = asyncio.Event()
task = loop.create_task(main(started))
loop.run_until_complete(started.wait())
loop.close()
{end}
print("closed", flush=True)
"""


@pytest.mark.parametrize("end", ["del task, started", "", "import os; os.environ.clear()"])
def test_a_loop_that_is_closed_in_the_middle_leaves_nothing(place: Place, end: str) -> None:
    """The task is collected at once, or at the end of the interpreter."""
    done = program(place, CLOSED_LOOP.format(end=end))
    assert "closed\n" in done.stdout, done.stderr
    until(lambda: not processes_with(LONG))
    with open_room(place) as room:
        assert room.changes("a").paths == ["made"]
        assert room.run("cat made", fork="a").stdout == "x\n"


CTRL_C = """
import os, signal
async def main():
    async with mudroom.aopen(sys.argv[1]) as room:
        await run(room, lambda _chunk: os.kill(os.getpid(), signal.SIGINT))
try:
    asyncio.run(main())
except KeyboardInterrupt:
    print("interrupted")
"""
CTRL_C_SYNC = """
import os, signal
with mudroom.open(sys.argv[1]) as room:
    try:
        room.run("echo x > made; echo up; exec sleep 7654321", fork="a",
                 on_output=lambda _chunk: os.kill(os.getpid(), signal.SIGINT))
    except KeyboardInterrupt:
        assert room.changes("a").paths == ["made"]
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
        print("interrupted")
"""


@pytest.mark.parametrize("text", [CTRL_C, CTRL_C_SYNC])
def test_ctrl_c_ends_the_command(place: Place, text: str) -> None:
    done = program(place, text)
    assert (done.stdout, done.returncode) == ("interrupted\n", 0), done.stderr
    assert processes_with(LONG) == []
    with open_room(place) as room:
        assert room.changes("a").paths == ["made"]


def program(place: Place, text: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", (textwrap.dedent(PREFIX) + text).replace("7654321", LONG), str(place.project)],
        env=environ_of(place), capture_output=True, text=True, check=False, timeout=60,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )  # fmt: skip


def test_a_room_that_is_not_open_says_so(place: Place) -> None:
    async def main() -> None:
        room = aopen(place)
        with pytest.raises(UsageError, match="not open yet"):
            await room.run("true")
        async with room:
            assert (await room.run("true")).ok
        with pytest.raises(UsageError, match=r"is closed \(open it again"):
            await room.run("true")

    asyncio.run(main())
    gc.collect()


@pytest.mark.parametrize("answer", [True, False])
def test_an_approver_may_be_a_coroutine(place: Place, answer: bool) -> None:
    policy(place, "commands: {classes: {destructive: require_approval}}\n")
    asked: list[mudroom.Question] = []

    async def ask(question: mudroom.Question) -> bool:
        await asyncio.sleep(0)
        asked.append(question)
        return answer

    def plain(question: mudroom.Question) -> bool:
        asked.append(question)
        return answer

    async def main(function: Callable[[mudroom.Question], Any]) -> None:
        async with mudroom.aopen(place.project, agent="coder", ask=function, environ=environ_of(place)) as room:
            assert (await room.run(["rm", "-rf", "x"])).ran is answer

    asyncio.run(main(ask))
    asyncio.run(main(plain))
    assert [question.command for question in asked] == [("rm", "-rf", "x")] * 2


def test_a_cancelled_question_refuses(place: Place) -> None:
    policy(place, "commands: {classes: {destructive: require_approval}}\n")

    async def main() -> None:
        asked = asyncio.Event()

        async def ask(_question: mudroom.Question) -> bool:
            asked.set()
            await asyncio.Event().wait()
            return True

        async with mudroom.aopen(place.project, agent="coder", ask=ask, environ=environ_of(place)) as room:
            task = asyncio.create_task(room.run(["rm", "-rf", "x"], fork="a"))
            await asked.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert await room.forks() == []

    asyncio.run(main())


CTRL_C_ELSEWHERE = """
import os, signal, threading

def interrupt_in(seconds):
    threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGINT)).start()

def interrupted(call):
    try:
        call()
    except KeyboardInterrupt:
        return True

with mudroom.open(sys.argv[1]) as room, mudroom.open(sys.argv[1]) as other:
    server = room.start("exec sleep 7654321", fork="a")
    interrupt_in(0.1)
    assert interrupted(server.wait), "a wait for a background command"
    stream = other.stream("echo up; exec sleep 7654321", fork="b")
    assert next(stream).text == "up\\n"
    interrupt_in(1.5)
    assert interrupted(lambda: room.run("true", fork="b")), "a wait for a fork that another room has"
    stream.close()
    assert room.run("echo well", fork="b").stdout == "well\\n"
    assert room.run("echo well", fork="a").stdout == "well\\n"
    server.end()
    for number in range(100):
        interrupted(lambda: (interrupt_in(number / 5000), [room.run("exec sleep 7654321", fork="c") for _ in "123456"]))
    assert room.run("echo well", fork="c").stdout == "well\\n"
print("well")
"""


def test_ctrl_c_at_any_time_leaves_a_room_that_works(place: Place) -> None:
    done = program(place, CTRL_C_ELSEWHERE)
    assert (done.stdout, done.returncode) == ("well\n", 0), done.stderr
    assert processes_with(LONG) == []
