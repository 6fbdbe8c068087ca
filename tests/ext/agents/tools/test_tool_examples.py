"""The examples of the library that give a model tools, each run as its first lines say."""

from __future__ import annotations

import importlib.util

import pytest
from model_server import ModelServer
from scenario import Step

from conftest import Place
from library_examples import run, wants_words
from rooms import open_room

pytestmark = pytest.mark.slow


def need(package: str) -> None:
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"not installed: {package} (pip install mudroom[examples])")


def test_an_agent_loop_fixes_a_bug_and_the_project_is_as_it_was(place: Place) -> None:
    bug = "def add(a, b):\n    return a - b\n"
    place.write("calc.py", bug)
    place.write("test_calc.py", "from calc import add\nassert add(1, 2) == 3\n")
    steps = (
        Step("look", "ls"),
        Step("read", kind="read", path="calc.py", command="cat calc.py"),
        Step("fix", kind="edit", path="calc.py", old="a - b", content="a + b", command="false"),
        Step("break", "rm -rf ./*.md; python3 -B test_calc.py && echo fixed"),
        Step("done", content="It adds again."),
    )
    with ModelServer(steps) as server:
        out = run(place, "agent_loop.py", "fix add", OPENAI_BASE_URL=server.url + "/v1")
        assert (server.errors, server.played()) == ([], [step.name for step in steps])
        assert "fixed" in server.results[3]
    assert out.startswith("It adds again.\nmodified  calc.py  +1 -1\nmudroom diff ")
    assert (place.project / "calc.py").read_text() == bug
    with open_room(place) as room:
        assert room.apply(room.forks()[0].name, verify="python3 -B test_calc.py").ok
    assert "a + b" in (place.project / "calc.py").read_text()


def test_langchain_calls_the_tools(place: Place) -> None:
    need("langchain_core")
    out = run(place, "langchain_tool.py")
    assert "hello" in out and "added     hello.txt  +1 -0" in out
    assert list(place.project.iterdir()) == []


def test_pydantic_ai_calls_the_tools(place: Place) -> None:
    need("pydantic_ai")
    out = run(place, "pydantic_ai_tool.py")
    assert "the file says: hello" in out and "added     hello.txt  +1 -0" in out
    assert list(place.project.iterdir()) == []


def test_without_its_words_the_agent_loop_says_how_it_is_run() -> None:
    wants_words("agent_loop.py")
