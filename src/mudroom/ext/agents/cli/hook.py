"""``mudroom hook``: send an agent's commands and edits through mudroom, while the agent keeps its own process."""

from __future__ import annotations

import argparse

from mudroom.cli.terminal.context import Context
from mudroom.errors import UsageError
from mudroom.ext.agents.cli.hook_install import install, print_state
from mudroom.ext.agents.cli.hook_run import answer_event

EXAMPLES = """\
examples:
  mudroom hook                           the known agents, and where a hook is installed
  mudroom hook install claude --dry-run  the changes of its settings, as a diff
  mudroom hook install claude            commands and edits of claude in this project go into the fork claude
  mudroom hook install codex --scope user   in all projects
  mudroom hook install claude --check    exit code 1, and what is missing, changed or outdated
  mudroom hook install claude --remove   exactly what was added
  mudroom diff claude, mudroom apply claude
  mudroom hook shell ~/shims/agent          writes bash, sh, zsh there, as far as they are installed
  SHELL=~/shims/agent/bash some-agent       its commands run in the fork agent, named after the directory
  MUDROOM_FORK=try-1 make SHELL=$HOME/shims/agent/sh

Agents: claude, codex, gemini, cursor, opencode, copilot. A hook does not confine the agent's own process, its MCP
servers or hooks of your own (docs/HOOKS.md): mudroom claude does. A shell of
hook has a shell's forms: -c, -lc, a script, standard input, and without any of these a shell in the fork."""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--fork", metavar="NAME", help="the fork; default: the name of the agent, or of DIR")
    parser.add_argument(
        "--allow-tool", action="append", metavar="NAME", help="a tool to leave to the agent; * at the end for several"
    )
    parser.add_argument(
        "--prefix", metavar="PROGRAM", help="for run: what the agent starts its commands with, if it is set"
    )
    parser.add_argument(
        "words",
        nargs=argparse.REMAINDER,
        metavar="install|run AGENT, shell DIR",
        help="without: the state of each agent",
    )


def execute(args: argparse.Namespace, context: Context) -> int:
    action, *rest = args.words or ["state"]
    if action == "run":
        if len(rest) != 1:
            raise UsageError("hook run takes the name of one agent", "mudroom hook run claude")
        return answer_event(rest[0], args.fork, args.allow_tool or (), context, args.prefix)
    if action == "install":
        return install(rest, args.fork, args.allow_tool or [], context)
    if action == "shell":
        from mudroom.ext.agents.cli.hook_shell import write_shells

        return write_shells(rest, args.fork, context)
    if action == "state" and not rest:
        return print_state(context)
    removes = " --remove" if action in ("uninstall", "remove", "rm") else ""
    raise UsageError(f"there is no action {action!r} of hook", f"mudroom hook install claude{removes}")
