"""A room's commands: run, stream, start. The arguments are explained in ``Room`` and ``ForkHandle``."""

from __future__ import annotations

import os
from collections.abc import Mapping

from mudroom.core.system.closing import ClosedOnError
from mudroom.errors import Refused, UsageError
from mudroom.library.argument import name_of, seconds_of, variables_of, words_of
from mudroom.library.life import Life, own_cancellation
from mudroom.library.value import RunResult, run_result
from mudroom.sandbox.client.cancellation import Cancellation
from mudroom.session.order import CAPTURED
from mudroom.typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from mudroom.library.argument import CommandLine, StrPath
    from mudroom.library.background_handle import BackgroundHandle
    from mudroom.library.output import OnOutput, OutputStream
    from mudroom.session import Actor, Session


class CommandRequest(NamedTuple):
    """A command's checked arguments."""

    words: tuple[bytes, ...]
    fork: str | None
    cwd: bytes
    timeout: float | None
    input: bytes | None
    variables: tuple[bytes, ...]


def requested(
    life: Life,
    command: CommandLine,
    fork: str | None,
    cwd: StrPath | None,
    timeout: float | None,
    input: str | bytes | None,  # noqa: A002
    env: Mapping[str, str] | None,
) -> CommandRequest:
    """Raise UsageError if an argument is not valid."""
    return CommandRequest(
        words_of(command),
        name_of(fork),
        directory_in(life.project, cwd),
        seconds_of(timeout),
        _input_of(input),
        tuple(name + b"=" + value for name, value in variables_of(env or {}, "env")),
    )


def run(
    life: Life,
    request: CommandRequest,
    on_output: OnOutput | None = None,
    *,
    check: bool = False,
    cancellation: Cancellation | None = None,
) -> RunResult:
    cancellation = cancellation or own_cancellation()
    listener = None
    if on_output is not None:
        from mudroom.library.output import OutputListener

        listener = OutputListener(on_output, cancellation)
    stdin = None if request.input is None else _descriptor_with(request.input)
    try:
        stdio = CAPTURED._replace(stdin=stdin, on_output=listener.hear if listener is not None else None)
        with life.call(cancellation) as session:
            done = session.run(
                request.words,
                fork=request.fork,
                cwd=request.cwd,
                stdio=stdio,
                timeout=request.timeout,
                actor=_with_variables(session, request.variables),
                approver=life.approver(cancellation),
                cancellation=cancellation,
            )
    finally:
        cancellation.close()
        if stdin is not None:
            os.close(stdin)
        if listener is not None:
            listener.end()
    result = run_result(done)
    return result.check() if check else result


def stream(life: Life, request: CommandRequest) -> OutputStream:
    from mudroom.library.output import OutputStream

    cancellation = Cancellation()
    with life.call():  # a closed room refuses here, not in the stream's thread
        return OutputStream(lambda on_output: run(life, request, on_output, cancellation=cancellation), cancellation)


def start(life: Life, request: CommandRequest) -> BackgroundHandle:
    from mudroom.library.background_handle import BackgroundHandle

    with life.call() as session:
        background = session.start(
            request.words,
            fork=request.fork,
            cwd=request.cwd,
            timeout=request.timeout,
            actor=_with_variables(session, request.variables),
        )
    if background.refused is not None:
        verdict = background.refused.verdict
        raise Refused(f"the command was refused: {verdict.reason} ({verdict.rule})", verdict.instead)
    return BackgroundHandle(life, background)


def directory_in(project: bytes, cwd: StrPath | None) -> bytes:
    """Return a working directory in the project. Raise UsageError if ``cwd`` lies outside."""
    if cwd is None:
        return project
    place = os.path.normpath(os.path.join(project, os.fsencode(cwd)))
    if place != project and not place.startswith(project.rstrip(b"/") + b"/"):
        raise UsageError(f"cwd is {os.fspath(cwd)!r}, which is not in the project", 'cwd is relative to it: cwd="src"')
    return place


def _input_of(content: str | bytes | None) -> bytes | None:
    if content is None or isinstance(content, bytes):
        return content
    if not isinstance(content, str):
        raise UsageError(f"input is {type(content).__name__}, not a text or bytes", 'input="yes\\n"')
    return content.encode("utf-8", "surrogateescape")


def _descriptor_with(content: bytes) -> int:
    """Return a descriptor, positioned at the start, from which the command's input is read."""
    from mudroom.core.system.write_all import write_all

    descriptor = _temporary()
    with ClosedOnError(descriptor):
        write_all(descriptor, content)
        os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


def _temporary() -> int:
    """Return an unnamed file, in memory where the system supports it (memfd_create(2))."""
    create = getattr(os, "memfd_create", None)
    if create is not None:
        descriptor: int = create("mudroom-input")
        return descriptor
    from tempfile import TemporaryFile

    with TemporaryFile() as file:
        return os.dup(file.fileno())


def _with_variables(session: Session, variables: tuple[bytes, ...]) -> Actor | None:
    """Return the session's actor with these variables added, or None if there are none."""
    if not variables:
        return None
    settings = session.actor.settings
    return session.actor._replace(settings=settings._replace(environment=(*settings.environment, *variables)))
