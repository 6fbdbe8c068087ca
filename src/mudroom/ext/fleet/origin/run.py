"""A run on a fleet's workers, for front doors: put together, followed, resumed.

    with begin(session, request, workers, front_end) as run:
        for settled in run.settled():
            print(settled.row.state, settled.row.fork)

Nothing lands in the project: forks come back.
"""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

from mudroom import __version__
from mudroom.core.command.policy import CommandRule, matches
from mudroom.core.command.program.classification import classify_words
from mudroom.core.network.flow import flow_to_json
from mudroom.core.network.fork_host import label_of
from mudroom.core.network.fork_rule import ForkIdentity
from mudroom.core.settings import Settings
from mudroom.core.system.closing import ClosedOnError
from mudroom.core.text.redaction import redact_argv
from mudroom.errors import UsageError
from mudroom.ext.fleet.base.delta import packs_for
from mudroom.ext.fleet.base.manifest import base_id
from mudroom.ext.fleet.base.scan import Scanned, ScannedObjects, scan
from mudroom.ext.fleet.origin.archive_import import ForkImporter
from mudroom.ext.fleet.origin.connection_proxy import ConnectionProxy
from mudroom.ext.fleet.origin.dispatcher import Dispatcher
from mudroom.ext.fleet.origin.errand_log import AttemptRow, ErrandLog, ErrandRow, RunRow
from mudroom.ext.fleet.origin.fleet_event import ErrandOutput, ErrandSettled, FleetEvent, WorkerNote
from mudroom.ext.fleet.origin.inbox import LinkInbox
from mudroom.ext.fleet.origin.link import OriginLink, Transport
from mudroom.ext.fleet.origin.output import Outputs
from mudroom.ext.fleet.origin.question import QueuedQuestions
from mudroom.ext.fleet.origin.services import RunServices
from mudroom.ext.fleet.origin.worker_registry import FleetWorker
from mudroom.ext.fleet.origin.worker_session import Key, WorkerRequirements, WorkerSession
from mudroom.ext.fleet.wire.frame import Frame, LinkError
from mudroom.ext.fleet.wire.message import OBJECTS, PROTOCOL, Errand, OriginHello, Want
from mudroom.ext.fleet.wire.settings import encode
from mudroom.ext.inspection.foreign_credential import find_foreign
from mudroom.ext.transfer.vault.import_fork import LIMIT
from mudroom.sandbox.host.host import umask
from mudroom.session.confinement.command_gate import upstream_of
from mudroom.session.confinement.dialler import fork_links
from mudroom.session.session import Session
from mudroom.typing import NamedTuple
from mudroom.vault.record import FORMAT


class ScannedPayload:
    """A run's base, scanned once, and its objects as a worker asks for them. The links' threads read it; it is not
    changed."""

    def __init__(self, scanned: Scanned) -> None:
        self._scanned = scanned
        self.base = scanned.base
        self.identity = base_id(scanned.base)

    def frames(self, want: Want) -> Iterator[Frame]:
        """Return frames with the objects that are asked for. Raise LinkError if the base has no such object: a worker
        must not learn which other files there are. The iterator raises BaseChanged if the project has changed."""
        scanned = self._scanned
        if not all(digest in scanned.nodes for digest in want.nodes):
            raise LinkError("asked for a directory that is not in the base")
        if not all(digest in scanned.files for digest in (*want.files, *(file.digest for file in want.similar))):
            raise LinkError("asked for a file that is not in the base")
        return self._read(want)

    def _read(self, want: Want) -> Iterator[Frame]:
        with ScannedObjects(self._scanned) as objects:
            for pack in packs_for(want, objects):
                yield Frame(OBJECTS, 0, pack)


MOST = 10_000
"""Errands in a run."""
_ANSWERS = "rules.yaml:"
"""Prefix in the source of a rule that is an answer (``policy/command_answers.py``)."""
LEASE = 60.0
"""Seconds without contact after which a worker ends this origin's commands, and the origin gives them up."""


class FleetErrand(NamedTuple):
    """A command for a worker."""

    argv: tuple[bytes, ...]
    label: str = ""
    """The fork's name; empty: made from the run's name and its number."""
    variables: tuple[tuple[bytes, bytes], ...] = ()


class RunRequest(NamedTuple):
    """A run, as it is asked for."""

    errands: tuple[FleetErrand, ...]
    command: tuple[bytes, ...] = ()
    """For people; empty: the words of the first errand."""
    cwd: bytes = b""
    """Absolute, in the project; empty: the project itself."""
    judge: tuple[bytes, ...] = ()
    fetch: str = "all"
    retry: int = 0
    timeout: float = 0.0
    any_arch: bool = False
    git: bool = False
    """Whether ``.git`` is sent."""
    through_origin: bool = False
    """Whether the commands' connections leave from this machine."""
    gpus: int = 0
    """GPUs for each errand. Memory and processors are the limits of its settings."""


