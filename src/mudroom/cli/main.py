"""The verbs, their shared options, and the conversion of errors into one line and an exit code.

A verb is a module in a subfolder of this package, with ``configure(parser)`` and ``execute(args, context) -> int``.
Only the called verb's module is imported.
"""

from __future__ import annotations

import os
import sys
from contextlib import closing
from functools import cache

from mudroom import __version__
from mudroom.cli.terminal.context import Context
from mudroom.cli.terminal.fold import fold_beside, fold_help
from mudroom.cli.terminal.terminal import Terminal
from mudroom.errors import MudroomError, UsageError
from mudroom.typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from mudroom.cli.parser import Parser
    from mudroom.core.known_agents import KnownAgents
    from mudroom.sandbox.client.client import Client


class Verb(NamedTuple):
    folder: str
    """The folder with its module; "" if the verb belongs to a satellite (``core/registry.py``)."""
    help: str
    in_order: bool = False
    """Options come before the command, or belong to an action. Other verbs take options and names in any order."""
    splits_command: bool = False
    """The words after ``--`` are a command, and become ``args.command``."""
    launches: bool = False
    """Start a launcher before the verb is loaded: both take equally long, and the launcher uses another processor."""


VERBS = {
    "run": Verb(
        "command",
        "run a command on a staged view of the project, see what it would change, then apply or cancel",
        in_order=True,
        launches=True,
    ),
    "exec": Verb("command", "run an agent's command in a fork; nothing is applied", in_order=True, launches=True),
    "try": Verb(
        "",
        "run a task several times side by side, judge each attempt, name the best; ls, show, discard",
        splits_command=True,
    ),
    "hook": Verb(
        "",
        "commands and edits of an agent that keeps its own process: install, --check, --remove; state; shell, for "
        "anything that only knows $SHELL",
        in_order=True,
    ),
    "ps": Verb("command", "list the commands that run in forks; --end ends them, --output prints their output"),
    "fork": Verb("fork", "make, list, rename and remove forks: new, ls, rename, rm"),
    "checkpoint": Verb("fork", "freeze the state of a fork under a name"),
    "rollback": Verb("fork", "drop the changes of a fork since a checkpoint; can itself be undone"),
    "shell": Verb("command", "a shell in a fork"),
    "mount": Verb("fork", "a fork as a real directory, for an editor or any other tool outside"),
    "unmount": Verb("fork", "unmount a fork, with all changes that were made in the directory"),
    "ls": Verb("fork", "the forks of this project and their changes"),
    "status": Verb("fork", "what waits in this project: questions, forks, the last apply; mudroom alone says the same"),
    "diff": Verb("change", "the changes of a fork, as a unified diff"),
    "review": Verb("", "review the changes of a fork in the terminal: choose, decide, apply"),
    "comment": Verb("", "remarks about a fork's changes, at lines, files and the whole; suggestions"),
    "send": Verb("", "hand a fork's remarks to its agent, in the same fork and conversation", splits_command=True),
    "apply": Verb("change", "bring a fork's changes into the project"),
    "resolve": Verb("change", "decide conflicts between a fork and the project, for the next apply"),
    "discard": Verb("fork", "throw a fork away"),
    "undo": Verb("change", "take an apply back"),
    "redo": Verb("change", "apply again what was undone"),
    "recover": Verb("change", "finish or take back applies that were cut off"),
    "keep": Verb("", "copy out what a command wrote outside the project: its home, /tmp; for a day"),
    "log": Verb("vault", "events of this project; log verify checks that the journal was not edited"),
    "vault": Verb("vault", "the stored data: ls, init, gc, check; export and import carry a fork elsewhere"),
    "agent": Verb(
        "",
        "run an agent, unchanged, from start to end; ls, show: what mudroom knows of it; check, card: by its card",
        in_order=True,
        splits_command=True,
    ),
    "acp": Verb(
        "",
        "between an editor and an agent (Agent Client Protocol): its files and terminals are those of a fork",
        in_order=True,
        splits_command=True,
    ),
    "approve": Verb("policy", "questions that wait for an answer: list, answer, --follow"),
    "policy": Verb(
        "policy",
        "the policy for commands: init, check, show, learn, schema, trust, distrust; why something is refused",
        splits_command=True,
    ),
    "net": Verb("net", "which hosts commands may reach: allow, deny, rm, ls, presets; why; log"),
    "serve": Verb(
        "", "the page in a browser: review, decide, watch; and agents' cards for other agents; on this machine only"
    ),
    "mcp": Verb("", "a server of the Model Context Protocol: an agent's tools, on a fork; nothing lands"),
    "fleet": Verb("", "other machines that run commands for this project: add, ls, run, resume …", splits_command=True),
    "worker": Verb("", "this machine as a worker of another one's fleet; that starts it"),
    "image": Verb("", "images for containers of level 2: build, ls, rm"),
    "keeper": Verb("", "the process that has everything loaded for the next command: status, stop"),
    "doctor": Verb(
        "host",
        "what this machine can protect, by trying it; --setup: for a new user; --certify: what the sandbox holds",
    ),
    "completion": Verb("", "completion for bash, zsh and fish, and the manual page: prints the file"),
}
_HEADINGS = {
    "commands": "run exec try shell ps",
    "agents": "agent acp mcp hook",
    "forks": "fork checkpoint rollback mount unmount ls status discard",
    "changes": "diff review comment send apply resolve undo redo recover",
    "rules": "approve policy net",
    "records": "log keep vault serve",
    "machines": "doctor image fleet worker keeper completion",
}
"""All verbs, in the order of ``mudroom --help --all``."""


