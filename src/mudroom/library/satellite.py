"""Values and handles of those calls of a room that satellites answer (``core/registry.py``, kind ``call``): archives,
attempts, tools. They are defined here, so that ``Room`` has their types where a satellite is absent; a satellite makes
them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mudroom.errors import MudroomError
from mudroom.typing import TYPE_CHECKING, Literal, NamedTuple, Protocol, TypeAlias, TypedDict

if TYPE_CHECKING:
    from mudroom.library.argument import CommandLine, StrPath
    from mudroom.sandbox.client.cancellation import Cancellation
    from mudroom.typing import BinaryIO

    ArchivePlace: TypeAlias = StrPath | BinaryIO
    NamedArchive: TypeAlias = ArchivePlace | tuple[str, ArchivePlace]
    ToolFormat: TypeAlias = Literal["openai", "openai-responses", "anthropic", "mcp"]
    Json: TypeAlias = bool | int | float | str | Sequence["Json"] | Mapping[str, "Json"] | None
    JsonObject: TypeAlias = dict[str, Json]

# --- archives ---


class ForkArchive(NamedTuple):
    """A fork that was written as an archive."""

    size: int
    """Bytes."""
    digest: bytes
    """BLAKE2b-256 of these bytes."""
    notes: tuple[str, ...] = ()
    """Files that are not in it, with the reason."""


class ArrivedFork(NamedTuple):
    """The outcome of one archive. ``check`` raises if it was refused."""

    state: Literal["new", "late", "here", "refused"]
    """``here``: the archive had come before; ``late``: another one of its errand had."""
    fork: str
    """Its name, which is another one if the name was taken; empty if it was refused."""
    changed: int = 0
    """Files."""
    strangers: int = 0
    """Changed files whose original is not in this project: conflicts, unless they are resolved."""
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
    """Options of ``Room.attempts``."""

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
    """One attempt, after its end."""

    number: int
    """From 1."""
    fork: str
    """Empty: its command has not run, or has changed nothing."""
    state: AttemptState
    """``passed``, ``failed``, ``ended early``, ``timed out``, ``refused``, ``not started``, ``error``."""
    command: tuple[str, ...]
    exit_code: int
    judged: int | None
    """Exit code of the judge; None: it was not judged."""
    score: float | None
    added: int
    """Files; those of ``parent`` do not count."""
    modified: int
    deleted: int
    lines: int
    """Lines added and removed."""
    seconds: float
    report: str
    """The end of the judge's output, or of the command's if it was not judged."""
    same_as: int
    """Number of the first attempt with the same result; 0: itself."""
    note: str
    of: tuple[int, ...]
    """Numbers of the attempts whose union this is."""

    @property
    def passed(self) -> bool:
        return self.state == "passed"


class TryResult(NamedTuple):
    """The end of all attempts."""

    name: str
    """As ``mudroom try show`` takes it: ``t1``."""
    attempts: tuple[Attempt, ...]
    """Best first."""
    best: Attempt | None
    """None: no attempt has passed."""
    tied: tuple[Attempt, ...]
    """Attempts with another result that are as good as the best but for their number."""
    distinct: int
    """Number of different results."""
    combined: str
    """The fork of a union that is better than each attempt; it is the best then."""
    end: str
    """Reason for which attempts were ended early: ``until``, ``budget``, ``interrupted``, ``judge``; else empty."""
    note: str

    def check(self) -> TryResult:
        """Return this result. Raise NonePassed if no attempt has passed."""
        if self.best is not None:
            return self
        raise NonePassed(f"none of {len(self.attempts)} attempts has passed", f"mudroom try show {self.name}", self)


class AttemptStream(Protocol):
    """Attempts while they run: iterate over them as they end, then take ``result``. Leaving the block, or forgetting
    the stream, ends those that run; the forks stay."""

    cancellation: Cancellation
    """Ends the attempts that run."""

    def __iter__(self) -> AttemptStream: ...

    def __next__(self) -> Attempt: ...

    def __enter__(self) -> AttemptStream: ...

    def __exit__(self, *_error: object) -> None: ...

    @property
    def name(self) -> str:
        """The name of the try, for ``mudroom try show``."""

    @property
    def result(self) -> TryResult:
        """The result. Raise UsageError before the last attempt has ended."""

    def wait(self) -> TryResult:
        """Wait for the end of all attempts, and return the result."""

    def close(self) -> None:
        """End the attempts that run, and wait until their changes are collected. Harmless when repeated."""

    def discard(self, *, everything: bool = False) -> list[str]:
        """Discard the forks of all attempts but the best, and return their names. ``everything``: the best too, and the
        record. Raise UsageError while attempts run."""


# --- tools ---


class ToolReply(NamedTuple):
    """The result of a tool."""

    text: str
    """For the model."""
    data: Mapping[str, Json]
    """For the program: it fits the tool's output schema, unless ``is_error`` is set."""
    is_error: bool


class ToolSet(Protocol):
    """The tools of a fork for a model. Thread-safe. ``definitions`` are new values that the caller may change."""

    names: tuple[str, ...]

    @property
    def fork(self) -> str:
        """The fork's name. Without one given, it is made at the first call."""

    @property
    def definitions(self) -> list[JsonObject]:
        """The tools as the API takes them."""

    def call(self, name: str, arguments: Mapping[str, Json] | str | None = None) -> ToolReply:
        """Call a tool. ``arguments``: an object, or its JSON text. What a model has sent wrongly is a reply, too; an
        exception is a failure of the caller's, such as a room that is closed."""

    def reply(self, call: object) -> JsonObject:
        """Answer a model's call, as its API or its Python client gives it, with a message for that API."""
