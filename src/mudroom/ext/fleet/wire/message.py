"""Messages on a link between origin and worker. Each is the body of one frame.

A message is a MessagePack array with its fields, decoded into its kind's type. No type name travels, so what arrives is
data. Kinds with raw bodies are ``OBJECTS`` and ``DATA``; their layout is with their readers.

The origin speaks first, with ``OriginHello``. A worker answers ``WorkerHello``, whatever the origin's protocol is, so
that either can name both versions in its refusal.

    origin → worker     OFFER, OBJECTS, ERRAND, ANSWER, FETCH, KEPT, CANCEL, DIALLED
    worker → origin     WANT, READY, ACCEPTED, OUT, ASK, EVENT, OUTCOME, ARCHIVE, DIAL
    both                HELLO, PING, PONG, BYE, DATA, SHUT, ROOM, FAILED

In ``DATA``, ``SHUT`` and ``ROOM`` frames the stream is a connection's number (``Dial.number``).
"""

from __future__ import annotations

from typing import Annotated, NamedTuple, TypeVar

import msgspec

from mudroom.ext.fleet.wire.frame import Frame, LinkError

PROTOCOL = 2
DIGEST = 32
"""Bytes in a digest: BLAKE2b-256."""

HELLO, PING, PONG, BYE, FAILED = 1, 2, 3, 4, 5
OFFER, WANT, OBJECTS, READY = 10, 11, 12, 13
ERRAND, ACCEPTED, OUT, ASK, ANSWER, EVENT, OUTCOME, FETCH, ARCHIVE, KEPT, CANCEL = range(20, 31)
DIAL, DIALLED, DATA, SHUT, ROOM = range(40, 45)

Message = TypeVar("Message")
Connection = Annotated[int, msgspec.Meta(ge=0, lt=1 << 32)]
"""Connection number: the stream in its frames, which has four bytes (``frame.py``)."""


class OriginHello(NamedTuple):
    protocol: int
    mudroom: str
    origin: str
    """Random name for the origin's vault. Other origins' errands are not told."""
    node: str
    """Name that the origin has given to this worker."""
    lease: float
    """Seconds without a frame from the origin, after which the worker ends this link's commands."""


class HeldErrand(NamedTuple):
    """An errand that the worker has from an earlier link."""

    errand: str
    attempt: int
    state: str
    """As in ``ext/fleet/origin/errand_log.py``."""


class WorkerHello(NamedTuple):
    protocol: int
    mudroom: str
    vault_format: int
    arch: str
    kernel: str
    levels: tuple[int, ...]
    """Isolation levels that were tried and work."""
    processors: int
    memory: int
    """Bytes."""
    free_disk: int
    """Bytes."""
    engine: str
    """``local``: commands run on this machine. Otherwise the engine that places them."""
    nodes: tuple[str, ...] = ()
    """Machines behind an engine."""
    held: tuple[HeldErrand, ...] = ()
    gpus: int = 0
    free_memory: int = -1
    """Bytes; -1: it is not known."""


class Ping(NamedTuple):
    """Renews the errands' lease. A worker answers with ``Pong``."""

    number: int


class Pong(NamedTuple):
    number: int
    running: int
    load: float
    free_disk: int
    free_memory: int = -1


class Bye(NamedTuple):
    reason: str


class Failed(NamedTuple):
    """The request on this stream cannot be met; stream 0: a request about the link. The link goes on."""

    reason: str
    hint: str = ""
    about: bytes = b""
    """Digest of the base or object that the failure is about, if any."""
    for_now: bool = False
    """Whether it may be met later: the machine that has what was asked for is gone."""


class Base(NamedTuple):
    """A project as it is sent: the files of a Merkle tree, and the facts that a worker needs about the rest."""

    root: bytes
    """Digest of the root directory's node."""
    project: bytes
    """The project's path at the origin. Commands see it there."""
    home: bytes
    """The home directory's path at the origin. A command's private home is there."""
    masked: tuple[bytes, ...]
    """Secrets' paths, relative to the project: empty files there."""
    excluded: tuple[bytes, ...]
    """Paths that were left out by size or by pattern."""
    umask: int


class OfferedBase(NamedTuple):
    base: Base


class Similar(NamedTuple):
    """A file that the worker wants, by an earlier file at its path."""

    digest: bytes
    """The wanted file's."""
    size: int
    """The earlier file's bytes, like the next two."""
    block: int
    blocks: bytes
    """Each block's digest, one behind the other (``ext/fleet/base/delta.py``)."""


class Want(NamedTuple):
    """An offered base's objects that the worker lacks. Empty lists: none."""

    base: bytes
    """The base's digest (``base_id``)."""
    nodes: tuple[bytes, ...]
    """Directory nodes' digests. Their children are asked for when they are there."""
    files: tuple[bytes, ...]
    similar: tuple[Similar, ...] = ()
    """More files. What the earlier ones have of them need not be sent."""


class Ready(NamedTuple):
    base: bytes
    """The base is complete, and errands on it may start."""


