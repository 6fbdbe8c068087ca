"""What a command does, as far as its words tell: classes and parts (``core/command/verdict.py``). Nothing is run or
looked up.

Neither function raises, whatever the bytes. What cannot be told is ``unknown``; a command of several parts is as strict
as its strictest. This is guidance above the sandbox, not the boundary: see docs/COMMANDS.md.
"""

from __future__ import annotations

from collections.abc import Sequence

from mudroom.core.command.locations import SOMEWHERE, CommandFinding, Scene, normal
from mudroom.core.command.program.find import FINDERS
from mudroom.core.command.program.git import GIT
from mudroom.core.command.program.interpreter import INTERPRETERS
from mudroom.core.command.program.system import PROGRAMS
from mudroom.core.command.program.toolchain import TOOLS
from mudroom.core.command.program.wrapper import WRAPPERS
from mudroom.core.command.shell.builtin import BUILTINS
from mudroom.core.command.table_rule import INFORMS, READ, UNSURE, ProgramRule, judged
from mudroom.core.command.verdict import Classification, CommandPart, joined
from mudroom.core.command.word import Word, known, literals, program_name

TABLES: tuple[dict[bytes, ProgramRule], ...] = (BUILTINS, WRAPPERS, GIT, PROGRAMS, FINDERS, INTERPRETERS, TOOLS)
"""In the order in which they are asked; no name is in two of them."""
_DEEPEST = 8
UNTOLD = "a program that cannot be told"
"""The reason of a part whose program is only known once it runs."""


def classify_words(argv: Sequence[bytes], project: bytes | None = None, cwd: bytes | None = None) -> Classification:
    """The classes of a program that is started with exactly these words. ``project`` and ``cwd`` are absolute paths;
    without them every absolute path is taken to lie outside the project, and the command to run at its root."""
    if not argv or any(b"\0" in word for word in argv):
        return joined((CommandPart((), False, UNSURE, "not a command"),))
    try:
        return joined(_words(literals(argv), _scene(project, cwd)))
    except RecursionError:
        return joined((CommandPart((), False, UNSURE, "nested too deeply"),))


def classify_line(line: bytes, project: bytes | None = None, cwd: bytes | None = None) -> Classification:
    """The classes of a line of shell, as bash reads it."""
    try:
        return joined(_line(line, _scene(project, cwd)))
    except RecursionError:
        return joined((CommandPart((), False, UNSURE, "nested too deeply"),))


def _scene(project: bytes | None, cwd: bytes | None) -> Scene:
    root = normal(project) if project else SOMEWHERE
    return Scene(_line, _words, root, (normal(cwd) if cwd else root,))


def _line(line: bytes, scene: Scene) -> Sequence[CommandPart]:
    from mudroom.core.command.shell.line import parts_of

    if scene.depth >= _DEEPEST:
        return (CommandPart((), False, UNSURE, "lines inside lines, too deep"),)
    return parts_of(line, scene._replace(depth=scene.depth + 1))


def _words(words: Sequence[Word], scene: Scene) -> Sequence[CommandPart]:
    finding = _found(words, scene)
    names = known(words)
    part = CommandPart(names, len(names) == len(words), finding.classes, finding.reason)
    return (part, *finding.parts)


def _found(words: Sequence[Word], scene: Scene) -> CommandFinding:
    if not words or not words[0].literal:
        return CommandFinding(UNSURE, UNTOLD)
    name = program_name(words[0].text)
    for table in TABLES:
        rule = table.get(name)
        if rule is not None:
            if len(words) == 2 and words[1].text in INFORMS and words[1].text.startswith(b"--"):
                return CommandFinding(READ, "tells about itself")
            return judged(words, rule, scene)
    return CommandFinding(UNSURE, "a program that is not in the tables")
