"""``mudroom run``: stage, run, preview, then apply, cancel or keep."""

from __future__ import annotations

import argparse
import functools
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing

from mudroom.cli.parser import Rare
from mudroom.cli.project_session import (
    exclusive,
    full_disk_hint,
    no_leftover,
    open_session,
    print_remarks,
    settle_first,
    working_directory,
)
from mudroom.cli.terminal.command_signals import command_signals
from mudroom.cli.terminal.context import Context
from mudroom.cli.terminal.terminal import TITLE, cut, is_terminal
from mudroom.core.agent.sandbox_level import BARE
from mudroom.core.registry import AGENT_PROGRAMS, part, part_or_none
from mudroom.core.result import Result, to_json
from mudroom.core.tree.path import is_below, show, show_path
from mudroom.core.tree.quote import show_words
from mudroom.core.tree.secret import is_masked
from mudroom.errors import ApplyUnwritten, ForkMoved, MudroomError, UsageError
from mudroom.policy.config import user_config
from mudroom.sandbox.platform import new_client
from mudroom.session import Session, Stdio
from mudroom.session.project_session import with_shown
from mudroom.stage import disk
from mudroom.typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from mudroom.cli.change.preview import PreviewNotes
    from mudroom.cli.terminal.approver import Ask
    from mudroom.core.settings import Settings
    from mudroom.session import Client

EXAMPLES = """\
examples:
  mudroom run -- npm install lodash              asks: Allow registry.npmjs.org?
  mudroom run --yes -- make                      apply without asking
  mudroom run --no -- ./install.sh               only show its changes
  mudroom run --keep -- npx prettier -w .        decide later: mudroom diff, mudroom apply, mudroom discard
  mudroom run --json --yes -- make test          one JSON object; output of the command is in it
  mudroom run --net open -- ./fetch.sh           the host's network, unfiltered: only for what you trust

The network is behind a gate: hosts that mudroom net allow or the policy name are let through; others are asked about.
Without a terminal to ask on, and without --yes, --no or --keep, the changes are kept."""


LIMITS = {
    "--memory": ("limits.memory", "SIZE", "512M, 2GB; a command that needs more is killed"),
    "--processes": ("limits.processes", "N", "at one time, threads included; no more can be started"),
    "--cpus": ("limits.cpus", "N", "processors' worth of time: 0.5, 2"),
    "--io": ("limits.io", "SIZE", "bytes per second, of reading and of writing each"),
    "--open-files": ("limits.open_files", "N", "of each process"),
    "--tmp": ("limits.tmp", "SIZE", "of its own /tmp, which is in memory"),
    "--inotify": ("limits.inotify", "N", "of all commands of a session; programs that watch files"),
    "--file-size": ("limits.file_size", "SIZE", "that one file can be made"),
}
"""Option to (setting, placeholder, help)."""


ENGINE = (
    "an engine of containers runs beside the command, in a sandbox of its own: containers see the files and reach the "
    "hosts that the command does"
)


def configure(parser: argparse.ArgumentParser) -> None:
    answer = parser.add_mutually_exclusive_group()
    answer.add_argument(
        "--yes",
        "-y",
        action="store_true",
        help="apply without asking (not if a signal or the timeout ended the command)",
    )
    answer.add_argument("--no", "-n", action="store_true", help="throw the changes away after showing them")
    answer.add_argument("--keep", "-k", action="store_true", help="keep the changes in a fork, to decide later")
    parser.add_argument("--git", action="store_true", help="also apply changes in .git, which are otherwise left out")
    parser.add_argument(
        "--ask",
        choices=("terminal", "queue", "never"),
        help=Rare(
            "who is asked about a host that no rule names. terminal: whoever sits there, or answers in the queue "
            "before (default, if there is a terminal; while a program reads keys there itself, the queue alone); "
            "queue: wait for the page or mudroom approve (default without a terminal, as long as one of them is open); "
            "never: it is refused"
        ),
    )
    add_on_option(parser)
    add_confinement_options(parser)
    parser.add_argument(
        "--root",
        action="append",
        default=[],
        metavar="DIR",
        help="stage this directory, too: one review, one apply and one undo of all (level 1, Linux)",
    )
    parser.add_argument("--explain", action="store_true", help="print how the command would be confined; do not run it")
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="-- COMMAND", help="the command and its arguments")


