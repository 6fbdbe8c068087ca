"""Classify a command by its words: classes and parts (``core/command/verdict.py``). Nothing is run or looked up.

Neither public function raises, whatever the bytes. A command that cannot be classified is ``unknown``; a command with
several parts is as strict as its strictest part. Classes are guidance above the sandbox, not the boundary: see
docs/COMMANDS.md.
"""

from __future__ import annotations

from collections.abc import Sequence

from mudroom.core.command.locations import SOMEWHERE, CommandContext, CommandFinding, normal
from mudroom.core.command.program.find import FINDERS
from mudroom.core.command.program.git import GIT
from mudroom.core.command.program.interpreter import INTERPRETERS
from mudroom.core.command.program.system import PROGRAMS
from mudroom.core.command.program.toolchain import TOOLS
from mudroom.core.command.program.wrapper import WRAPPERS
from mudroom.core.command.shell.builtin import BUILTINS
from mudroom.core.command.table_rule import INFORMS, READ, UNSURE, ProgramRule, judge_words
from mudroom.core.command.verdict import Classification, CommandPart, join_parts
from mudroom.core.command.word import Word, known_words, literal_words, program_name

TABLES: tuple[dict[bytes, ProgramRule], ...] = (BUILTINS, WRAPPERS, GIT, PROGRAMS, FINDERS, INTERPRETERS, TOOLS)
"""In lookup order. No name is in two tables."""
_DEEPEST = 8
UNKNOWN_PROGRAM = "a program that is not known before it runs"
"""A part's reason if its program is unknown before it runs."""


def classify_words(argv: Sequence[bytes], project: bytes | None = None, cwd: bytes | None = None) -> Classification:
    """Classify a program started with exactly these words. ``project`` and ``cwd`` are absolute paths. Without them,
    every absolute path counts as outside the project, and the command runs in the project's root."""
    if not argv or any(b"\0" in word for word in argv):
        return join_parts((CommandPart((), False, UNSURE, "not a command"),))
    try:
        return join_parts(_words(literal_words(argv), _context(project, cwd)))
    except RecursionError:
        return join_parts((CommandPart((), False, UNSURE, "nested too deeply"),))


def classify_line(line: bytes, project: bytes | None = None, cwd: bytes | None = None) -> Classification:
    """Classify a shell line, as bash parses it."""
    try:
        return join_parts(_line(line, _context(project, cwd)))
    except RecursionError:
        return join_parts((CommandPart((), False, UNSURE, "nested too deeply"),))


def _context(project: bytes | None, cwd: bytes | None) -> CommandContext:
    root = normal(project) if project else SOMEWHERE
    return CommandContext(_line, _words, root, (normal(cwd) if cwd else root,))


def _line(line: bytes, context: CommandContext) -> Sequence[CommandPart]:
    from mudroom.core.command.shell.line import parts_of

    if context.depth >= _DEEPEST:
        return (CommandPart((), False, UNSURE, "lines of shell nested too deeply"),)
    return parts_of(line, context._replace(depth=context.depth + 1))


def _words(words: Sequence[Word], context: CommandContext) -> Sequence[CommandPart]:
    finding = _finding(words, context)
    names = known_words(words)
    part = CommandPart(names, len(names) == len(words), finding.classes, finding.reason)
    if finding.aims:
        milder = tuple(name for name in finding.classes if name != "host_escape_risk")
        part = part._replace(aims=finding.aims, otherwise=milder)
    elif "host_escape_risk" in finding.classes:
        from mudroom.core.command.program.aim import add_aims

        part = add_aims(part, words, context, _finding)
    return (part, *finding.parts)


def _finding(words: Sequence[Word], context: CommandContext) -> CommandFinding:
    if not words or not words[0].literal:
        return CommandFinding(UNSURE, UNKNOWN_PROGRAM)
    name = program_name(words[0].text)
    for table in TABLES:
        rule = table.get(name)
        if rule is not None:
            informs = len(words) == 2 and words[1].text in INFORMS and not rule.evaluates
            if informs and words[1].text.startswith(b"--"):
                return CommandFinding(READ, "prints its version or help")
            return judge_words(words, rule, context._replace(program=name))
    return CommandFinding(UNSURE, "mudroom does not know this program")