def run(
    argv: Sequence[str],
    environ: Mapping[bytes, bytes],
    client: Client | None = None,
    later: Callable[[bytes, Callable[[], None]], None] | None = None,
) -> int:
    """Run a verb and return its exit code. ``client`` is a launcher to use instead of a new process; it is not started
    yet. ``later`` is passed on in the ``Context``."""
    terminal = Terminal(environ)
    try:
        return _run_verb(list(argv), Context(environ, terminal, False, None, client, later))
    except MudroomError as error:
        terminal.error(error.message, error.hint)
        if environ.get(b"MUDROOM") == b"1" and error.exit_code in (125, 126) and not isinstance(error, UsageError):
            terminal.note(
                "this is inside mudroom, whose sandbox may hold no second one; a command here is staged already"
            )
        return error.exit_code
    except KeyboardInterrupt:
        terminal.error("interrupted")
        return 130
    except BrokenPipeError:
        return 141
    except (MemoryError, ImportError, SystemError) as error:
        if not isinstance(error, MemoryError) and not any(words in str(error) for words in _WITHOUT_MEMORY):
            raise
        terminal.error("out of memory", "permit more of it: ulimit -v unlimited")
        return 125
    except OSError as error:
        from mudroom.core.tree.entry import HELD_HINT, FileHeld

        path = f"{os.fsdecode(error.filename)}: " if isinstance(error.filename, (str, bytes)) else ""
        hint = HELD_HINT if isinstance(error, FileHeld) else _HINTS.get(error.errno or 0, "")
        terminal.error(f"{path}{error.strerror or error}", hint)
        return 125
    finally:
        terminal.clear()


_WITHOUT_MEMORY = ("failed to map segment", "error return without exception set", "without setting an exception")
"""Error texts from dlopen(3), and from an interpreter that could not allocate a function or a frame."""
_HINTS = {
    11: "permit more processes: ulimit -u",
    12: "permit more memory: ulimit -v unlimited",
    24: "permit more of them: ulimit -n 1024",
    27: "permit larger files: ulimit -f unlimited",
    28: "make room there: mudroom ls shows the forks, mudroom discard FORK gives back what one holds",
    30: "mount that file system writable; mudroom's own state: set MUDROOM_STATE to a directory you may write to",
    109: "permit more open files: ulimit -n 1024",
    122: "your disk quota is used up: mudroom ls shows the forks, mudroom discard FORK gives back what one holds",
}