def add_on_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--on", metavar="NAME", help=Rare("run it on this worker (mudroom fleet ls); its changes come here")
    )


def add_confinement_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--level",
        type=int,
        choices=(0, 1, 2),
        help="1: OS sandbox (default); 2: container; 0: no isolation, the staged view only",
    )
    parser.add_argument(
        "--net",
        choices=("gate", "none", "open"),
        help="gate: hosts that the rules or your answers allow (default; at level 0: open); "
        "none: nothing but its own loopback; open: the host's",
    )
    parser.add_argument("--image", metavar="NAME", help=Rare("the container's image (mudroom image); implies level 2"))
    parser.add_argument(
        "--engine",
        action="store_true",
        help="an engine of containers beside the command (Docker's and Podman's programs and libraries find it)",
    )
    parser.add_argument(
        "--home",
        action="store_const",
        const="staged",
        help="stage your home, too, without credentials and documents: undo takes an installation back",
    )
    parser.add_argument("--timeout", metavar="TIME", help="end the command after so long: 90s, 5m, 1h")
    limits = parser.add_argument_group("limits of the command and all that it starts (none: no limit; docs/POLICY.md)")
    for option, (_field, metavar, text) in LIMITS.items():
        limits.add_argument(option, metavar=metavar, help=Rare(text))
    parser.add_argument(
        "--view",
        choices=("auto", "overlay", "copy"),
        help=Rare("how the project is staged; auto: overlay, else a copy"),
    )
    parser.add_argument(
        "--env",
        action="append",
        default=[],
        metavar="NAME[=VALUE]",
        help="a variable for the command, beyond the usual ones",
    )
    parser.add_argument(
        "--show", action="append", default=[], metavar="PATH", help="a secret of the project that the command may read"
    )
    parser.add_argument(
        "--read", action="append", default=[], metavar="PATH", help="show this path of the host, read-only"
    )


def execute(args: argparse.Namespace, context: Context) -> int:
    command = args.command[1:] if args.command[:1] == ["--"] else args.command
    if not command:
        raise UsageError("no command was given", "mudroom run -- COMMAND")
    client = context.client or new_client(context.environ)
    if not args.explain and args.on is None:
        client.start()  # it starts while settings and project are read
    argv = [os.fsencode(word) for word in command]
    adjust = functools.partial(_of_user, args)
    opened = open_for_program(argv, args, context, client=client, ask=args.ask, adjust=adjust)
    with opened.session as session:
        require_shown(session, args.show)
        cwd = command_directory(session)
        if args.explain:
            _explain(session.explained(cwd), context)
            return 0
        if args.on is not None:
            return _run_elsewhere(session, opened.argv, cwd, args, context)

        with closing(client):
            settle_first(session, context, "mudroom run")
            return _run_staged(session, opened.argv, cwd, args, context)


class OpenedProgram(NamedTuple):
    session: Session
    argv: list[bytes]
    """With the words that the profile of its program adds."""


def open_for_program(
    argv: Sequence[bytes],
    args: argparse.Namespace,
    context: Context,
    *,
    client: Client | None,
    adjust: Callable[[Settings], Settings],
    ask: Ask | None,
    agent: str | None = None,
) -> OpenedProgram:
    """Open a session for a command line. An agent's program has its profile."""
    level = asked_level(args)
    if is_agent_program(argv, context.environ) and (agents := part_or_none("agents", "programs")) is not None:
        opened = agents.open_profiled(argv, context, client=client, adjust=adjust, level=level, ask=ask, agent=agent)
        if opened is not None:
            return OpenedProgram(*opened)
    session = open_session(context, client=client, adjust=adjust, level=level, agent=agent, ask=ask)
    return OpenedProgram(session, list(argv))


def is_agent_program(argv: Sequence[bytes], environ: Mapping[bytes, bytes]) -> bool:
    """Return whether a profile names the program of a command line."""
    program = os.fsdecode(os.path.basename(argv[0])) if argv else ""
    if program in AGENT_PROGRAMS or not program or not os.path.isdir(user_config(environ) + b"/agents"):
        return program in AGENT_PROGRAMS
    from mudroom.core.known_agents import known_agents

    return known_agents(user_config(environ)).has(program)


def _of_user(args: argparse.Namespace, settings: Settings) -> Settings:
    """Return the settings with the options applied, and the isolation level for the user's own commands."""
    settings = adjusted(args, settings)
    return settings if settings.user_level is None else settings._replace(level=settings.user_level)


