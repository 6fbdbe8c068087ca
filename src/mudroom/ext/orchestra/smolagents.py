"""mudroom as the executor of smolagents' ``CodeAgent``.

    executor = MudroomExecutor("proj")
    agent = CodeAgent(tools=[], model=…, executor=executor)
    agent.run("…")
    print(executor.workspace.diff())

The code runs in the interpreter of this process (``python``), whose packages the sandbox can read.
"""

from __future__ import annotations

import sys

from mudroom.ext.orchestra.kernel import PythonKernel
from mudroom.ext.orchestra.vendor import vendor
from mudroom.ext.orchestra.workspace import ForkWorkspace
from mudroom.typing import TYPE_CHECKING, Any, Unpack

with vendor("smolagents"):
    from smolagents.local_python_executor import CodeOutput
    from smolagents.monitoring import AgentLogger, LogLevel
    from smolagents.remote_executors import RemotePythonExecutor
    from smolagents.utils import AgentExecutionError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mudroom.ext.orchestra.workspace import WorkspaceOptions
    from mudroom.library.argument import Word

TIMEOUT = 120.0
"""Seconds for one piece of code, unless ``timeout`` is given."""
PRESENT = "import importlib.metadata, sys; importlib.metadata.distribution(sys.argv[1])"


class MudroomExecutor(RemotePythonExecutor):
    """``additional_imports``: packages to install in the sandbox, through the policy's network. ``options``: as for
    ``ForkWorkspace``. Objects cross the border as JSON, never as pickles."""

    def __init__(
        self,
        project: Word = ".",
        additional_imports: Sequence[str] = (),
        logger: Any = None,
        *,
        python: str = sys.executable,
        **options: Unpack[WorkspaceOptions],
    ) -> None:
        super().__init__(list(additional_imports), logger or AgentLogger(level=LogLevel.ERROR))
        if python == sys.executable:
            options["read"] = [*options.get("read", ()), *{sys.prefix, sys.base_prefix}]
        options.setdefault("agent", "smolagents")
        options.setdefault("timeout", TIMEOUT)
        self.workspace = ForkWorkspace(project, **options)
        self._python = python
        self.kernel = PythonKernel(self.workspace, python)
        self.installed_packages = self.install_packages(self.additional_imports)

    def run_code_raise_errors(self, code: str) -> CodeOutput:
        """Raise AgentExecutionError if the code fails."""
        result = self.kernel.run(code)
        logs = result.stdout + result.stderr
        if result.error is None:
            return CodeOutput(output=result.value, logs=logs, is_final_answer=False)
        name, value, trace = result.error
        if name == self.FINAL_ANSWER_EXCEPTION:
            return CodeOutput(self._deserialize_final_answer(value), logs=logs, is_final_answer=True)
        raise AgentExecutionError(f"{logs}\n{trace}", self.logger)

    def install_packages(self, additional_imports: list[str]) -> list[str]:
        """Install the packages that are absent. A failure is logged: the code then cannot import them."""
        absent = [
            name for name in additional_imports if self.workspace.run([self._python, "-c", PRESENT, name]).exit_code
        ]
        if absent:
            ended = self.workspace.run([self._python, "-m", "pip", "install", "--retries", "0", *absent])
            self.logger.log(ended.text, level=LogLevel.ERROR if ended.exit_code else LogLevel.INFO)
        return additional_imports

    def cleanup(self) -> None:
        """End the interpreter and all commands. The fork stays if it has changes."""
        self.workspace.close()