def _run_verb(argv: list[str], usual: Context) -> int:
    """Run a verb. ``usual`` is the context without the verb's options."""
    environ, terminal = usual.environ, usual.terminal
    if not argv or argv == ["--json"]:
        argv = ["status", *argv]
    if argv[0] == "help" and len(argv) > 1 and argv[1] != "--all":
        argv = [argv[1], "--help", *argv[2:]]
    if argv[0] in ("-h", "--help", "help"):
        terminal.out(overview(terminal.help_columns(environ), every="--all" in argv))
        return 0
    if argv[0] in ("-V", "--version"):
        terminal.out(version())
        return 0
    alias = _ALIASES.get(tuple(argv[:2]))
    argv = [alias[0], *argv[2:], *alias[1:]] if alias else argv
    if argv[0] not in VERBS and _agents(environ).has(argv[0]):
        argv = ["agent", "run", "--", *argv]
    verb = argv[0]
    if verb not in VERBS:
        raise UsageError(*_without_verb(argv, environ))
    row = VERBS[verb]
    if usual.client is not None or not (row.launches and _is_to_launch(argv)):
        return _execute(verb, row, argv, usual)
    from mudroom.sandbox.platform import new_client

    with closing(new_client(environ)) as client:
        client.start()
        return _execute(verb, row, argv, usual._replace(client=client))


_ALIASES: Mapping[tuple[str, ...], tuple[str, ...]] = {
    ("proxy", "inspect"): ("diff",),
    ("proxy", "prepare"): ("exec", "--", "true"),
    ("proxy", "rollback"): ("rollback", "--yes"),
}
"""Former words, with the verb that does the same, and the words to add at the end of the line."""

_LAUNCH_NOTHING = ("-h", "--h", "--ex", "--b", "--on")
"""Prefixes of options with which a verb launches no command here: --help, --explain, --background (it has its own
process), and --on (another machine runs it)."""


def _is_to_launch(argv: Sequence[str]) -> bool:
    """Return whether a command line runs a command here. If the guess is wrong, the launcher is started in vain, or
    later by the verb."""
    options = argv[: argv.index("--")] if "--" in argv else argv
    return not any(word.startswith(_LAUNCH_NOTHING) for word in options)


def _execute(verb: str, row: Verb, argv: list[str], usual: Context) -> int:
    command = None
    if row.splits_command and "--" in argv:
        command = argv[argv.index("--") + 1 :]
        argv = argv[: argv.index("--")]
    parser = verb_parser(verb)
    from mudroom.cli.parser import parse

    columns = usual.terminal.help_columns(usual.environ)
    args: Any = parse(parser, argv[1:], in_order=row.in_order, columns=columns)
    if row.splits_command:
        args.command = command
    context = usual._replace(as_json=args.json, project=os.fsencode(args.project) if args.project else None)
    return int(verb_module(verb).execute(args, context))


@cache
def verb_parser(verb: str) -> Parser:
    """Return a verb's parser. Raise NotInstalled as ``verb_module``."""
    from mudroom.cli.parser import make_parser

    module = verb_module(verb)
    parser = make_parser(verb, VERBS[verb].help, getattr(module, "EXAMPLES", None))
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of text")
    parser.add_argument("--project", metavar="DIR", help="the project; default: the one the current directory is in")
    module.configure(parser)
    return parser


def verb_module(verb: str) -> Any:
    """Return a verb's module. Raise NotInstalled if it belongs to an absent satellite."""
    folder = VERBS[verb].folder
    if not folder:
        from mudroom.core.registry import part

        return part("verb", verb, f"mudroom {verb}")
    return _module(f"mudroom.cli.{folder}.{verb.replace('-', '_')}")


def _module(name: str) -> Any:
    __import__(name)  # importlib would import further modules
    return sys.modules[name]


