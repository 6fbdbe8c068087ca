"""mudroom as the code executor of AutoGen's agents.

async with MudroomCodeExecutor("proj") as executor:
    agent = CodeExecutorAgent("coder", executor, model_client=…)
    print(await agent.run(task="…"))
    print(executor.workspace.diff())
"""

from __future__ import annotations

import asyncio

from mudroom.ext.orchestra.vendor import vendor
from mudroom.ext.orchestra.workspace import ForkWorkspace, aside
from mudroom.typing import TYPE_CHECKING, Any, Unpack

with vendor("autogen-core"):
    from autogen_core.code_executor import CodeExecutor, CodeResult

if TYPE_CHECKING:
    from mudroom.ext.orchestra.workspace import WorkspaceOptions
    from mudroom.library.argument import Word

TIMEOUT = 60.0
"""Seconds, as of AutoGen's own executors."""
PROGRAMS = {"python": "python3", "py": "python3", "python3": "python3", "bash": "bash", "shell": "sh", "sh": "sh"}


class MudroomCodeExecutor(CodeExecutor):
    """Arguments are those of ``ForkWorkspace``; ``timeout`` is for each block."""

    def __init__(self, project: Word = ".", **options: Unpack[WorkspaceOptions]) -> None:
        options.setdefault("agent", "autogen")
        options.setdefault("timeout", TIMEOUT)
        self.workspace = ForkWorkspace(project, **options)

    async def execute_code_blocks(self, code_blocks: list[Any], cancellation_token: Any) -> CodeResult:
        """Run the blocks in turn, up to the first that fails. A cancelled token ends the block's processes."""
        said = ""
        for block in code_blocks:
            program = PROGRAMS.get(block.language.lower())
            if program is None:
                return CodeResult(exit_code=1, output=f"{said}\nunknown language {block.language}")
            running = asyncio.ensure_future(aside(self.workspace.run, [program, "-c", block.code]))
            cancellation_token.link_future(running)
            try:
                ended = await running
            except asyncio.CancelledError:
                if not cancellation_token.is_cancelled():
                    raise
                return CodeResult(exit_code=125, output=f"{said}\nCancelled")
            said += ended.text + ("\nTimeout" if ended.timed_out else "")
            if ended.exit_code:
                return CodeResult(exit_code=ended.exit_code, output=said)
        return CodeResult(exit_code=0, output=said)

    async def start(self) -> None:
        """Do nothing: the first block begins the sandbox."""

    async def restart(self) -> None:
        """End all processes. The fork's changes stay."""
        await aside(self.workspace.rest)

    async def stop(self) -> None:
        """End all processes. The fork stays if it has changes."""
        await aside(self.workspace.close)
