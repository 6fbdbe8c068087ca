"""Values and handles for the room's calls that satellites implement (``core/registry.py``, kind ``call``): archives,
attempts, tools. They are defined here, so that ``Room`` has their types where a satellite is absent. The satellite
creates them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mudroom.errors import MudroomError
from mudroom.typing import TYPE_CHECKING, BinaryIO, Literal, NamedTuple, Protocol, TypeAlias, TypedDict

if TYPE_CHECKING:
    from mudroom.library.argument import CommandLine, StrPath
    from mudroom.sandbox.client.cancellation import Cancellation

    ArchivePlace: TypeAlias = StrPath | BinaryIO
    NamedArchive: TypeAlias = ArchivePlace | tuple[str, ArchivePlace]
    ToolFormat: TypeAlias = Literal["openai", "openai-responses", "anthropic", "mcp"]
    Json: TypeAlias = bool | int | float | str | Sequence["Json"] | Mapping[str, "Json"] | None
    JsonObject: TypeAlias = dict[str, Json]

# --- archives ---


class ForkArchive(NamedTuple):
    """A fork written as an archive."""

    size: int
    """Bytes."""
    digest: bytes
    """BLAKE2b-256 of the archive's bytes."""
    notes: tuple[str, ...] = ()
    """Files left out, with the reason."""


class ArrivedFork(NamedTuple):
    """Outcome for one archive. ``check`` raises if it was refused."""

    state: Literal["new", "late", "here", "refused"]
    """``here``: the archive had arrived before. ``late``: another archive of the same errand had."""
    fork: str
    """Its name, changed if the original name was taken; empty if it was refused."""
    changed: int = 0
    """Files."""
    strangers: int = 0
    """Changed files whose original is not in this project. They are conflicts until resolved."""
    problem: str = ""
    """Why it was refused."""
    hint: str = ""

    @property
    def ok(self) -> bool:
        return self.state != "refused"

    def check(self) -> ArrivedFork:
        """Return self. Raise MudroomError if the archive was refused."""
        if self.ok:
            return self
        raise MudroomError(self.problem, self.hint)


# --- attempts ---

AttemptState = Literal[
    "running", "passed", "failed", "ended early", "timed out", "refused", "not started", "error", "interrupted"
]
"""``error``: mudroom could not run it or collect its changes. ``interrupted``: mudroom was killed while it ran."""
Score = Literal["exit", "json", "-lines"]


class AttemptOptions(TypedDict, total=False):
    """Options for ``Room.attempts``."""

    commands: Sequence[CommandLine]
    judge: CommandLine | None
    score: Score
    jobs: int | None
    until: int | None
    budget: float | None
    parent: str | None
    at: str | None
    combine: bool
    cwd: StrPath | None
    timeout: float | None
    env: Mapping[str, str] | None


class NonePassed(MudroomError):
    """Raised by ``TryResult.check``."""

    def __init__(self, message: str, hint: str, result: TryResult) -> None:
        super().__init__(message, hint)
        self.result = result
        self.exit_code = 1


class Attempt(NamedTuple):
    """One attempt, after it has ended."""

    number: int
    """From 1."""
    fork: str
    """Empty if its command has not run, or has changed no files."""
    state: AttemptState
    """``passed``, ``failed``, ``ended early``, ``timed out``, ``refused``, ``not started``, ``error``."""
    command: tuple[str, ...]
    exit_code: int
    judged: int | None
    """The judge's exit code, or None if it was not judged."""
    score: float | None
    added: int
    """Files. Changes from ``parent`` do not count."""
    modified: int
    deleted: int
    lines: int
    """Lines added and removed."""
    seconds: float
    report: str
    """Tail of the judge's output, or of the command's if it was not judged."""
    same_as: int
    """Number of the first attempt with the same result, or 0 if this is the first."""
    note: str
    of: tuple[int, ...]
    """Numbers of the united attempts, if this is a union."""

    @property
    def passed(self) -> bool:
        return self.state == "passed"


class TryResult(NamedTuple):
    """Result of all attempts."""

    name: str
    """For ``mudroom try show``: ``t1``."""
    attempts: tuple[Attempt, ...]
    """Best first."""
    best: Attempt | None
    """None if no attempt has passed."""
    tied: tuple[Attempt, ...]
    """Attempts with another result that are as good as the best, except for their number."""
    distinct: int
    """Number of different results."""
    combined: str
    """The fork of a union that is better than every attempt; it is then the best."""
    end: str
    """Why attempts were ended early: ``until``, ``budget``, ``interrupted``, ``judge``; otherwise empty."""
    note: str

    def check(self) -> TryResult:
        """Return self. Raise NonePassed if no attempt has passed."""
        if self.best is not None:
            return self
        raise NonePassed(f"none of {len(self.attempts)} attempts has passed", f"mudroom try show {self.name}", self)


class AttemptStream(Protocol):
    """Running attempts: iterate over them as they end, then take ``result``. Leaving the block, or forgetting the
    stream, ends the running ones; the forks stay."""

    cancellation: Cancellation
    """Ends the running attempts."""

    def __iter__(self) -> AttemptStream: ...

    def __next__(self) -> Attempt: ...

    def __enter__(self) -> AttemptStream: ...

    def __exit__(self, *_error: object) -> None: ...

    @property
    def name(self) -> str:
        """The try's name, for ``mudroom try show``."""

    @property
    def result(self) -> TryResult:
        """The result. Raise UsageError before the last attempt has ended."""

    def wait(self) -> TryResult:
        """Wait until all attempts have ended, and return the result."""

    def close(self) -> None:
        """End the running attempts, and wait until their changes are collected. Harmless when repeated."""

    def discard(self, *, everything: bool = False) -> list[str]:
        """Discard all attempts' forks but the best, and return their names. ``everything``: the best too, and the
        record. Raise UsageError while attempts run."""


# --- tools ---


class ToolReply(NamedTuple):
    """A tool's result."""

    text: str
    """For the model."""
    data: Mapping[str, Json]
    """For the program. Matches the tool's output schema, unless ``is_error`` is set."""
    is_error: bool


class ToolSet(Protocol):
    """A fork's tools for a model. Thread-safe. ``definitions`` are new values that the caller may change."""

    names: tuple[str, ...]

    @property
    def fork(self) -> str:
        """The fork's name. If none was given, the fork is created at the first call."""

    @property
    def definitions(self) -> list[JsonObject]:
        """The tools in the API's format."""

    def call(self, name: str, arguments: Mapping[str, Json] | str | None = None) -> ToolReply:
        """Call a tool. ``arguments``: an object, or its JSON text. A model's mistake gives a reply, too. An exception
        is the caller's error, such as a closed room."""

    def reply(self, call: object) -> JsonObject:
        """Answer a model's call, as its API or its Python client gives it, with a message for that API."""
