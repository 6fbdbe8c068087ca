"""mudroom as a sandbox client of the OpenAI Agents SDK.

    client = MudroomSandboxClient("proj")
    result = await Runner.run(agent, "…", run_config=RunConfig(sandbox=SandboxRunConfig(client=client)))
    with mudroom.open("proj") as room:
        print(room.diff(client.forks[-1]))

The workspace's root is the project, and a manifest's files are written to the fork. The fork is a session's lasting
state: the runner's default snapshot, a copy of the whole workspace, is not taken. The event loop is that of asyncio.
"""

from __future__ import annotations

import io
import uuid
from pathlib import Path

from mudroom.errors import FileError, MudroomError
from mudroom.ext.orchestra.vendor import vendor
from mudroom.ext.orchestra.workspace import ForkWorkspace, aside
from mudroom.typing import TYPE_CHECKING, Any, Literal, Unpack, cast

with vendor("openai-agents"):
    from agents.sandbox.errors import (
        ExecTimeoutError,
        ExecTransportError,
        WorkspaceArchiveReadError,
        WorkspaceArchiveWriteError,
        WorkspaceReadNotFoundError,
    )
    from agents.sandbox.manifest import Manifest
    from agents.sandbox.session import SandboxSession, SandboxSessionState
    from agents.sandbox.session.base_sandbox_session import BaseSandboxSession
    from agents.sandbox.session.sandbox_client import BaseSandboxClient, BaseSandboxClientOptions
    from agents.sandbox.session.workspace_payloads import coerce_write_payload
    from agents.sandbox.snapshot import LocalSnapshotSpec, resolve_snapshot
    from agents.sandbox.snapshot_defaults import default_local_snapshot_base_dir
    from agents.sandbox.types import ExecResult

if TYPE_CHECKING:
    from mudroom.ext.orchestra.workspace import WorkspaceOptions
    from mudroom.library.argument import Word

ARCHIVE = 4 << 30
"""Bytes of the largest snapshot."""


class MudroomSandboxClientOptions(BaseSandboxClientOptions):
    """``fork``: the fork in which the session works. None: a new one."""

    type: Literal["mudroom"] = "mudroom"
    fork: str | None = None


class MudroomSandboxSessionState(SandboxSessionState):
    type: Literal["mudroom"] = "mudroom"
    fork: str


class MudroomSandboxSession(BaseSandboxSession):
    def __init__(self, state: MudroomSandboxSessionState, workspace: ForkWorkspace) -> None:
        self.state, self.workspace = state, workspace

    async def _exec_internal(self, *command: str | Path, timeout: float | None = None) -> ExecResult:
        try:
            ended = await aside(self.workspace.run, [str(word) for word in command], timeout=timeout)
        except MudroomError as error:
            raise ExecTransportError(command=command, cause=error, message=str(error)) from error
        if ended.timed_out:
            raise ExecTimeoutError(command=command, timeout_s=timeout)
        return ExecResult(stdout=ended.stdout, stderr=ended.stderr, exit_code=ended.exit_code)

    async def read(self, path: Path, *, user: Any = None) -> io.IOBase:
        if user is not None:
            await self._check_read_with_exec(path, user=user)
        try:
            return io.BytesIO(await aside(self.workspace.read, self.normalize_path(path)))
        except FileNotFoundError as error:
            raise WorkspaceReadNotFoundError(path=path, cause=error) from error
        except FileError as error:
            raise WorkspaceArchiveReadError(path=path, cause=error) from error

    async def write(self, path: Path, data: io.IOBase, *, user: Any = None) -> None:
        if user is not None:
            await self._check_write_with_exec(path, user=user)
        content = coerce_write_payload(path=path, data=data).stream.read()
        try:
            await aside(self.workspace.write, self.normalize_path(path, for_write=True), content)
        except FileError as error:
            raise WorkspaceArchiveWriteError(path=path, cause=error, message=error.message) from error

    async def running(self) -> bool:
        return not self.workspace.room.is_closed

    async def persist_workspace(self) -> io.IOBase:
        """Return a tar archive of the fork's files. Secrets are in it as the sandbox sees them: empty."""
        skipped = [f"--exclude=./{path}" for path in self._persist_workspace_skip_relpaths()]
        command = ["tar", "--create", *skipped, "."]
        ended = await aside(self.workspace.run, command, cwd=self.workspace.root, limit=ARCHIVE)
        if ended.exit_code or ended.truncated:
            raise WorkspaceArchiveReadError(path=Path(self.workspace.root), context={"stderr": ended.stderr.decode()})
        return io.BytesIO(ended.stdout)

    async def hydrate_workspace(self, data: io.IOBase) -> None:
        """Extract a tar archive in the sandbox, where it can do what any command can."""
        root = self.workspace.root
        content = coerce_write_payload(path=Path(root), data=data).stream.read()
        ended = await aside(self.workspace.run, ["tar", "--extract"], cwd=root, input=content)
        if ended.exit_code:
            raise WorkspaceArchiveWriteError(
                path=Path(root), context={"stderr": ended.stderr.decode("utf-8", "replace")}
            )

    async def _shutdown_backend(self) -> None:
        await aside(self.workspace.rest)


