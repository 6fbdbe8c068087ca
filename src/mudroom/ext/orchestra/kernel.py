"""Python code that runs in a workspace, statement after statement in one namespace, as a notebook's kernel does.

A process in the sandbox (``kernel_program.py``) keeps the namespace. A command sends it each piece of code, over a
socket in the sandbox's ``/tmp``. Its answer is data of the sandbox: JSON, whose every field is checked here.
"""

from __future__ import annotations

import json
import secrets
import threading
from pathlib import Path

from mudroom.ext.orchestra.workspace import EndedCommand, ForkWorkspace
from mudroom.typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from mudroom.library.background_handle import BackgroundHandle


class CodeResult(NamedTuple):
    """The result of a piece of code."""

    value: str | None = None
    """The representation of the last expression."""
    stdout: str = ""
    stderr: str = ""
    error: tuple[str, str, str] | None = None
    """An exception's name, its text (or its attribute ``value``) and its trace."""


class PythonKernel:
    """``python``: the sandbox's interpreter. Pieces of code run one after the other; ``_lock`` guards all of it."""

    def __init__(self, workspace: ForkWorkspace, python: str = "python3") -> None:
        self._workspace, self._python = workspace, python
        self._lock = threading.Lock()
        self._server: BackgroundHandle | None = None
        self._place = ""

    def _program(self) -> str:
        return f"{self._place}/kernel.py"

    def run(self, code: str, timeout: float | None = None) -> CodeResult:
        """Run code. After a time limit, or an end of the interpreter, the names are lost; the error says so."""
        with self._lock:
            if self._server is None or self._server.poll() is not None:
                self._place = f"/tmp/mudroom-{secrets.token_hex(8)}"
                self._workspace.write(self._program(), Path(__file__).with_name("kernel_program.py").read_bytes())
                self._server = self._workspace.start([self._python, self._program(), "serve"])
            ended = self._workspace.run([self._python, self._program(), "send"], input=code, timeout=timeout)
            result = _result(ended)
            if result is None:
                self._server.end(0.1)
                self._server = None
                return _lost(ended)
            return result

    def end(self) -> None:
        """End the interpreter. The next code begins with no names."""
        with self._lock:
            if self._server is not None:
                self._server.end(0.1)
                self._server = None


def _result(ended: EndedCommand) -> CodeResult | None:
    """Return the interpreter's answer, or None if it is not one."""
    if ended.exit_code or ended.truncated:
        return None
    try:
        answer = json.loads(ended.stdout, object_hook=_printable)
        value, out, err, error = (answer[name] for name in ("value", "stdout", "stderr", "error"))
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    texts = [text for text in (value, *(error or ())) if text is not None]
    if not all(isinstance(text, str) for text in (out, err, *texts)) or (error and len(error) != 3):
        return None
    return CodeResult(value, out, err, tuple(error) if error else None)


def _printable(answer: dict[str, object]) -> dict[str, object]:
    """Return the object with half characters replaced: they could not be written anywhere."""
    text = json.dumps(answer, ensure_ascii=False).encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    printable: dict[str, object] = json.loads(text)
    return printable


def _lost(ended: EndedCommand) -> CodeResult:
    if ended.timed_out:
        kind, why = "TimeoutError", "the code ran out of time"
    elif ended.truncated:
        kind, why = "OverflowError", "the code has printed more than can be kept"
    else:
        kind, why = "RuntimeError", "the interpreter has ended: " + ended.stderr.decode("utf-8", "replace").strip()
    why += "; its names are lost"
    return CodeResult(stderr=why + "\n", error=(kind, why, f"{kind}: {why}"))