def offered_verbs() -> dict[str, Verb]:
    """Return the installed verbs: without those that belong to absent satellites."""
    from mudroom.core.registry import is_installed, satellite_of

    return {verb: row for verb, row in VERBS.items() if row.folder or is_installed(satellite_of("verb", verb))}


def _agents(environ: Mapping[bytes, bytes]) -> KnownAgents:
    """Return the agents, whose names are verbs, too: ``mudroom claude`` is ``mudroom agent run -- claude``."""
    from mudroom.core.known_agents import known_agents
    from mudroom.policy.config import user_config

    return known_agents(user_config(environ))


def _without_verb(argv: Sequence[str], environ: Mapping[bytes, bytes]) -> tuple[str, str]:
    """Return the error message and the hint for a command line that does not begin with a verb. The hint gives the
    corrected line where that can be guessed."""
    if not argv[0].startswith("-"):
        return f"there is no verb {argv[0]!r}", _suggest(argv, environ)
    import shlex

    if argv[0] == "--" and len(argv) > 1:
        return f"there is no verb {argv[0]!r}", f"did you mean: mudroom run -- {shlex.join(argv[1:])}"
    at = 2 if argv[0] in ("--project", "-C") else 1
    is_known = argv[0] in ("--project", "--json", "-C") or argv[0].startswith("--project=")
    if is_known and len(argv) > at and argv[at] in VERBS:
        option = [word if word != "-C" else "--project" for word in argv[:at]]
        turned = shlex.join(["mudroom", argv[at], *option, *argv[at + 1 :]])
        if argv[0] == "-C":
            return f"there is no verb {argv[0]!r}", f"did you mean: {turned}"
        return f"{argv[0]} belongs behind the verb", turned
    import difflib

    near = difflib.get_close_matches(_SHORT.get(argv[0], argv[0]), ("--help", "--version"), 1, 0.8)
    hint = f"did you mean mudroom {near[0]}?" if near else "options follow the verb; mudroom --help lists the verbs"
    return f"there is no verb {argv[0]!r}", hint


def _suggest(words: Sequence[str], environ: Mapping[bytes, bytes]) -> str:
    """Return a hint with the probably intended line: ``run`` before a command, or a verb with a similar name."""
    import difflib
    import shlex
    import shutil

    from mudroom.core.command.pattern_text import as_words

    one = [os.fsdecode(word) for word in as_words(words[0])] if " " in words[0].strip() else [words[0]]
    command = [*one, *words[1:]]  # "npm install", as one word
    word = words[0].lower()
    if words == [word] and word in _OF_FORKS:
        verb, lists, names = _OF_FORKS[word]
        return f"did you mean mudroom {verb} {names}? mudroom {lists} lists them"
    is_alone = len(words) == 1 and word in _MEANT  # init(1) and install(1) are programs, too
    if not is_alone and command and shutil.which(command[0], path=os.fsdecode(environ.get(b"PATH", b""))) is not None:
        line = f"mudroom run -- {shlex.join(word for word in command if word != '--')}"
        of_forks = word in _OF_FORKS and not any(word.startswith("-") for word in words)  # rm -rf is the program
        both = shlex.join(["mudroom", *_OF_FORKS[word][0].split(), *words[1:]]) if of_forks else ""
        return f"did you mean {both}, or: {line}" if both else f"did you mean: {line}"
    offered = offered_verbs()
    meant = _MEANT.get(word, "")
    if meant.partition(" ")[0] in (*offered, "--version"):
        return f"did you mean mudroom {meant}?"
    near = difflib.get_close_matches(word, (*offered, "help"), 1) or difflib.get_close_matches(
        word, _agents(environ).names(), 1, _LIKELY
    )
    if near:
        return f"did you mean mudroom {near[0]}?"
    return "mudroom --help lists the verbs; a command of your own: mudroom run -- COMMAND"


