"""A shell in a terminal of a workspace, which is typed to while it runs."""

from __future__ import annotations

import queue
import secrets
import threading
from pathlib import Path

from mudroom.ext.orchestra.workspace import EndedCommand, ForkWorkspace
from mudroom.typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

PROGRAM = Path(__file__).with_name("kernel_program.py")


class WorkspaceTerminal:
    """``rows`` and ``columns``: its size. ``on_output``: called with its output in another thread; else ``chunks``
    yields it. ``timeout``: seconds until all its processes end."""

    def __init__(
        self,
        workspace: ForkWorkspace,
        rows: int,
        columns: int,
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        timeout: float | None = None,
        on_output: Callable[[bytes], object] | None = None,
    ) -> None:
        self._workspace = workspace
        self._program = f"/tmp/mudroom-{secrets.token_hex(8)}/terminal.py"
        self._chunks: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._heard = on_output or self._chunks.put
        self.ended: EndedCommand | None = None
        workspace.write(self._program, PROGRAM.read_bytes())
        variables = {"TERM": "xterm-256color", **(env or {})}
        self._thread = threading.Thread(target=self._run, args=(cwd, variables, timeout), daemon=True)
        self._thread.start()
        self.set_size(rows, columns)

    def _run(self, cwd: str | None, env: Mapping[str, str], timeout: float | None) -> None:
        argv = ["python3", self._program, "terminal"]
        try:
            self.ended = self._workspace.run(
                argv,
                cwd=cwd,
                env=env,
                timeout=timeout,
                limit=0,
                on_output=lambda _name, text: self._heard(text.encode()),
            )
        finally:
            self._chunks.put(None)

    def send(self, data: str | bytes) -> bool:
        """Type data. Return False if the shell has ended."""
        return self._message(b"input " + (data.encode() if isinstance(data, str) else data))

    def set_size(self, rows: int, columns: int) -> bool:
        return self._message(f"size {rows} {columns}".encode())

    def kill(self) -> bool:
        return self._message(b"kill")

    def _message(self, text: bytes) -> bool:
        if self.ended is not None:
            return False
        return not self._workspace.run(["python3", self._program, "send"], input=text).exit_code

    def chunks(self) -> Iterator[bytes]:
        """Yield the output until the shell ends."""
        yield from iter(self._chunks.get, None)

    def ended_after(self, timeout: float | None = None) -> int | None:
        """Return the exit code, or None after ``timeout`` seconds."""
        self._thread.join(timeout)
        return self.ended.exit_code if self.ended is not None else None