def _explain(explanation: dict[str, Any], context: Context) -> None:
    if not context.as_json:
        context.terminal.out("\n".join(explanation["lines"]))
        return
    context.terminal.json({"schema": "mudroom.explain/1", **explanation})


def asked_level(args: argparse.Namespace) -> int | None:
    """Return the isolation level from the command line, or None. --image implies level 2."""
    if args.image is not None and args.level not in (None, 2):
        raise UsageError(f"--image is for level 2, not for level {args.level}", "leave --level out")
    return 2 if args.image is not None else args.level


def adjusted(args: argparse.Namespace, settings: Settings) -> Settings:
    """Return the settings with the command-line options applied."""
    reads = tuple(disk.real_path(os.fsencode(path)) for path in args.read)
    for path in reads:
        if not os.path.exists(path):
            raise UsageError(f"--read {show_path(path)}: no such file or directory", "give a path of this machine")
    for variable in args.env:
        if "=" not in variable and variable not in os.environ:
            raise UsageError(
                f"--env {show(os.fsencode(variable))}: your environment has no such variable",
                "--env NAME=VALUE sets one",
            )
    for option, (field, _metavar, _text) in LIMITS.items():
        value = getattr(args, option[2:].replace("-", "_"))
        if value is not None:
            from mudroom.policy.limit_option import with_limit

            settings = with_limit(settings, field.partition(".")[2], value, option)
    settings = with_shown(settings, args.show)._replace(
        network=args.net or settings.network,
        view=args.view or settings.view,
        engine_beside=args.engine or settings.engine_beside,
        home=args.home or settings.home,
        environment=(*settings.environment, *(os.fsencode(variable) for variable in args.env)),
        read=(*settings.read, *reads),
    )
    if args.timeout:
        from mudroom.policy.setting_type import seconds

        settings = settings._replace(timeout=seconds(args.timeout, "--timeout"))
    if args.image is not None:
        from mudroom.policy.setting_type import image

        settings = settings._replace(image=image(args.image, "--image"))
    return settings


def require_shown(session: Session, paths: Sequence[str]) -> None:
    """Raise UsageError if a path given to ``--show`` is no file in the project. A name without a slash may be a secret
    in any directory."""
    if not paths:
        return

    mask = session.actor.settings.secrets_mask
    for path in (os.fsencode(path).removeprefix(b"./") for path in paths):
        if b"*" in path or os.path.lexists(os.path.join(session.project, path)):
            continue
        if b"/" in path or not is_masked(path, mask, ()):
            raise UsageError(
                f"--show {show_path(path)}: the project has no such file",
                "a path below the project, or a name or pattern of secrets: --show .env, --show '*.pem'",
            )


def command_directory(session: Session) -> bytes:
    """Return where a command runs: here, or at the top of the project if this is elsewhere."""
    current = disk.real_path(working_directory())
    return current if is_below(current, session.project) else session.project


class ThereResult(NamedTuple):
    result: Result
    """``fork`` is "" if there are no changes. Everything except the changes is the worker's claim."""
    code: int
    """mudroom's exit code."""
    is_kept: bool
    """Whether a signal or a time limit ended the command, so that its changes are kept and not applied."""


def run_there(
    session: Session, name: str, argv: Sequence[bytes], cwd: bytes, context: Context, *, has_roots: bool = False
) -> ThereResult:
    """Run a command on a worker and bring its fork here. Raise MudroomError if the command did not run to its end
    there, NotInstalled if the satellite with the workers is absent."""
    if has_roots or session.actor.settings.home == "staged":
        hint = "leave --on out, or --home: mudroom policy show says whether run.home is staged"
        raise UsageError("--root and --home stage directories of this machine, not of a worker", hint)
    there: ThereResult = part("fleet", "run", f"--on {name}").run_there(session, name, argv, cwd, context)
    return there


def _run_elsewhere(
    session: Session, argv: Sequence[bytes], cwd: bytes, args: argparse.Namespace, context: Context
) -> int:
    there = run_there(session, args.on, argv, cwd, context, has_roots=bool(args.root))
    return _decide(session, there.result, argv, args, context, there.code, is_kept=there.is_kept)