_SHORT = {"-v": "--version", "-V": "--version", "-?": "--help"}
_LIKELY = 0.8
"""Minimum difflib ratio for an agent's name to be suggested. Below it, "commit" would suggest copilot."""
_MEANT = {
    **dict.fromkeys(("init", "install", "setup"), "doctor --setup"),
    "certify": "doctor --certify",
    **dict.fromkeys(("accept", "commit", "land", "merge"), "apply"),
    **dict.fromkeys(("restore", "revert"), "undo"),
    **dict.fromkeys(("delete", "drop", "remove"), "discard"),
    **dict.fromkeys(("list", "branch"), "ls"),
    **dict.fromkeys(("create", "new"), "fork new"),
    **dict.fromkeys(("dashboard", "gui", "ui", "web"), "serve --open"),
    **dict.fromkeys(("clean", "gc", "prune"), "vault gc"),
    **dict.fromkeys(("config", "settings"), "policy show"),
    "proxy": "exec",
    "shell-shim": "hook shell",
    "show": "diff",
    "conflicts": "diff --conflicts",
    "commits": "diff --commits",
    "stash": "checkpoint",
    "version": "--version",
    "history": "log",
    "start": "run",
    "stop": "ps --end",
    "info": "status",
}
"""Other tools' verbs and former ones, with the verb here."""
_OF_FORKS = {
    **dict.fromkeys(("kill", "stop"), ("ps --end", "ps", "ID")),
    "rm": ("discard", "ls", "FORK"),
}
"""Other tools' verbs that take a name, with the verb here, the verb that lists the names, and the argument. Some are
programs, too."""


def version() -> str:
    return f"mudroom {__version__}"


def overview(columns: int = 100, *, every: bool = False) -> str:
    """Return mudroom's own help, for a terminal with this many columns: the verbs of every day, or ``every`` verb."""
    offered = offered_verbs()
    rows = [row for verb, row in _EVERY_DAY if not verb or verb in offered]
    if every:
        rows = []
        for heading, verbs in _HEADINGS.items():
            names = [verb for verb in verbs.split() if verb in offered]
            rows += [heading, *(fold_beside(f"  {verb:<10} ", VERBS[verb].help, columns) for verb in names)]
    head = f"{version()}: commands and agents work on a staged view of your project; nothing lands until you apply it."
    texts = (head, "\n".join(rows), _EXIT_CODES if every else _MORE)
    return "\n\n".join(fold_help(text, columns) for text in texts)


_EVERY_DAY = (
    ("", "run"),
    ("run", "  mudroom run -- npm install   see what it would change, then apply or cancel"),
    ("agent", "  mudroom claude               an agent; mudroom agent ls names the others"),
    ("", "decide"),
    ("status", "  mudroom                      what waits for you in this project"),
    ("ls", "  mudroom ls                   the forks and their changes"),
    ("diff", "  mudroom diff                 the changes of a fork"),
    ("review", "  mudroom review               choose, decide and apply in the terminal"),
    ("apply", "  mudroom apply                bring a fork's changes into the project"),
    ("undo", "  mudroom undo                 take the last apply back"),
    ("redo", "  mudroom redo                 apply again what was undone"),
    ("", "permit"),
    ("approve", "  mudroom approve              questions that wait for your answer"),
    ("net", "  mudroom net allow @npm       let commands reach hosts; mudroom net ls"),
    ("", "look"),
    ("serve", "  mudroom serve --open         review, decide and watch in a browser"),
    ("doctor", "  mudroom doctor               what this machine can protect"),
)
"""Rows of the first screen, each with its verb; headings have none."""
_MORE = "All verbs: mudroom --help --all; one verb's options: mudroom VERB --help"
_EXIT_CODES = """\
Exit codes: the command's own; 124 out of time, 125 mudroom failed, 126 not executable or refused, 127 not found;
apply: 0 applied, 3 conflicts are left (the rest is applied, nothing is lost), 4 the fork is not what was reviewed,
5 the policy's verify command failed (nothing is applied)."""
