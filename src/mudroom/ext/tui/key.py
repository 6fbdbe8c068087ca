"""Every key in the review, in one table for the bindings, the bottom line and the help. ``action`` names a screen
method ``action_…`` with its arguments, in Textual's form. ``do`` takes an action's name from the tables in
``ext/tui/app.py``, and its arguments."""

from __future__ import annotations

from typing import NamedTuple

from textual.binding import Binding, BindingType


class Key(NamedTuple):
    names: str
    """In Textual's spelling, separated by commas."""
    shown: str
    action: str
    text: str
    brief: str = ""
    """The word in the bottom line; empty: not shown there."""


REVIEW = (
    Key("j,down", "j ↓", "do('move', 1)", "the next line or file"),
    Key("k,up", "k ↑", "do('move', -1)", "the one before"),
    Key("pagedown,ctrl+f", "PgDn", "do('page', 1)", "a page on"),
    Key("pageup,ctrl+b", "PgUp", "do('page', -1)", "a page back"),
    Key("home,g", "Home g", "do('edge', -1)", "the first"),
    Key("end,G", "End G", "do('edge', 1)", "the last"),
    Key("left,less_than_sign", "←", "do('sideways', -8)", "long lines: to the left"),
    Key("right,greater_than_sign", "→", "do('sideways', 8)", "long lines: to the right"),
    Key("tab", "Tab", "do('other_pane')", "from the list to the differences and back", "pane"),
    Key("enter", "Enter", "do('enter')", "look at the file; fold a directory, or a hunk that changes nothing"),
    Key("escape", "Esc", "do('back')", "back to the list; end a search"),
    Key("space", "Space", "do('choose')", "choose or leave out: a file, a directory, a hunk", "choose"),
    Key("A", "A", "do('choose_all', True)", "choose all that is listed"),
    Key("N", "N", "do('choose_all', False)", "leave out all that is listed"),
    Key("n", "n", "do('hunk', 1)", "the next hunk; after the last one, the next file", "next"),
    Key("p", "p", "do('hunk', -1)", "the hunk before", ""),
    Key("plus,equals_sign", "+", "do('context', 1)", "more unchanged lines around each hunk, in the end all"),
    Key("minus", "-", "do('context', -1)", "fewer"),
    Key("s", "s", "do('side_by_side')", "side by side, from 120 columns on; one below the other"),
    Key("x", "x", "do('split')", "split the hunk into one for each block of changed lines", "split"),
    Key("V", "V", "do('parts')", "packages, cells, keys, tables, members of the file, or its text"),
    Key("v", "v", "do('mark')", "mark as looked at: a hunk, a file, a directory"),
    Key("f", "f", "do('filters')", "show only some files: what runs later, secrets, conflicts …", "filter"),
    Key("o", "o", "do('order')", "the list by risk, or by directory", "order"),
    Key("slash", "/", "do('search')", "show only files whose path has a word in it", "search"),
    Key("c", "c", "do('conflicts')", "conflicts with the project, and what is decided about them", "conflicts"),
    Key("e", "e", "do('effects')", "held effects: choose what an apply sends, look at it, drop it"),
    Key("r", "r", "do('remark')", "write a remark: about the line, the hunk, in the list about the file", "remark"),
    Key("w", "w", "do('remarks')", "what was remarked: answer, take a suggestion, settle, send, what is new"),
    Key("y", "y", "do('observed')", "why: commands and turns observed at the hunk, in the list at the file"),
    Key("m", "m", "do('commits')", "commits that were made in the fork, and what each changes"),
    Key("a", "a", "do('apply')", "bring what is chosen into the project; asks first", "apply"),
    Key("d", "d", "do('discard')", "throw the fork away; asks first"),
    Key("u", "u", "do('undo')", "take the last apply back; asks first", "undo"),
    Key("b", "b", "do('candidates')", "back to the other candidates of its try"),
    Key("t", "t", "do('timeline')", "checkpoints of the fork, and going back to one"),
    Key("l", "l", "do('journal')", "what has happened last in this project"),
    Key("T", "T", "do('theme')", "light or dark; TEXTUAL_THEME=textual-light begins with light"),
    Key("R", "R", "do('reload')", "look again: the fork, or the project, has changed"),
    Key("question_mark", "?", "do('help')", "this help", "help"),
    Key("q", "q", "do('leave')", "quit; nothing is applied, all stays in the fork", "quit"),
)