def _run_staged(session: Session, argv: Sequence[bytes], cwd: bytes, args: argparse.Namespace, context: Context) -> int:
    warn_if_bare(session, context)
    with command_signals(session) as signals, full_disk_hint(session), no_leftover(session, is_wanted=not args.no):
        quiet = session.actor.settings.user_pause
        roots = [os.path.join(working_directory(), os.fsencode(path)) for path in args.root]
        result = session.run(argv, cwd=cwd, stdio=own_stdio(context), quiet=quiet, roots=roots)
    is_kept = signals.ended_by(result) is not None
    return _decide(session, result, argv, args, context, signals.exit_code(result), is_kept=is_kept)


def _decide(
    session: Session,
    result: Result,
    argv: Sequence[bytes],
    args: argparse.Namespace,
    context: Context,
    code: int,
    *,
    is_kept: bool,
) -> int:
    """Show the result, then apply, discard or keep its changes. Return the exit code. ``is_kept``: a signal ended the
    command. Nothing is held while the question waits."""
    outcome: dict[str, Any] | None = None
    try:
        if not context.as_json:
            show_result(result, argv, context, notes_of(session, result), tool_log(session, result))
    finally:  # also if printing fails because the reader is gone
        if result.fork and not result.has_changes:
            session.forks.discard_unchanged(result.fork)
        elif result.fork and args.no:
            _discard(session, result, context)
    if result.has_changes and not args.no:
        answer = _answer(result, argv, args, context, session, is_kept=is_kept)
        if answer in ("apply", "git"):
            git = args.git or answer == "git"
            outcome, landing_code = _apply(session, result, context, git=git)
            code = code or landing_code
        elif answer == "cancel":
            _discard(session, result, context)
        else:
            if answer == "interrupt":
                context.terminal.say("interrupted: nothing was applied")
                code = code or 130
            if args.yes and not context.as_json:
                context.terminal.say("the command did not end by itself, so nothing was applied")
            _print_kept(result.fork, context)
    if context.as_json:
        print_json(result._replace(exit_code=code), outcome, context)
    return code


def _discard(session: Session, result: Result, context: Context) -> None:
    session.forks.discard(result.fork)
    print_remarks(session, context)  # a login that could not be kept is lost with its fork


def warn_if_bare(session: Session, context: Context) -> None:
    """Say before the command runs that it is not isolated, or has containers. Other notes are printed afterwards."""
    if not context.as_json and session.granted().level == 0:
        context.terminal.note(BARE)
    if not context.as_json and session.actor.settings.engine_beside:
        context.terminal.note(ENGINE)


def own_stdio(context: Context) -> Stdio:
    """Return the command's stdio: this process's own, but with --json the output is captured."""
    if context.as_json:
        return Stdio(stdin=0, terminal=is_terminal(0))
    is_dumb = context.environ.get(b"TERM") == b"dumb"
    if not (is_terminal(0) and is_terminal(1)):
        return Stdio(0, 1, 2, terminal=any(map(is_terminal, (0, 1, 2))), is_dumb=is_dumb)
    from mudroom.sandbox.client.terminal_sign import sign_kinds

    return Stdio(0, 1, 2, terminal=True, signs=sign_kinds(context.environ), is_dumb=is_dumb)


def notes_of(session: Session, result: Result) -> PreviewNotes | None:
    """Return what the preview says beside a result's changes."""
    if not result.changeset.changes:
        return None
    from mudroom.cli.change.preview import preview_notes

    return preview_notes(session, result.fork, result.changeset.changes)


def tool_log(session: Session, result: Result) -> str:
    """Return a line with the host path of the log that a failed command's tool left, or ""."""
    if not result.exit_code or not result.ran or result.level == 0:
        return ""
    import time

    from mudroom.vault.caches.tool_log import newest_log

    path = newest_log(session.vault.cache, time.time() - result.duration, result.command)

    return "" if path is None else f"npm's log of it, on this machine: {show_words((path,))}"


