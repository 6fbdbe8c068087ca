"""Presets on the command line: list them, ask about words that may be a preset or a host, and report unknown ones."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterator, Sequence

from mudroom.cli.terminal.context import Context
from mudroom.cli.terminal.fold import fold_beside
from mudroom.core.network.host_entry import UnknownPreset, expand, parse_entry
from mudroom.core.network.host_pattern import PRESET
from mudroom.core.network.preset import PRESETS, held_note
from mudroom.core.network.upload_host import upload_note, uploads_of
from mudroom.errors import UsageError

_ASKED = 3
"""Most times that the question is asked, if the answers are not valid."""


def print_presets(active: Collection[str], words: Sequence[str], context: Context) -> int:
    """List the presets named by ``words``, with or without @; all if there are no words. ``active`` names the presets
    that a rule allows."""
    presets = {name: PRESETS[name] for name in map(_name_of, words)} if words else PRESETS
    if context.as_json:
        rows = [
            preset._asdict()
            | {"name": name, "on": name in active, "holds": dict(_held_hosts(name))}
            | {"uploads": {host: note for host in preset.hosts if (note := uploads_of(host.partition(":")[0]))}}
            for name, preset in presets.items()
        ]
        context.terminal.json({"schema": "mudroom.net-presets/1", "presets": rows})
        return 0
    for name, preset in presets.items():
        mark = "on " if name in active else "   "
        takes = "; accepts uploads" if preset.takes else ""
        text = f"{preset.about}{takes}: {', '.join(preset.hosts)}"
        context.terminal.out(fold_beside(f"{mark}{PRESET + name:<13} ", text, context.terminal.columns(1)))
        for host in preset.hosts:
            note = upload_note(host.partition(":")[0])
            if note:
                context.terminal.out(fold_beside(" " * 17, f"{host}: {note}", context.terminal.columns(1)))
        for host, note in _held_hosts(name):
            context.terminal.out(fold_beside(" " * 17, f"{host}: {note}", context.terminal.columns(1)))
    examples = " ".join(PRESET + name for name in presets) if words else "@npm @pypi"
    them = "it" if len(presets) == 1 else "them"
    context.terminal.say(f"mudroom net allow {examples} turns {them} on for this project, on this machine")
    return 0


def _held_hosts(name: str) -> Iterator[tuple[str, str]]:
    """Yield the hosts that a ``hold`` of the preset treats in a way of their own, and how."""
    for rule in expand([parse_entry(PRESET + name, "hold")]):
        if note := held_note(rule):
            yield rule.pattern, note


def _name_of(word: str) -> str:
    """Return a preset's name. Raise UsageError if there is no such preset."""
    try:
        return parse_entry(PRESET + word.lower().removeprefix(PRESET), "allow").pattern[len(PRESET) :]
    except UnknownPreset as error:
        raise unknown_preset(error, "net presets") from error


def chosen_entry(text: str, action: str, context: Context) -> str:
    """Return the intended entry. If a bare word is also a preset's name, ask the user. Raise UsageError with the
    command for each meaning if there is no terminal or no answer."""
    if text.lower() not in PRESETS:
        return text
    name, host = text.lower(), f"{text.lower()}."
    hosts = PRESETS[name].hosts
    unclear = UsageError(
        f"{name} is a preset ({', '.join(hosts)}), and may be a host",
        f"mudroom net {action} {PRESET}{name}; the host: mudroom net {action} {host}",
    )
    terminal = context.terminal
    if context.as_json or not terminal.interactive:
        raise unclear
    for _time in range(_ASKED):
        question = terminal.style(f"{name}: the preset ({', '.join(hosts)}), or a host of that name?", "bold")
        reply = terminal.ask(f"{question}  [p]reset  [h]ost: ")
        if reply.strip() in ("p", "h"):
            return PRESET + name if reply.strip() == "p" else host
        if not reply:
            terminal.say()
            break
    raise unclear


def unknown_preset(error: UnknownPreset, words: str) -> UsageError:
    """Return the error with the probably intended command. ``words`` stand before the host: ``net allow``."""
    meant = " ".join(shlex.quote(PRESET + name) for name in error.near)
    return UsageError(error.problem, f"mudroom {words} {meant}" if meant else "mudroom net presets lists them")
