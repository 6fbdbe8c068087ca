"""mudroom as a sandbox environment of inspect-ai: ``Task(sandbox=("mudroom", "proj"))``.

    from mudroom.ext.orchestra import inspect_ai  # registers the name

The configuration is the project's directory, or a mapping with the arguments of ``ForkWorkspace``. Without one each
sample begins in an empty project. A sample works in a new fork, which is discarded after it; with ``keep: true`` it
stays for ``mudroom diff``. The event loop is that of asyncio.
"""

from __future__ import annotations

import errno
import tempfile

from mudroom.errors import FileError
from mudroom.ext.orchestra.vendor import vendor
from mudroom.ext.orchestra.workspace import NOT_EXECUTABLE, ForkWorkspace, aside
from mudroom.typing import Any

with vendor("inspect-ai"):
    from inspect_ai.util import (
        ExecResult,
        OutputLimitExceededError,
        SandboxEnvironment,
        SandboxEnvironmentLimits,
        SandboxUserUnsupportedError,
        sandboxenv,
    )
    from pydantic import BaseModel


class MudroomSandboxConfig(BaseModel, extra="allow"):
    """The configuration as a mapping. Further fields are arguments of ``ForkWorkspace``."""

    keep: bool = False

    def __hash__(self) -> int:
        return hash(self.model_dump_json())


@sandboxenv(name="mudroom")
class MudroomSandboxEnvironment(SandboxEnvironment):
    """One sample's workspace."""

    def __init__(
        self, workspace: ForkWorkspace, *, keep: bool = False, made: tempfile.TemporaryDirectory[str] | None = None
    ):
        """``keep``: the fork stays after the sample. ``made``: the empty project."""
        super().__init__()
        self.workspace, self._keep, self._made = workspace, keep, made

    @classmethod
    async def sample_init(cls, task_name: str, config: Any, metadata: dict[str, str]) -> dict[str, SandboxEnvironment]:
        options: dict[str, Any] = {"project": config} if isinstance(config, str) else dict(config or {})
        keep = options.pop("keep", False)
        made = None if "project" in options else tempfile.TemporaryDirectory(prefix="mudroom-inspect-")
        if made is not None:
            options["project"] = made.name
        options.setdefault("agent", "inspect")
        return {"default": cls(await aside(ForkWorkspace, **options), keep=keep, made=made)}

    @classmethod
    async def sample_cleanup(
        cls, task_name: str, config: Any, environments: dict[str, SandboxEnvironment], interrupted: bool
    ) -> None:
        for environment in environments.values():
            await environment.as_type(cls).close()

    @classmethod
    def config_deserialize(cls, config: dict[str, Any]) -> MudroomSandboxConfig:
        return MudroomSandboxConfig(**config)

    async def close(self) -> None:
        await aside(self.workspace.close if self._keep else self.workspace.discard)
        if self._made is not None:
            self._made.cleanup()

    async def exec(
        self,
        cmd: list[str],
        input: str | bytes | None = None,  # noqa: A002
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        user: str | None = None,
        timeout: int | None = None,
        timeout_retry: bool = True,
        concurrency: bool = True,
    ) -> ExecResult[str]:
        """A timed out command is not tried again: it may have done half of its work. An exec as another user than the
        sandbox's is refused. A command that the policy refuses has the exit code 126, and the reason on stderr."""
        if user is not None:
            raise SandboxUserUnsupportedError(f"mudroom runs commands as the user of this process, not as {user!r}")
        limit = SandboxEnvironmentLimits.MAX_EXEC_OUTPUT_SIZE
        ended = await aside(self.workspace.run, cmd, cwd=cwd, env=env, timeout=timeout, input=input, limit=limit)
        if ended.timed_out:
            raise TimeoutError(f"Command timed out after {timeout} seconds")
        if not ended.started and ended.exit_code == NOT_EXECUTABLE and not ended.refused:
            raise PermissionError(errno.EACCES, "Permission denied", cmd[0])
        out, err = (text.decode("utf-8", "replace") for text in (ended.stdout, ended.stderr))
        if ended.truncated:
            raise OutputLimitExceededError(SandboxEnvironmentLimits.MAX_EXEC_OUTPUT_SIZE_STR, out)
        return ExecResult(ended.exit_code == 0, ended.exit_code, out, err)

    async def write_file(self, file: str, contents: str | bytes) -> None:
        await aside(self.workspace.write, file, contents)

    async def read_file(self, file: str, text: bool = True) -> Any:
        """Return str or, without ``text``, bytes."""
        try:
            content = await aside(self.workspace.read, file, SandboxEnvironmentLimits.MAX_READ_FILE_SIZE)
        except FileError as error:
            if error.errno != errno.EFBIG:
                raise
            raise OutputLimitExceededError(SandboxEnvironmentLimits.MAX_READ_FILE_SIZE_STR, None) from error
        return content.decode("utf-8") if text else content