class FrontEnd(NamedTuple):
    """The callbacks and options that a run takes from its front door."""

    start: Callable[[FleetWorker], Transport]
    variables: Mapping[bytes, bytes]
    """The environment, for the policy's variables that are named without a value."""
    report: Callable[[FleetEvent], None] = lambda _report: None
    line: Callable[[ErrandOutput, str], None] | None = None
    """Called with each line that an errand prints, escaped."""
    raw: Callable[[ErrandOutput, bytes], None] | None = None
    """Called with each new piece of output, as it is."""
    note: Callable[[str], None] = lambda _text: None
    asks: bool = True
    """Whether workers' questions wait for an answer in the queue."""
    lease: float = LEASE


class FleetRun:
    """Owner: the verb's thread. ``cancel`` may be called in a signal handler."""

    def __init__(
        self,
        session: Session,
        log: ErrandLog,
        row: RunRow,
        workers: Sequence[FleetWorker],
        front_end: FrontEnd,
        wanted: frozenset[Key] = frozenset(),
    ) -> None:
        self.row, self.log = row, log
        self._session, self._front_end = session, front_end
        limit = session.actor.settings.output_limit
        self._outputs = Outputs(lambda output: log.result_directory(output.row), front_end.line, limit, front_end.note)
        timeout = session.actor.settings.approval_timeout if front_end.asks else 0.0
        self._questions = QueuedQuestions(session.vault.approvals, timeout, self._announce)
        self._proxy = ConnectionProxy(
            session.machine.host_answers[0],
            self._questions.has_allowed,
            lambda fork, flow: session.forks.journal("flow", fork, flow_to_json(flow)),
            upstream=upstream_of(session.machine.confinement.variables),
            dial_fork=lambda fork, errand, host, port: fork_links().dial_from_worker(
                session.vault,
                session.machine.gate.inner_sockets,
                ForkIdentity(label_of(fork), f"errand {errand}", session.actor.agent or ""),
                host,
                port,
                session.actor.settings,
            ),
        )
        levels = {errand.message.level for errand in log.errands(row.run)}
        requirements = WorkerRequirements(
            frozenset(level for level in levels if level is not None),
            "" if row.any_arch else platform.machine(),
            FORMAT,
            __version__,
        )
        self._dispatcher = Dispatcher(
            log,
            row,
            [WorkerSession(worker) for worker in workers],
            RunServices(
                self._connect,
                self._load_payload,
                ForkImporter(session, LIMIT),
                self._questions,
                self._proxy,
                self._report,
                requirements,
                front_end.lease,
                wanted,
            ),
        )

    def __enter__(self) -> FleetRun:
        return self

    def __exit__(self, *_error: object) -> None:
        self._questions.close()
        self._proxy.close()
        self._outputs.close()
        self.log.close()

    def settled(self) -> Iterator[ErrandSettled]:
        """Yield each attempt as it is over, with its fork if it has one."""
        for settled in self._dispatcher.run():
            self._outputs.end(*settled.row.key)
            self._front_end.report(settled)
            yield settled
        self.log.redact(self.row.run, self._redacted)

    def _redacted(self, words: tuple[bytes, ...]) -> tuple[bytes, ...]:
        return tuple(redact_argv(words, self._session.vault.secrets()))

    def cancel(self) -> None:
        self._dispatcher.cancel()

    def rows(self) -> list[tuple[ErrandRow, AttemptRow]]:
        """Return the attempts as they stand, in order."""
        queue = self._dispatcher.queue
        return [(queue.errands[row.errand], row) for row in queue.sorted_rows()]

    def worker_sessions(self) -> list[WorkerSession]:
        return list(self._dispatcher.sessions.values())

    def _connect(self, worker: WorkerSession, inbox: LinkInbox) -> OriginLink:
        hello = OriginHello(PROTOCOL, __version__, self.log.origin, worker.name, self._front_end.lease)
        link = OriginLink(worker.name, self._front_end.start(worker.entry), hello, inbox)
        link.start()
        return link

    def _load_payload(self) -> ScannedPayload:
        session = self._session
        scanned = scan(
            session.project,
            session.actor.settings,
            home=session.machine.confinement.home,
            umask=umask(),
            cache=session.vault.path + b"/base-digests",
            git=self.row.git,
        )
        for note in scanned.notes:
            self._front_end.note(note)
        return ScannedPayload(scanned)

    def _report(self, event: FleetEvent) -> None:
        if not isinstance(event, ErrandOutput):
            self._front_end.report(event)
            return
        new = self._outputs.add(event)
        if new and self._front_end.raw is not None:
            self._front_end.raw(event, new)

    def _announce(self, fork: str, subject: str, name: str) -> None:
        self._front_end.report(WorkerNote(fork, f"asks about {subject}: mudroom approve {name}"))


