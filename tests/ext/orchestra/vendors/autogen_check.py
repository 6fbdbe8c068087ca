"""Run by test_vendors.py where autogen-core and autogen-ext are installed: AutoGen's tool, the cases of its tests."""

from __future__ import annotations

import asyncio
from pathlib import Path

from autogen_core import CancellationToken
from autogen_core.code_executor import CodeBlock
from autogen_ext.tools.code_execution import PythonCodeExecutionTool
from vendor_project import run_of_page

from mudroom.ext.orchestra.autogen import MudroomCodeExecutor


async def test_a_tool_writes_in_a_fork(project: Path) -> None:
    async with MudroomCodeExecutor(project) as executor:
        tool = PythonCodeExecutionTool(executor)
        code = "open('answer', 'w').write('42'); print(open('.env').read(), 6 * 7)"
        result = await tool.run_json({"code": code}, CancellationToken())
        assert (result.success, result.output) == (True, " 42\n")
        assert not (project / "answer").exists()
        assert executor.workspace.apply().ok
    assert (project / "answer").read_text() == "42"


async def test_how_blocks_end(project: Path) -> None:
    async with MudroomCodeExecutor(project, timeout=2) as executor:

        async def run(*blocks: tuple[str, str], token: CancellationToken | None = None) -> tuple[int, str]:
            words = [CodeBlock(code=code, language=language) for language, code in blocks]
            result = await executor.execute_code_blocks(words, token or CancellationToken())
            return result.exit_code, result.output

        assert await run(("python", "import sys; print('hello world!')"), ("sh", "echo 2")) == (0, "hello world!\n2\n")
        assert await run(("bash", "echo 1; exit 3"), ("sh", "echo 2")) == (3, "1\n")
        assert await run(("cobol", "x")) == (1, "\nunknown language cobol")
        assert await run(("sh", "sleep 60 & sleep 61")) == (124, "\nTimeout")
        assert (await run(("sh", "sudo ls")))[0] == 126
        token = CancellationToken()
        running = asyncio.create_task(run(("sh", "touch /tmp/up; sleep 62"), token=token))
        while (await run(("sh", "test -e /tmp/up")))[0]:
            pass
        token.cancel()
        assert await running == (125, "\nCancelled")
        assert "sleep 6" not in (await run(("sh", "ps ax | grep -v ps")))[1]
        await executor.restart()
        assert (await run(("sh", "test -e /tmp/up")))[0] == 1


async def test_the_page(project: Path) -> None:
    names = run_of_page("AutoGen", project, CodeBlock=CodeBlock, CancellationToken=CancellationToken)
    assert "+42" in await names["main"]()