def show_result(
    result: Result,
    argv: Sequence[bytes],
    context: Context,
    notes: PreviewNotes | None = None,
    log: str = "",
) -> None:
    """Print the outcome and a preview. ``notes`` are from ``notes_of``, ``log`` from ``tool_log``."""
    terminal = context.terminal
    for note in result.notes:
        if note != BARE:  # printed before the command
            terminal.note(note)
    for limit in result.reached:
        if limit.kind != "time":  # printed below
            terminal.note(str(limit))
    if result.denials:
        from mudroom.cli.command.refusals import result_lines

        for line in result_lines(result, argv, context):
            terminal.note(line)
    if log:
        terminal.note(log)
    title = cut(show_words(argv), TITLE)
    if result.timed_out:
        terminal.say(terminal.style(f"{title} ran out of time and was ended", "red"))
    elif result.signal:
        terminal.say(terminal.style(f"{title} was ended by signal {result.signal}", "red"))
    elif result.exit_code:
        terminal.say(terminal.style(f"{title} exited with {result.exit_code}", "yellow"))
    if not result.has_changes:
        terminal.say(f"{title} changed nothing{' in the project' if result.left else ''}")
        for remark in result.changeset.remarks:
            terminal.say(f"  ! {show_path(remark.path)} {remark.text}")
        return
    from mudroom.cli.change.preview import preview

    if result.changeset.changes or not result.roots:
        for line in preview(f"{title} would change", result.changeset, terminal, notes):
            terminal.say(line)
    for root in result.roots:
        if root.changeset.changes:
            for line in preview(f"{title} would change in {root.label}:", root.changeset, terminal):
                terminal.say(line)


def _answer(
    result: Result,
    argv: Sequence[bytes],
    args: argparse.Namespace,
    context: Context,
    session: Session,
    *,
    is_kept: bool,
) -> str:
    from mudroom.cli.command.auto_apply import decide_auto_apply, show_short

    if not context.as_json:
        show_short(result, session, context)
    if args.keep or is_kept:
        return "keep"
    if args.yes:
        return "keep" if result.signal or result.timed_out else "apply"
    decision = decide_auto_apply(result, argv, session)
    if decision.applies:
        return "apply"
    if decision.why:
        context.terminal.note(f"not applied without asking: {decision.why}")
    if context.as_json or not context.terminal.interactive:
        return "keep"
    return _ask(result, context, session)


_ANSWERS = {
    "a": "apply",
    "apply": "apply",
    "y": "apply",
    "c": "cancel",
    "cancel": "cancel",
    "n": "cancel",
    "k": "keep",
    "g": "git",
}


_LEGEND = "a: bring them into the project; c: throw them away; d: show the difference; k: keep them in a fork"


def _ask(result: Result, context: Context, session: Session) -> str:
    from mudroom.core.tree.flag import repositories

    while True:
        try:
            git = "[g]it too  " if repositories(result.changeset.changes) else ""
            reply = context.terminal.ask(f"[a]pply  {git}[c]ancel  [d]iff  [k]eep for later: ")
        except KeyboardInterrupt:
            context.terminal.say()
            return "interrupt"
        if not reply:
            context.terminal.say()
            return "keep"
        word = reply.strip().lower()
        if word in ("d", "diff"):
            from mudroom.cli.terminal.pager import page

            try:
                page(session.changes.whole_diff(result.fork, result.changeset.changes), context)
            except ForkMoved as error:
                context.terminal.say(str(error))
        elif word in _ANSWERS:
            return _ANSWERS[word]
        else:
            context.terminal.say(_LEGEND)


def _apply(session: Session, result: Result, context: Context, *, git: bool) -> tuple[dict[str, Any], int]:
    from mudroom.cli.change.apply import exit_code, landed_to_json, print_landed
    from mudroom.vault.forks.review import fingerprint

    changed = (root.changeset for root in result.roots if root.changeset.changes or root.changeset.remarks)
    shown = "+".join(map(fingerprint, (result.changeset, *changed)))
    try:
        with exclusive(session, context, f"mudroom apply {result.fork}", is_short=True):
            landed = session.changes.apply(result.fork, reviewed=shown, git=git)
    except ApplyUnwritten:
        raise
    except MudroomError:  # main prints the reason
        if session.vault.find(result.fork) is not None:
            _print_kept(result.fork, context)
        raise
    if not context.as_json:
        print_landed(landed, result.fork, context, git=git)
    return landed_to_json(landed), exit_code(landed)


def _print_kept(name: str, context: Context) -> None:
    if not context.as_json:
        context.terminal.say(f"kept as {name}: mudroom diff {name}, mudroom apply {name}, mudroom discard {name}")


def print_json(result: Result, applied: dict[str, Any] | None, context: Context) -> None:
    context.terminal.json(to_json(result) | {"applied": applied})
