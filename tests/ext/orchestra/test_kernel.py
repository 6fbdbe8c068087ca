"""Python code in a workspace, and answers that are not believed."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from conftest import Place
from mudroom.ext.orchestra.kernel import CodeResult, PythonKernel, _result
from mudroom.ext.orchestra.workspace import EndedCommand, ForkWorkspace
from rooms import environ_of

pytestmark = pytest.mark.slow


@pytest.fixture
def kernel(place: Place) -> Iterator[PythonKernel]:
    with ForkWorkspace(place.project, environ=environ_of(place)) as workspace:
        yield PythonKernel(workspace)


def test_names_last(kernel: PythonKernel) -> None:
    assert kernel.run("x = 20\ndef twice(n): return n * 2") == CodeResult()
    assert kernel.run("print('out'); twice(x + 1)") == CodeResult("42", "out\n")
    failed = kernel.run("import sys; print('err', file=sys.stderr)\n1 / 0")
    assert failed.stderr == "err\n" and failed.error is not None
    assert failed.error[:2] == ("ZeroDivisionError", "division by zero")
    assert kernel.run("1 +").error is not None and kernel.run("x").value == "20"
    assert kernel.run("raise SystemExit(3)").error == ("SystemExit", "3", kernel.run("raise SystemExit(3)").error[2])  # type: ignore[index]
    kernel.end()
    assert kernel.run("x").error is not None


def test_names_are_lost_with_the_interpreter(kernel: PythonKernel) -> None:
    for code, why in (("import time; time.sleep(99)", "out of time"), ("import os; os._exit(0)", "has ended")):
        kernel.run("x = 1")
        lost = kernel.run(code, timeout=3)
        assert lost.error is not None and why in lost.error[1] and lost.error[1].endswith("its names are lost")
        assert kernel.run("'x' in globals()").value == "False"


def answer(**fields: object) -> bytes:
    return json.dumps({"value": None, "stdout": "", "stderr": "", "error": None, **fields}).encode()


@pytest.mark.parametrize(
    "said",
    [
        b"", b"null", b"[]", b"{}", b"\xff", b"[" * 100_000, answer(value=1), answer(stdout=None), answer(error="text"),
        answer(error=["a", "b"]), answer(error=["a", "b", 3]), answer(stdout={"a": 1}), answer(error={"a": 1}),
    ],
    ids=range(13),
)  # fmt: skip
def test_an_answer_is_checked(said: bytes) -> None:
    assert _result(EndedCommand(0, said, b"", said)) is None


def test_an_answer_is_text_that_can_be_printed() -> None:
    said = json.dumps({"value": "\ud800", "stdout": "\udc80", "stderr": "", "error": None}).encode()
    result = _result(EndedCommand(0, said, b"", said))
    assert result is not None and (result.value, result.stdout) == ("\ufffd", "\ufffd")