class Errand(NamedTuple):
    """A command to run in a new fork of a base, at most once."""

    errand: str
    """Random name, the same in every attempt."""
    attempt: int
    base: bytes
    argv: tuple[bytes, ...]
    cwd: bytes
    """Relative to the project."""
    variables: tuple[tuple[bytes, bytes], ...]
    """Variables set for the command, beside those of the worker's allowlist."""
    level: int | None
    settings: bytes
    """The origin's settings, MessagePack (``wire/settings.py``). A worker's own can only tighten them."""
    timeout: float
    """Seconds; 0: none."""
    judge: tuple[bytes, ...] = ()
    """Command that runs in a fork of the result."""
    agent: str = ""
    """Agent that the command is judged as; empty: the user's own command."""
    label: str = ""
    """The fork's name at the origin."""
    number: int = 0
    """The attempt's number among several; it is in ``MUDROOM_ATTEMPT``."""
    through_origin: bool = False
    """Connections that the gate allows are made by the origin, which judges them once more (``Dial``). Otherwise they
    leave from the worker."""
    gpus: int = 0
    """GPUs that the command may use. The memory and the processors that it needs are limits in its settings."""


class Accepted(NamedTuple):
    errand: str
    attempt: int


class Out(NamedTuple):
    stream: int
    """1: standard output. 2: standard error."""
    offset: int
    """Bytes of the stream before these, so that what was sent twice is seen once."""
    data: bytes


class Ask(NamedTuple):
    """A question for the user at the origin."""

    number: int
    kind: str
    """``command`` or ``host``."""
    question: bytes
    """``CommandQuestion`` or ``FlowQuestion`` as MessagePack."""


class Answer(NamedTuple):
    number: int
    answer: bytes
    """``CommandAnswer`` or ``FlowAnswer`` as MessagePack. Empty: the question was not answered."""


class EventRow(NamedTuple):
    """A row about this errand in the worker's journal. A claim, not a fact, at the origin."""

    row: bytes
    """JSON."""


class ErrandOutcome(NamedTuple):
    """An errand's end. All fields are the worker's claims."""

    errand: str
    attempt: int
    state: str
    """``ended``, ``refused``, ``failed``, ``cancelled`` or ``expired``."""
    exit_code: int
    signal: int
    """0: none."""
    timed_out: bool
    seconds: float
    cpu: float
    memory: int
    """KiB."""
    added: int
    modified: int
    deleted: int
    fingerprint: str
    archive: int
    """The archive's size in bytes. 0: no change."""
    digest: bytes
    """The archive's digest, BLAKE2b-256."""
    judged: int
    """The judge's exit code; -1: none ran."""
    report: bytes
    """The judge's output, at most 1 MiB."""
    reason: str = ""
    notes: tuple[str, ...] = ()


class Fetch(NamedTuple):
    errand: str
    attempt: int
    offset: int


class ArchivePart(NamedTuple):
    offset: int
    data: bytes
    is_last: bool


class Kept(NamedTuple):
    """The origin has the outcome, and the archive if it wants it. The worker discards the fork."""

    errand: str
    attempt: int


class CancelErrand(NamedTuple):
    errand: str
    attempt: int
    signal: int


class Dial(NamedTuple):
    """A connection that a command's gate asks the origin for. ``DATA`` and ``SHUT`` frames with this number carry it,
    once it is dialled (``tunnel.py``). It comes on the errand's stream."""

    number: Connection
    host: str
    port: int
    flow: bytes
    """Reserved; empty."""
    caller: str = ""
    """The label of the command's fork on the worker. Believed for that worker's forks only."""


class Dialled(NamedTuple):
    number: Connection
    reason: str
    """Empty: it is open."""
    is_refused: bool = False
    """Whether the reason is that the origin does not allow it."""


class MoreRoom(NamedTuple):
    """So many more bytes may be sent on a connection."""

    size: int


FROM_WORKER = {
    HELLO: 1 << 20,
    WANT: 4 << 20,
    OUTCOME: 2 << 20,
    OUT: (1 << 20) + 64,
    ARCHIVE: (1 << 20) + 64,
    EVENT: 1 << 18,
}
"""Bytes in a body from a worker, by kind."""
OTHERS = 1 << 16
"""Bytes in a body from a worker, for any other kind."""

TYPES: dict[int, type] = {
    PING: Ping,
    PONG: Pong,
    BYE: Bye,
    FAILED: Failed,
    OFFER: OfferedBase,
    WANT: Want,
    READY: Ready,
    ERRAND: Errand,
    ACCEPTED: Accepted,
    OUT: Out,
    ASK: Ask,
    ANSWER: Answer,
    EVENT: EventRow,
    OUTCOME: ErrandOutcome,
    FETCH: Fetch,
    ARCHIVE: ArchivePart,
    KEPT: Kept,
    CANCEL: CancelErrand,
    DIAL: Dial,
    DIALLED: Dialled,
    ROOM: MoreRoom,
}


def frame_of(kind: int, message: object, stream: int = 0) -> Frame:
    return Frame(kind, stream, msgspec.msgpack.encode(message))


def message_of(frame: Frame, kind: type[Message]) -> Message:
    """Return a frame's message. Raise LinkError if it does not have this type."""
    try:
        return msgspec.msgpack.decode(frame.body, type=kind)
    except (msgspec.DecodeError, msgspec.ValidationError, RecursionError, UnicodeDecodeError) as error:
        raise LinkError(f"sent a {kind.__name__} that cannot be read: {error}") from error
