"""mudroom as a sandbox back end of LangChain's deepagents.

    with MudroomSandbox("proj") as sandbox:
        agent = create_deep_agent(model=…, backend=sandbox)
        agent.invoke({"messages": […]})
        print(sandbox.workspace.diff())

The agent's paths are absolute; ``sandbox.workspace.root`` is the project.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from mudroom.ext.orchestra.vendor import vendor
from mudroom.ext.orchestra.workspace import ForkWorkspace, aside
from mudroom.typing import TYPE_CHECKING, Any, Unpack

with vendor("deepagents"):
    from deepagents.backends.protocol import ExecuteResponse, FileDownloadResponse, FileUploadResponse
    from deepagents.backends.sandbox import BaseSandbox

if TYPE_CHECKING:
    from mudroom.ext.orchestra.workspace import WorkspaceOptions
    from mudroom.library.argument import Word

TIMEOUT = 120
"""Seconds for a command without a time limit of its own, as in deepagents' local shell."""

CODES = (
    (FileNotFoundError, "file_not_found"),
    (PermissionError, "permission_denied"),
    (IsADirectoryError, "is_directory"),
    (NotADirectoryError, "invalid_path"),
)


class MudroomSandbox(BaseSandbox):
    """Arguments are those of ``ForkWorkspace``. The inherited file operations are commands in the sandbox."""

    def __init__(self, project: Word = ".", **options: Unpack[WorkspaceOptions]) -> None:
        self.workspace = ForkWorkspace(project, **options)

    def __enter__(self) -> MudroomSandbox:
        return self

    def __exit__(self, *_error: object) -> None:
        self.workspace.close()

    @property
    def id(self) -> str:
        return self.workspace.fork.name

    def execute(self, command: str, *, timeout: int | None = None) -> ExecuteResponse:
        ended = self.workspace.run(command, timeout=TIMEOUT if timeout is None else timeout)
        said = "\nthe command ran out of time" if ended.timed_out else ""
        return ExecuteResponse(output=ended.text + said, exit_code=ended.exit_code, truncated=ended.truncated)

    async def aexecute(self, command: str, *, timeout: int | None = None) -> ExecuteResponse:
        """Cancelling the task ends the command."""
        return await aside(self.execute, command, timeout=timeout)

    def upload_files(self, files: list[tuple[str, bytes]]) -> list[FileUploadResponse]:
        responses = []
        for path, content in files:
            with _file(FileUploadResponse(path=path)) as response:
                self.workspace.write(_absolute(path), content)
            responses.append(response)
        return responses

    def download_files(self, paths: list[str]) -> list[FileDownloadResponse]:
        responses = []
        for path in paths:
            with _file(FileDownloadResponse(path=path)) as response:
                response.content = self.workspace.read(_absolute(path))
            responses.append(response)
        return responses


def _absolute(path: str) -> str:
    if not path.startswith("/"):
        raise NotADirectoryError(path)
    return path


@contextmanager
def _file(response: Any) -> Iterator[Any]:
    """Yield the response. An error in the block becomes deepagents' code for it, or a text."""
    try:
        yield response
    except OSError as error:
        response.error = next((code for kind, code in CODES if isinstance(error, kind)), str(error))
