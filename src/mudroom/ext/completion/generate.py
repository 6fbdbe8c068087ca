"""The text of a shell's completion, or of the manual page."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from mudroom import __version__
from mudroom.ext.completion.fish import fish
from mudroom.ext.completion.grammar import VerbLine, VerbOption, lines
from mudroom.ext.completion.posix import bash, zsh

# --- The manual page, in man(7) macros (groff_man(7)), from the same lines as the completions ---


DATE = "2026-11-26"
"""The version's date; dev/release sets it."""

_HEAD = """\
.\\" Written by mudroom completion man from mudroom's own parsers.
.TH MUDROOM 1 {date} "mudroom {version}" "User Commands"
.SH NAME
mudroom \\- run commands and coding agents on a staged view of a project
.SH SYNOPSIS
.B mudroom
.I VERB
.RI [ OPTION \\&.\\|.\\|.]
.RB [ \\-\\-
.IR COMMAND \\&.\\|.\\|.]
.SH DESCRIPTION
A command or an agent works on a copy\\-on\\-write view of the project,
in a sandbox, behind a network gate.
Its changes are reviewed, then applied or discarded.
Nothing lands until it is applied, and an apply can be undone.
.PP
The verbs are listed below, each with its options.
.B mudroom
.I VERB
.B \\-\\-help
prints the same.
.PP
All verbs have the options
.BR \\-\\-json ,
which prints one JSON object instead of text, and
.B \\-\\-project
.IR DIR ,
the project, by default that of the current directory.
.SH VERBS
"""
_TAIL = """\
.SH EXIT STATUS
The exit status of the command that was run.
124: out of time; 125: mudroom failed; 126: not executable, or refused;
127: not found.
.PP
Of
.BR "mudroom apply" :
0: applied; 3: conflicts are left; 4: the fork is not what was reviewed;
5: the verify command of the policy failed.
.SH ENVIRONMENT
.TP
.B MUDROOM_STATE
The directory of forks, journals and undo data; default: XDG_STATE_HOME/mudroom.
.TP
.B MUDROOM_KEEPER
0: without a keeper, the process that has everything loaded for the next
command.
.TP
.B NO_COLOR
No colours.
.SH FILES
.TP
.I .mudroom/policy.yaml
The policy of the project.
.TP
.I ~/.local/state/mudroom
Forks, journals and undo data of all projects.
.SH SEE ALSO
.BR git (1),
.BR user_namespaces (7)
"""
_SHARED = ("--json", "--project", "--help")


def man(lines: Sequence[VerbLine], version: str) -> str:
    return (
        _HEAD.format(date=DATE, version=version)
        + "".join(_verb(line) for line in lines if len(line.words) == 1)
        + _TAIL
    )


def _verb(line: VerbLine) -> str:
    name = " ".join(line.words)
    parts = [f'.SS "mudroom {name}"\n', _text(line.help[0].upper() + line.help[1:] + "."), ".PP\n", _text(line.usage)]
    parts += [_option(option) for option in line.options if not set(option.names) & set(_SHARED)]
    if line.examples:
        parts += [".PP\n.nf\n", "".join(map(_line, line.examples.split("\n"))), ".fi\n"]
    return "".join(parts)


def _option(option: VerbOption) -> str:
    names = ", ".join(f"\\fB{_escaped(name)}\\fR" for name in option.names)
    takes = f" \\fI{_escaped(option.takes)}\\fR" if option.takes else ""
    return f".TP\n{names}{takes}\n" + (_text(option.help) if option.help else "\\&\n")


def _text(text: str) -> str:
    """Return filled text as source lines for the manual page. They are wrapped at 68 characters, because escapes
    lengthen a line and a source line should have at most 80 bytes."""
    return "".join(map(_line, textwrap.wrap(text, 68, break_long_words=False, break_on_hyphens=False)))


def _line(row: str) -> str:
    row = _escaped(row.rstrip())
    return ("\\&" + row if row.startswith((".", "'")) or not row else row) + "\n"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\e").replace("-", "\\-").replace("…", "...").replace("\t", "  ")


def generated(name: str) -> str:
    """Return the completion of a shell, or the manual page (``man``)."""
    if name == "man":
        return man(lines(), __version__)
    return {"bash": bash, "zsh": zsh, "fish": fish}[name](lines())
