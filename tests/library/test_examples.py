"""The examples of the library, each run as its first lines say."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from model_server import ModelServer
from scenario import Step

from conftest import Place
from rooms import environ_of, open_room

pytestmark = pytest.mark.slow
EXAMPLES = Path(__file__).resolve().parents[2] / "examples/library"

PYTEST = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "mudroom"]
ALONE = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONDONTWRITEBYTECODE": "1"}
"""Without the plugins of the tests' requirements, which take seconds to load; ``-p`` names mudroom's entry point."""


def run(place: Place, program: str, *words: str, **more: str) -> str:
    """Run an example on the project and return its output."""
    environment = environ_of(place, PYTHONPATH=os.environ.get("PYTHONPATH", ""), **more)
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / program), str(place.project), *words],
        env=environment, cwd=place.root, capture_output=True, text=True, check=False, timeout=80,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return done.stdout


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


def test_the_best_of_three_is_applied(place: Place) -> None:
    place.write("n", "0\n")
    out = run(place, "best_of_n.py", "grep -q 2 n", "echo 1 > n", "false", "echo 2 > n")
    assert "applied t1-3: mudroom undo u1 takes it back" in out
    assert "3: passed: exit 0, judge 0" in out
    assert (place.project / "n").read_text() == "2\n"
    with open_room(place) as room:
        assert room.forks() == []


def test_the_plugin_gives_each_test_a_fork(place: Place) -> None:
    shutil.copy(EXAMPLES / "test_in_a_fork.py", place.project)
    place.write("test_fails.py", "def test_it(mudroom):\n    mudroom.write('seen', 'x')\n    assert False\n")
    place.write("pytest.ini", "[pytest]\n")
    before = sorted(os.listdir(place.project))

    def tests(*words: str) -> str:
        return subprocess.run(
            [*PYTEST, *words], cwd=place.project, env=environ_of(place, **ALONE), capture_output=True, text=True,
            check=False, timeout=80,
        ).stdout  # fmt: skip

    assert "2 passed, 1 failed" in (out := tests()) or "1 failed, 2 passed" in out, out
    with open_room(place) as room:
        assert room.forks() == []
        assert "kept: mudroom diff run-" in tests("--mudroom-keep", "test_fails.py")
        assert [room.changes(fork.name).paths for fork in room.forks()] == [["seen"]]
    assert sorted(os.listdir(place.project)) == before


def test_the_plugin_loads_nothing_for_tests_without_it(place: Place) -> None:
    place.write("test_plain.py", "import sys\ndef test_it():\n    assert 'mudroom.library' not in sys.modules\n")
    done = subprocess.run(
        PYTEST,
        cwd=place.project, env=environ_of(place, **ALONE), capture_output=True, text=True, check=False, timeout=80,
    )  # fmt: skip
    assert "1 passed" in done.stdout, done.stdout


def test_the_notebook_runs(place: Place) -> None:
    """Its code cells, one after the other in one namespace, as a kernel does."""
    notebook = json.loads((EXAMPLES / "tour.ipynb").read_text())
    assert (notebook["nbformat"], {cell["cell_type"] for cell in notebook["cells"]}) == (4, {"markdown", "code"})
    cells = ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert all(cell["outputs"] == [] for cell in notebook["cells"] if cell["cell_type"] == "code")
    program = "import json, sys\nspace = {}\nfor cell in json.load(sys.stdin): exec(cell, space)"
    done = subprocess.run(
        [sys.executable, "-c", program],
        input=json.dumps(cells), cwd=place.project, env=environ_of(place), capture_output=True, text=True, check=False,
        timeout=80,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    assert "added     greeting.txt  +1 -0" in done.stdout and "+good morning" in done.stdout


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


@pytest.mark.parametrize("program", ["agent_loop.py", "best_of_n.py"])
def test_without_its_words_an_example_says_how_it_is_run(program: str) -> None:
    done = subprocess.run([sys.executable, str(EXAMPLES / program)], capture_output=True, text=True, check=False)
    assert done.returncode == 1 and f"python {program} PROJECT" in done.stderr
    assert "Traceback" not in done.stderr
