"""``mudroom comment``: remarks about a fork's changes."""

from __future__ import annotations

import os
import sys

from mudroom.cli.change.part_paths import named_parts
from mudroom.cli.project_session import only_fork, open_session
from mudroom.cli.terminal.context import Context
from mudroom.core.text.plural import counted
from mudroom.core.text.regex import regex
from mudroom.core.tree.quote import show_words
from mudroom.errors import UsageError
from mudroom.ext.remarks.core.listing import listed_to_json, remark_lines
from mudroom.ext.remarks.core.value import Side
from mudroom.ext.remarks.session import Remarks
from mudroom.typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse

    from mudroom.session import Session

EXAMPLES = """\
examples:
  mudroom comment agent-1                                 list the remarks
  mudroom comment agent-1 src/app.py:12 'why twice?'      about a line of the fork's file; 12-15: several
  mudroom comment agent-1 src/app.py 'split it'           about the file
  mudroom comment agent-1 ../lib/code:3 'and here?'       of another project that the fork changes; ~/.bashrc: the home
  mudroom comment agent-1 'add a test'                    about the whole
  mudroom comment agent-1 src/app.py:3 'faster' --suggest 'x = set()'
  mudroom comment agent-1 --take r4                       put a suggestion into the fork
  mudroom comment agent-1 --answer r1 'still twice'       --settle r1, --reopen r1, --remove r1

- as the text, or as the suggestion, is read from standard input. mudroom send hands the remarks to the fork's agent."""

_PLACE = regex(r"(?s)(.+):([0-9]{1,8})(?:-([0-9]{1,8}))?")
ACTIONS = ("answer", "settle", "reopen", "remove", "take")


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("fork", nargs="?", metavar="FORK", help="the fork; may be left out to list the only one's")
    parser.add_argument("words", nargs="*", metavar="PATH[:LINE[-LINE]] TEXT", help="where, and the remark")
    parser.add_argument("--suggest", metavar="TEXT", help="lines to put there instead; '': remove them")
    parser.add_argument(
        "--old", action="store_true", help="the lines are those of the original, which the fork removed"
    )
    for name, text in (
        ("answer", "add TEXT to a remark's thread"),
        ("settle", "it is done: it is not sent (again)"),
        ("reopen", "it is not done"),
        ("remove", "remove the remark with its thread"),
        ("take", "put its suggestion into the fork"),
    ):
        parser.add_argument(f"--{name}", metavar="NAME", help=text)


def execute(args: argparse.Namespace, context: Context) -> int:
    actions = [name for name in ACTIONS if getattr(args, name) is not None]
    if len(actions) > 1:
        raise UsageError(f"--{actions[0]} and --{actions[1]} are two actions", "one at a time")
    with open_session(context, needs_policy=False) as session:
        remarks = Remarks(session, only_fork(session, args.fork))
        if actions:
            _act(actions[0], getattr(args, actions[0]), args, remarks, context)
        elif args.words or args.suggest is not None or args.old:
            name = _add(args, remarks, session)
            if not context.as_json:
                context.terminal.say(f"{name}: mudroom send {remarks.fork} hands it to the agent")
        if context.as_json:
            context.terminal.json(listed_to_json(remarks.fork, remarks.listed()))
        elif not actions and not args.words:
            _list(remarks, context)
    return 0


def _add(args: argparse.Namespace, remarks: Remarks, session: Session) -> str:
    *places, text = args.words or [""]
    if len(places) > 1:
        raise UsageError(
            f"{len(args.words)} words after the fork are too many",
            show_words((b"mudroom", b"comment", remarks.fork.encode(), os.fsencode(places[0]), b"TEXT")),
        )
    if not text or (not places and _PLACE.fullmatch(text)):
        place = text or "PATH:LINE"
        raise UsageError(
            "the remark has no text",
            show_words((b"mudroom", b"comment", remarks.fork.encode(), os.fsencode(place), b"TEXT")),
        )
    path, first, last = b"", 0, 0
    if places:
        match = _PLACE.fullmatch(places[0])
        part = named_parts(session, remarks.fork, [match[1] if match else places[0]])[0]
        if not part.paths or not part.paths[0]:
            raise UsageError(f"{places[0]} is a directory", "name a file in it")
        path = part.named(part.paths[0])
        first = int(match[2]) if match else 0
        last = int(match[3] or match[2]) if match else 0
        if match and (not first or last < first):
            raise UsageError(f"{places[0][len(match[1]) + 1 :]} are no lines", "lines count from 1: 3, or 3-5")
    if (args.suggest is not None or args.old) and not first:
        option = "--suggest" if args.suggest is not None else "--old"
        raise UsageError(f"{option} is for lines", f"mudroom comment {remarks.fork} PATH:LINE TEXT")
    if args.suggest == text == "-":
        raise UsageError("standard input is the text or the suggestion", "only one of them is -")
    side: Side = "old" if args.old else "new"
    return remarks.add(path, first, last, _given(text), side=side, suggestion=args.suggest and _given(args.suggest))


def _given(text: str) -> str:
    """Return a text of the command line; for ``-`` what standard input has. Raise UsageError if it is not UTF-8."""
    data = sys.stdin.buffer.read().removesuffix(b"\n") if text == "-" else os.fsencode(text)
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise UsageError("the text is not UTF-8", "mudroom comment FORK PATH:LINE TEXT") from None


def _act(action: str, name: str, args: argparse.Namespace, remarks: Remarks, context: Context) -> None:
    if action != "answer" and args.words:
        raise UsageError(f"--{action} takes no text", f"mudroom comment {remarks.fork} --{action} {name}")
    if action == "answer":
        if len(args.words) != 1:
            raise UsageError("the answer has no text", f"mudroom comment {remarks.fork} --answer {name} TEXT")
        remarks.answer(name, _given(args.words[0]))
    elif action == "remove":
        remarks.remove(name)
    elif action == "take":
        remarks.take(name)
    else:
        remarks.settle(name, is_settled=action == "settle")
    if not context.as_json:
        done = {"answer": "answered", "settle": "settled", "reopen": "open again", "remove": "removed"}
        says = done.get(action) or f"its lines are in the fork: mudroom diff {remarks.fork}"
        context.terminal.say(f"{name}: {says}")


def _list(remarks: Remarks, context: Context) -> None:
    listed, terminal, fork = remarks.listed(), context.terminal, remarks.fork
    for one in listed.remarks:
        for line in remark_lines(one, listed.cut_off):
            terminal.out(line)
    for line in listed.damaged:
        terminal.note(line)
    if not listed.remarks and not listed.damaged:
        terminal.say(f"{fork} has no remarks: mudroom comment {fork} PATH:LINE TEXT")
    if listed.point:
        terminal.say(f"what is new since round {listed.round}: mudroom diff {fork}@{listed.point} {fork}")
    if unsent := len(listed.unsent):
        terminal.say(f"{counted(unsent, 'remark')} not sent: mudroom send {fork}")
    if listed.cut_off:
        first, names = listed.cut_off[0], ", ".join(listed.cut_off)
        terminal.say(f"{names}: mudroom send {fork} --again, or mudroom comment {fork} --settle {first}")