class MudroomSandboxClient(BaseSandboxClient[MudroomSandboxClientOptions | None]):
    """Arguments are those of ``ForkWorkspace``, but ``fork``, which is an option of each session."""

    backend_id = "mudroom"
    supports_default_options = True

    def __init__(self, project: Word = ".", **options: Unpack[WorkspaceOptions]) -> None:
        self._project, self._options = project, options
        options.setdefault("agent", "openai-agents")
        self.forks: list[str] = []
        """Names of the sessions' forks."""

    async def create(
        self,
        *,
        snapshot: Any = None,
        manifest: Manifest | None = None,
        options: MudroomSandboxClientOptions | None = None,
    ) -> SandboxSession:
        manifest = self._validate_manifest_for_create(manifest or Manifest())
        workspace = await self._workspace(options.fork if options is not None else None, manifest)
        if manifest.root not in (Manifest().root, workspace.root):
            await aside(workspace.close)
            raise ValueError(f"the manifest's root is {manifest.root}; mudroom's is the project: leave it out")
        if isinstance(snapshot, LocalSnapshotSpec) and Path(snapshot.base_path) == default_local_snapshot_base_dir():
            snapshot = None
        identity = uuid.uuid4()
        state = MudroomSandboxSessionState(
            session_id=identity,
            manifest=manifest.model_copy(update={"root": workspace.root}, deep=True),
            snapshot=resolve_snapshot(snapshot, str(identity)),
            fork=workspace.fork.name,
        )
        return self._wrap_session(MudroomSandboxSession(state, workspace))

    async def resume(self, state: SandboxSessionState) -> SandboxSession:
        """Open the session's fork again, or a new fork of its name."""
        if not isinstance(state, MudroomSandboxSessionState):
            raise TypeError(f"the state is of {state.type}, not of mudroom")
        state.assert_path_grants_rebound()
        inner = MudroomSandboxSession(state, await self._workspace(state.fork, state.manifest))
        inner._set_start_state_preserved(bool(inner.workspace.changes()))
        return self._wrap_session(inner)

    async def delete(self, session: SandboxSession) -> SandboxSession:
        """End the session's commands. Its fork stays, for review."""
        await aside(self.workspace(session).close)
        return session

    def workspace(self, session: SandboxSession) -> ForkWorkspace:
        """Return a session's workspace, to review and apply its fork."""
        return cast("MudroomSandboxSession", session._inner).workspace

    def deserialize_session_state(self, payload: dict[str, object]) -> SandboxSessionState:
        return self._deserialize_session_state_payload(payload, MudroomSandboxSessionState)

    async def _workspace(self, fork: str | None, manifest: Manifest) -> ForkWorkspace:
        options = self._options.copy()
        options["fork"], options["env"] = fork, {**(options.get("env") or {}), **await manifest.environment.resolve()}
        workspace = await aside(ForkWorkspace, self._project, **options)
        self.forks.append(workspace.fork.name)
        return workspace