def begin(session: Session, request: RunRequest, workers: Sequence[FleetWorker], front_end: FrontEnd) -> FleetRun:
    """Write a new run into the log and return it; nothing is sent yet. Raise UsageError if another process has this
    project's errands."""
    if not 0 < len(request.errands) <= MOST:
        raise UsageError(f"{len(request.errands):,} errands", f"a run has 1 to {MOST:,} of them")
    log = _owned(session)
    with ClosedOnError(log):
        log.prune(time.time_ns() - int(session.actor.settings.keep_age * 10**9))
        run = log.next_run()
        command = tuple(redact_argv(request.command or request.errands[0].argv, session.vault.secrets()))
        row = RunRow(
            run,
            time.time_ns(),
            command,
            tuple(worker.name for worker in workers),
            request.fetch,
            request.retry,
            git=request.git,
            any_arch=request.any_arch,
        )
        template = _template(session, request, front_end.variables)
        errands = []
        settings = _SentSettings(session.actor.settings, session.project, request.cwd or session.project)
        for number, errand in enumerate(request.errands, 1):
            label = errand.label or f"{run}-{number}"
            identity = os.urandom(8).hex()
            message = template._replace(
                errand=identity,
                argv=errand.argv,
                settings=settings.encoded(errand.argv),
                variables=(*template.variables, *errand.variables),
                judge=tuple(word.replace(b"{i}", b"%d" % number) for word in request.judge),
                label=label,
                number=number,
            )
            errands.append(ErrandRow(identity, run, number, label, message))
        log.begin_run(row, errands)
        return FleetRun(session, log, row, workers, front_end)


def resume(
    session: Session,
    name: str,
    workers: Mapping[str, FleetWorker],
    front_end: FrontEnd,
    wanted: frozenset[Key] = frozenset(),
) -> FleetRun:
    """Resume a run that was cut off, or whose lost errands may be there after all. ``wanted``: attempts that are to be
    fetched whatever the run says. Raise UsageError if this name is unknown."""
    log = _owned(session)
    with ClosedOnError(log):
        row = next((row for row in log.runs() if row.run == name), None)
        if row is None:
            raise UsageError(f"there is no run {name} in this project", "mudroom fleet runs lists them")
        chosen = [workers[node] for node in row.workers if node in workers]
        return FleetRun(session, log, row, chosen, front_end, wanted)


def _owned(session: Session) -> ErrandLog:
    log = ErrandLog(session.vault.path)
    with ClosedOnError(log):
        log.acquire(f"mudroom fleet (process {os.getpid()}, since {time.strftime('%H:%M:%S')})")
    return log


def _template(session: Session, request: RunRequest, environ: Mapping[bytes, bytes]) -> Errand:
    """Return the message that all errands in a run have in common."""
    actor, cwd = session.actor, request.cwd or session.project
    values = []
    for item in actor.settings.environment:
        name, equals, value = item.partition(b"=")
        if equals or name in environ:
            values.append((name, value if equals else environ[name]))
    return Errand(
        errand="",
        attempt=0,
        base=b"",
        argv=(),
        cwd=cwd[len(session.project) :].lstrip(b"/"),
        variables=tuple(values),
        level=session.granted().level,
        settings=b"",
        timeout=request.timeout or actor.settings.timeout or 0.0,
        judge=request.judge,
        agent=actor.agent or "",
        through_origin=request.through_origin,
        gpus=request.gpus or int(actor.card is not None and actor.card.needs.gpu),
    )


def _without_credentials(settings: Settings) -> Settings:
    """Return the settings without headers that put a credential into requests: it would be the worker's."""
    if not any(rule.set_headers for rule in settings.hosts):
        return settings

    def is_credential(name: str, value: str) -> bool:
        return bool(find_foreign(b"/", [(name.encode(), value.encode())], (), lambda _cookie: False).where)

    hosts = tuple(
        rule._replace(set_headers=tuple(pair for pair in rule.set_headers if not is_credential(*pair)))
        for rule in settings.hosts
    )
    return settings._replace(hosts=hosts)


class _SentSettings:
    """The settings as errands take them along. This machine's answers about commands, which may hold passwords, stay
    here, except those about the errand's own command: all their words are in it."""

    def __init__(self, settings: Settings, project: bytes, cwd: bytes) -> None:
        self._project, self._cwd = project, cwd
        rules = settings.commands.rules
        self._answers = frozenset(rule for rule in rules if rule.source.startswith(_ANSWERS))
        self._settings = _without_credentials(settings)
        self._without = encode(self._with(lambda _rule: False))

    def encoded(self, argv: tuple[bytes, ...]) -> bytes:
        if not self._answers:
            return self._without

        parts = classify_words(argv, project=self._project, cwd=self._cwd).parts
        about = {rule for rule in self._answers if any(matches(rule, part) for part in parts)}
        return encode(self._with(lambda rule: rule in about)) if about else self._without

    def _with(self, is_kept: Callable[[CommandRule], bool]) -> Settings:
        commands = self._settings.commands
        rules = tuple(rule for rule in commands.rules if rule not in self._answers or is_kept(rule))
        return self._settings._replace(commands=commands._replace(rules=rules))