CONFLICTS = (
    Key("j,down", "j ↓", "move(1)", "the next conflict"),
    Key("k,up", "k ↑", "move(-1)", "the one before"),
    Key("n", "n", "place(1)", "the next place in this file", "place"),
    Key("p", "p", "place(-1)", "the place before"),
    Key("pagedown,space", "PgDn", "page(1)", "a page on"),
    Key("pageup", "PgUp", "page(-1)", "a page back"),
    Key("1", "1", "take('ours')", "the project's version", "project's"),
    Key("2", "2", "take('theirs')", "the fork's version", "fork's"),
    Key("3", "3", "take('both')", "both; of files that cannot be merged, the fork's beside it", "both"),
    Key("4,e", "4", "edit", "edit it, in your own editor", "edit"),
    Key("r", "r", "rule", "as a rule merges it, if the second line says so", "rule"),
    Key("w", "w", "whole", "1, 2 and 3 are for the whole file, or for one place at a time", "whole/place"),
    Key("u", "u", "undecide", "take the decision back", "undecide"),
    Key("question_mark", "?", "help", "this help", "help"),
    Key("escape,q,c", "Esc", "leave", "back to the review", "back"),
)

CANDIDATES = (
    Key("j,down", "j ↓", "do('move', 1)", "the next candidate, path or line"),
    Key("k,up", "k ↑", "do('move', -1)", "the one before"),
    Key("pagedown,space,ctrl+f", "PgDn", "do('page', 1)", "a page on"),
    Key("pageup,ctrl+b", "PgUp", "do('page', -1)", "a page back"),
    Key("home,g", "Home g", "do('edge', -1)", "the first"),
    Key("end,G", "End G", "do('edge', 1)", "the last"),
    Key("left,less_than_sign", "←", "do('sideways', -8)", "long lines: to the left"),
    Key("right,greater_than_sign", "→", "do('sideways', 8)", "long lines: to the right"),
    Key("tab", "Tab", "do('other_pane', 1)", "candidates, paths, differences, and so on", "pane"),
    Key("shift+tab", "S-Tab", "do('other_pane', -1)", "the pane before"),
    Key("escape", "Esc", "do('back')", "back to the candidates"),
    Key("enter", "Enter", "do('enter')", "a candidate: review it, to apply it; a path: look at it", "review"),
    Key("1", "1", "do('side', 0)", "on the left: the next candidate, or the original", "left"),
    Key("2", "2", "do('side', 1)", "on the right: the next one", "right"),
    Key("0", "0", "do('both_sides')", "the two sides that show a difference, for each path"),
    Key("n", "n", "do('hunk', 1)", "the next hunk; after the last one, the next path", "next"),
    Key("p", "p", "do('hunk', -1)", "the hunk before"),
    Key("plus,equals_sign", "+", "do('context', 1)", "more unchanged lines around each hunk, in the end all"),
    Key("minus", "-", "do('context', -1)", "fewer"),
    Key("s", "s", "do('side_by_side')", "side by side, from 120 columns on; one below the other", "side by side"),
    Key("f", "f", "do('filters')", "other paths: different, only in some, the same in all", "paths"),
    Key("o", "o", "do('output')", "the end of the judge's output about the candidate", "output"),
    Key("T", "T", "do('theme')", "light or dark"),
    Key("R", "R", "do('reload')", "look again: a candidate has changed"),
    Key("question_mark", "?", "do('help')", "this help", "help"),
    Key("q", "q", "do('leave')", "quit; nothing is applied", "quit"),
)

LEGEND = (
    ("[x] [-] [ ]", "chosen, chosen in part, left out"),
    ("!", "runs later: when somebody builds, installs, opens or enters the project"),
    ("S", "it is a secret by its name or its content"),
    ("P", "left out unless it is chosen by name: git's hooks and settings, .mudroom, a work tree"),
    ("C", "conflicts with the project as it is now; c decides"),
    ("B L I", "binary, large, ignored by git"),
    ("v", "you have marked it as looked at"),
)


def bindings(keys: tuple[Key, ...]) -> list[BindingType]:
    return [Binding(key.names, key.action, key.text, show=False) for key in keys]


_FIRST = ("help", "quit", "back", "apply", "choose", "conflicts")
"""First in the bottom line, because a narrow terminal cuts it."""


def brief(keys: tuple[Key, ...]) -> str:
    """Return the bottom line."""
    first = [key for brief in _FIRST for key in keys if key.brief == brief]
    shown = [*first, *(key for key in keys if key.brief and key not in first)]
    return " " + "  ".join(f"{key.shown.split(' ', maxsplit=1)[0]} {key.brief}" for key in shown)
