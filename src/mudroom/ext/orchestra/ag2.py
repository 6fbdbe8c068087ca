"""mudroom as the sandbox of AG2's shell and code tools.

with Ag2Environment("proj") as environment:
    agent = Agent("coder", config=…, tools=[SandboxShellTool(environment), SandboxCodeTool(environment)])
    print(await agent.ask("…"))
    print(environment.workspace.diff())
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import PurePosixPath

from mudroom.ext.orchestra.vendor import vendor
from mudroom.ext.orchestra.workspace import ForkWorkspace, aside
from mudroom.typing import TYPE_CHECKING, Any, Unpack

with vendor("ag2"):
    from ag2.tools.sandbox import ExecResult, SandboxBase

if TYPE_CHECKING:
    from mudroom.ext.orchestra.workspace import WorkspaceOptions
    from mudroom.library.argument import Word

TIMEOUT = 60.0
"""Seconds for a command without a time limit of its own, as in AG2's container."""


class Ag2Sandbox(SandboxBase):
    """A workspace, which stays open: its environment closes it."""

    host_workdir = None

    def __init__(self, workspace: ForkWorkspace) -> None:
        self.workspace = workspace

    @property
    def workdir(self) -> PurePosixPath:
        return PurePosixPath(self.workspace.cwd)

    async def exec(
        self, argv: list[str], *, env: dict[str, str] | None = None, timeout: float | None = None
    ) -> ExecResult:
        ended = await aside(self.workspace.run, argv, env=env, timeout=TIMEOUT if timeout is None else timeout)
        return ExecResult(output=ended.text.strip(), exit_code=ended.exit_code)

    async def put_file(self, path: PurePosixPath, content: bytes) -> None:
        if path.is_absolute():
            raise ValueError(f"the path is absolute: {path}")
        await aside(self.workspace.write, path, content)


class Ag2Environment:
    """Arguments are those of ``ForkWorkspace``."""

    def __init__(self, project: Word = ".", **options: Unpack[WorkspaceOptions]) -> None:
        options.setdefault("agent", "ag2")
        self.workspace = ForkWorkspace(project, **options)
        self.workdir = self.workspace.cwd

    def __enter__(self) -> Ag2Environment:
        return self

    def __deepcopy__(self, _memo: object) -> Ag2Environment:
        """Return the same environment: each agent's copy of a tool works in its fork."""
        return self

    def __exit__(self, *_error: object) -> None:
        self.workspace.close()

    @asynccontextmanager
    async def open(self, context: Any = None) -> AsyncIterator[Ag2Sandbox]:
        yield Ag2Sandbox(self.workspace)
