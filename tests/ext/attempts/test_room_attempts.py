"""Attempts by the library: as they end, judged; in threads and for asyncio; ended by their reader."""

from __future__ import annotations

import asyncio
import inspect
import signal
import subprocess
import sys
import textwrap
from typing import Any

import pytest

import mudroom
from conftest import Place
from mudroom.errors import UsageError
from mudroom.ext.attempts.library import RoomAttempts
from mudroom.library.async_handle import AsyncAttemptStream
from mudroom.library.satellite import AttemptStream, NonePassed
from rooms import LONG, environ_of, open_room, processes_with, until

SLEEP = f"exec sleep {LONG}"


def test_the_best_of_three_by_its_judge(place: Place) -> None:
    with open_room(place) as room:
        with room.attempts(
            "echo $MUDROOM_ATTEMPT $WORD > n{i}", 3, judge="grep -q two n2", env={"WORD": "two"}
        ) as tried:
            seen = [attempt.number for attempt in tried]
            best = tried.result.check().best
        assert (sorted(seen), tried.result.best) == ([1, 2, 3], best)
        assert best is not None and (best.fork, best.judged, best.added, best.passed) == ("t1-2", 0, 1, True)
        assert room.changes(best.fork).paths == ["n2"]
        room.apply(best.fork)
        assert (place.project / "n2").read_text() == "2 two\n"
        assert sorted(tried.discard()) == ["t1-1", "t1-3"]
        assert room.forks() == []


def test_the_room_can_be_used_between_two_attempts(place: Place) -> None:
    with open_room(place) as room, room.attempts(commands=["echo a > a", ["sh", "-c", "echo b > b"]], jobs=1) as tried:
        assert [room.changes(attempt.fork).paths for attempt in tried] == [["a"], ["b"]]
        assert tried.result.distinct == 2


def test_none_passes(place: Place) -> None:
    with open_room(place) as room:
        result = room.attempts("echo x > x; echo why; exit 3", 2).wait()
        assert (result.best, result.attempts[1].same_as, result.attempts[0].report) == (None, 1, "why\n")
        with pytest.raises(NonePassed, match="none of 2 attempts") as raised:
            result.check()
        assert (raised.value.result, raised.value.exit_code) == (result, 1)


def test_leaving_the_block_ends_what_runs(place: Place) -> None:
    with open_room(place) as room:
        with room.attempts(f"test {{i}} = 1 || {SLEEP}", 4, jobs=3) as tried:
            assert next(tried).number == 1
            until(lambda: processes_with(LONG))
        assert processes_with(LONG) == []
        assert tried.result.end == "interrupted"


def test_closing_the_room_ends_what_runs(place: Place) -> None:
    room = open_room(place)
    tried = room.attempts(SLEEP, 2)
    until(lambda: processes_with(LONG))
    room.close()
    assert processes_with(LONG) == []
    assert tried.result.end == "interrupted"
    with pytest.raises(UsageError, match="closed"):
        room.attempts("true")


def test_forgetting_the_stream_ends_what_runs(place: Place) -> None:
    with open_room(place) as room:
        tried = room.attempts(SLEEP, 2)
        until(lambda: processes_with(LONG))
        del tried
        until(lambda: not processes_with(LONG))


WRONG: list[tuple[dict[str, Any], str]] = [
    ({}, "take a command"),
    ({"command": "true", "commands": ["true"]}, "take a command"),
    ({"command": "true", "n": 0}, "no attempts"),
    ({"command": "true", "n": "8"}, "n is '8'"),
    ({"command": "true", "n": 10**9}, "more than the 1,000"),
    ({"command": "true", "jobs": 0}, "jobs is 0"),
    ({"command": "true", "until": -1}, "until is -1"),
    ({"command": "true", "budget": -1}, "budget is -1"),
    ({"command": "true", "score": "json"}, "printed by a judge"),
    ({"command": "true", "judge": ""}, "empty"),
    ({"command": "true", "parent": "nobody"}, "no fork named"),
    ({"commands": "true"}, "not a list of commands"),
    ({"command": "true", "cwd": "/"}, "not in the project"),
    ({"command": "true", "env": {"A=B": "c"}}, "no|not a name"),
]


def test_an_unknown_argument_is_refused_as_by_python(place: Place) -> None:
    with open_room(place) as room, pytest.raises(TypeError, match="unexpected keyword argument 'jugde'"):
        room.attempts("true", jugde="true")  # type: ignore[call-arg]


def test_a_wrong_argument_is_the_callers_error(place: Place) -> None:
    with open_room(place) as room:
        for arguments, message in WRONG:
            with pytest.raises(UsageError, match=message):
                room.attempts(**arguments)


def test_the_result_is_not_there_before_the_end(place: Place) -> None:
    with open_room(place) as room, room.attempts(SLEEP, 1) as tried:
        with pytest.raises(UsageError) as raised:
            _ = tried.result
        assert str(raised.value) == "the attempts have not ended (iterate over them, or call wait())"
        with pytest.raises(UsageError, match="is running"):
            tried.discard()


def names_of(kind: type[Any]) -> dict[str, Any]:
    return {name: value for name, value in vars(kind).items() if not name.startswith("_")}


@pytest.mark.parametrize("other", [AttemptStream, AsyncAttemptStream])
def test_all_forms_have_the_same_names(other: type[Any]) -> None:
    assert names_of(RoomAttempts).keys() == names_of(other).keys()
    for name, value in names_of(RoomAttempts).items():
        if callable(value):
            assert inspect.signature(value).parameters == inspect.signature(names_of(other)[name]).parameters


def test_asyncio(place: Place) -> None:
    async def main() -> tuple[list[int], mudroom.Room | None]:
        async with mudroom.aopen(place.project, environ=environ_of(place)) as room:
            async with await room.attempts("echo {i} > n", 3, judge="grep -q 3 n") as tried:
                numbers = [attempt.number async for attempt in tried]
            best = tried.result.check().best
            assert best is not None and best.number == 3
            assert sorted(await tried.discard(everything=True)) == ["t1-1", "t1-2", "t1-3"]
            return sorted(numbers), None

    assert asyncio.run(main())[0] == [1, 2, 3]


def test_a_task_that_is_cancelled_ends_its_attempts(place: Place) -> None:
    async def main() -> None:
        async with mudroom.aopen(place.project, environ=environ_of(place)) as room:

            async def task() -> None:
                async with await room.attempts(SLEEP, 2) as tried:
                    await tried.wait()

            running = asyncio.create_task(task())
            await asyncio.to_thread(until, lambda: processes_with(LONG))
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running
            assert processes_with(LONG) == []

    asyncio.run(main())


def test_ctrl_c_in_the_reader_ends_the_attempts(place: Place) -> None:
    program = textwrap.dedent(
        f"""
        import sys, mudroom
        with mudroom.open(sys.argv[1]) as room:
            tried = room.attempts("echo > a; echo up; {SLEEP}", 2)
            try:
                for attempt in tried: pass
            except KeyboardInterrupt:
                print(tried.result.end, [attempt.state for attempt in tried.result.attempts], flush=True)
                raise
        """
    )
    words = [sys.executable, "-c", program, str(place.project)]
    child = subprocess.Popen(words, env=environ_of(place), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    until(lambda: len(processes_with(LONG)) >= 2)
    child.send_signal(signal.SIGINT)
    out, errors = child.communicate(timeout=60)
    assert "interrupted ['ended early', 'ended early']" in out, errors
    assert child.returncode == -signal.SIGINT
    assert processes_with(LONG) == []
