"""Run by test_vendors.py where smolagents is installed: its CodeAgent, with a scripted model."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from smolagents import CodeAgent, Model, tool
from smolagents.models import ChatMessage, MessageRole
from smolagents.utils import AgentError
from vendor_project import run_of_page

from mudroom.ext.orchestra.smolagents import MudroomExecutor


class Scripted(Model):  # type: ignore[misc]
    def __init__(self, *pieces: str) -> None:
        super().__init__()
        self.pieces = list(pieces)
        self.seen: list[str] = []

    def generate(self, messages: Any, **_options: Any) -> ChatMessage:
        self.seen.append(str(messages[-1]))
        return ChatMessage(MessageRole.ASSISTANT, f"<code>\n{self.pieces.pop(0)}\n</code>")


@pytest.fixture
def executor(project: Path) -> Iterator[MudroomExecutor]:
    made = MudroomExecutor(project, timeout=5)
    yield made
    made.cleanup()


@tool  # type: ignore[untyped-decorator]
def twice(number: int) -> int:
    """Return twice the number.

    Args:
        number: the number
    """
    return number * 2


def test_an_agent_writes_code_in_a_fork(project: Path, executor: MudroomExecutor) -> None:
    model = Scripted(
        "answer = twice(21)\nprint('printed', answer)",
        "open('answer', 'w').write(str(answer))\n1 / 0",
        "final_answer({'answer': answer, 'parts': (1, 2)})",
    )
    agent = CodeAgent(tools=[twice], model=model, executor=executor, verbosity_level=0)
    assert agent.run("double it") == {"answer": 42, "parts": (1, 2)}
    assert "printed 42" in model.seen[1]
    assert "ZeroDivisionError" in model.seen[2]
    assert not (project / "answer").exists()
    assert executor.workspace.changes().paths == ["answer"]
    assert executor.workspace.apply().ok
    assert (project / "answer").read_text() == "42"


def test_variables_and_the_last_value(executor: MudroomExecutor) -> None:
    executor.send_variables({"name": "x", "numbers": [1, 2]})
    output = executor("print(name)\nsum(numbers)")
    assert (output.output, output.logs, output.is_final_answer) == ("3", "x\n", False)


def test_secrets_and_the_host_are_out_of_reach(executor: MudroomExecutor) -> None:
    assert executor("open('.env').read()").output == "''"
    with pytest.raises(AgentError, match=r"OSError|PermissionError"):
        executor("open('/etc/mudroom-was-here', 'w')")


def test_time(executor: MudroomExecutor) -> None:
    executor("kept = 1")
    with pytest.raises(AgentError, match="its names are lost"):
        executor("import time; time.sleep(99)")
    with pytest.raises(AgentError, match="NameError"):
        executor("kept")


def test_an_answer_is_not_believed(executor: MudroomExecutor) -> None:
    with pytest.raises(AgentError, match="the interpreter has ended"):
        executor("import os; os._exit(0)")
    forged = "class FinalAnswerException(BaseException):\n    value = 'pickle:gASVJQ=='\nraise FinalAnswerException"
    with pytest.raises(Exception, match="Pickle data rejected"):
        executor(forged)


def test_the_page(project: Path) -> None:
    model = Scripted("open('answer', 'w').write('42')\nfinal_answer(42)")
    assert "+42" in run_of_page("smolagents", project, model=model, task="write the answer")["diff"]
