"""``mudroom hook install AGENT``, and each agent's state.

Rules of this file:
1. A file is written as a whole, under a name beside it, and keeps its mode. A link is followed to its file, with a
   note; in a project it must not lead out of the project.
2. A record in the state directory has each file as it was and as it was written. ``--remove`` restores the former if
   the file is still the latter; if the user has edited it since, only mudroom's additions are taken out.
3. All files are read and all edits are made in memory before the first file is written.
"""

from __future__ import annotations

import argparse
import json
import os
import stat
from collections.abc import Mapping, Sequence
from contextlib import suppress

from mudroom.cli.parser import make_parser, parse
from mudroom.cli.project_session import open_session, project_of
from mudroom.cli.terminal.context import Context
from mudroom.core.text.sha256 import sha256_hex
from mudroom.core.tree.path import is_below, show
from mudroom.errors import UsageError
from mudroom.ext.agents.cli.hook_run import own_words
from mudroom.ext.agents.core import jsonc
from mudroom.ext.agents.core.hook_contract import CONTRACTS
from mudroom.ext.agents.core.hook_settings import (
    SCOPES,
    SECOND_LINES,
    Edit,
    HookSetup,
    JsonEdit,
    OwnFile,
    SettingsError,
    edits,
    faults,
    installed,
    removed,
)
from mudroom.ext.agents.core.jsonc import JsoncError
from mudroom.policy.config import places
from mudroom.session import require_project
from mudroom.stage.private_directory import make_private, require_private
from mudroom.stage.private_file import read
from mudroom.typing import Any, NamedTuple
from mudroom.vault.store.store import vault_path

_LIMIT = 8 << 20
"""Bytes in a settings file."""
_USER_SETTINGS = {
    "claude": ("CLAUDE_CONFIG_DIR", "~/.claude"),
    "codex": ("CODEX_HOME", "~/.codex"),
    "gemini": ("", "~/.gemini"),
    "opencode": ("", "~/.config/opencode"),
    "cursor": ("", "~/.cursor"),
    "copilot": ("COPILOT_HOME", "~/.copilot"),
}
"""The variable that names an agent's settings directory, and the default directory."""
_PROJECT_SETTINGS = {"copilot": ".github", "opencode": ".opencode"}
_AFTERWARDS = {
    "codex": "codex runs a hook only when you have trusted it: start codex, /hooks. It reads .codex "
    "of a trusted project only",
    "gemini": "gemini reads hooks of a project only in a folder that is trusted before it starts, which --skip-trust "
    "is too late for: --scope user holds in all folders",
    "copilot": "copilot reads hooks of a project only in a trusted folder",
}


class _Change(NamedTuple):
    path: str
    """The file itself: links are resolved."""
    link: str
    """The name under which the agent reads it, if that is a link."""
    wanted: tuple[Edit, ...]
    before: str | None
    after: str | None


def install(words: Sequence[str], fork: str | None, tools: Sequence[str], context: Context) -> int:
    """Install, check or remove a hook. Return 1 if a check finds a fault."""
    args = _arguments(words, fork, tools)
    setup, record = _setup(args, context)
    if args.check:
        return _check(setup, context)
    changes = [_change(path, wanted, setup, record, remove=args.remove) for path, wanted in _by_file(setup).items()]
    changes = [change for change in changes if change.before != change.after]
    _print(changes, setup, args, context)
    if args.dry_run:
        return 0
    for change in changes:
        _write(change)
    if args.remove:
        _forget(setup)
    else:
        _remember(setup, record, changes)
        if setup.agent == "gemini" and setup.is_project:
            _make_mounts(setup, context)
    return 0


def _make_mounts(setup: HookSetup, context: Context) -> None:
    """Make the directory in which forks are mounted, before the first mount."""
    with open_session(context):
        os.makedirs(os.path.dirname(setup.mount), mode=0o700, exist_ok=True)


def _arguments(words: Sequence[str], fork: str | None, tools: Sequence[str]) -> argparse.Namespace:
    parser = make_parser("hook install", "put an agent's commands and edits through mudroom")
    parser.add_argument("agent", choices=tuple(CONTRACTS), help="the agent")
    doing = parser.add_mutually_exclusive_group()
    doing.add_argument("--dry-run", action="store_true", help="print the changes as a diff, and make none")
    doing.add_argument("--check", action="store_true", help="exit code 1 if it is missing, changed or outdated")
    parser.add_argument("--remove", action="store_true", help="take out what was added")
    parser.add_argument("--scope", choices=SCOPES, default="project", help="whose settings; default: the project's")
    parser.add_argument("--fork", metavar="NAME", default=fork, help="the fork; default: the agent's name")
    parser.add_argument(
        "--allow-tool", action="append", default=list(tools), metavar="NAME", help="a tool to leave to the agent"
    )
    return parse(parser, words, in_order=False)


def _setup(args: argparse.Namespace, context: Context) -> tuple[HookSetup, dict[str, Any]]:
    """Return the setup to install, and the record of the installed one. Omitted options are taken from the record."""
    found = places(context.environ)
    project = project_of(context)
    if args.scope == "project":
        project = require_project(project, found.state, found.home)[0]
    settings = _settings(args.agent, args.scope, project, context)
    own = os.path.join(found.state, b"hooks", _identity(settings, args.agent))
    record = _record(own)
    fork = args.fork or record.get("fork") or args.agent
    tools = tuple(args.allow_tool or record.get("tools", ()))
    if args.scope == "project":
        mount = vault_path(found.state, project) + b"/mounts/" + os.fsencode(fork)
    else:
        mount = found.state + b"/vaults/*/mounts/" + os.fsencode(fork)
    setup = HookSetup(
        args.agent, args.scope, fork, own_words(), _text(project), _text(settings), _text(mount), _text(own), tools
    )
    return setup, record


def _text(path: bytes) -> str:
    try:
        return path.decode()
    except UnicodeDecodeError:
        raise UsageError(f"{show(path)} is not UTF-8, and settings of agents are", "rename it") from None


def _identity(settings: bytes, agent: str) -> bytes:
    return f"{agent}-{sha256_hex(settings)[:16]}".encode()


def _settings(agent: str, scope: str, project: bytes, context: Context) -> bytes:
    if scope == "project":
        return os.path.join(project, os.fsencode(_PROJECT_SETTINGS.get(agent, "." + agent)))
    variable, usual = _USER_SETTINGS[agent]
    given = context.environ.get(variable.encode() or b"-", b"")
    if agent == "opencode":
        xdg = context.environ.get(b"XDG_CONFIG_HOME", b"")
        given = xdg + b"/opencode" if xdg.startswith(b"/") else b""
    home = places(context.environ).home
    return os.path.abspath(given) if given else home + os.fsencode(usual[1:])


def _by_file(setup: HookSetup) -> dict[str, tuple[Edit, ...]]:
    files: dict[str, tuple[Edit, ...]] = {}
    for edit in edits(setup):
        files[edit.file] = (*files.get(edit.file, ()), edit)
    return files


def _change(
    path: str, wanted: tuple[Edit, ...], setup: HookSetup, record: Mapping[str, Any], *, remove: bool
) -> _Change:
    real, before = _read(path, setup)
    known = record.get("files", {}).get(real)
    try:
        if known is not None and known["installed"] == before:
            base = known["original"]
        else:
            base = removed(before, _added(wanted, None if known is None else known["original"]))
        if remove:
            after = None if known is not None and known["original"] is None and _is_bare(base) else base
        else:
            after = installed(base, wanted)
    except SettingsError as error:
        raise UsageError(f"{path}: {error}", "nothing was changed") from None
    return _Change(real, path if real != path else "", wanted, before, after)


def _is_bare(text: str | None) -> bool:
    """Return whether a file has nothing but the schema that opencode writes into each file that it reads."""
    if text is None or not text.lstrip("\ufeff \t\r\n").startswith("{"):
        return False
    try:
        value = jsonc.parse(text).value
    except JsoncError:
        return False
    return isinstance(value, dict) and not value.keys() - {"$schema"}


def _added(wanted: tuple[Edit, ...], original: str | None) -> tuple[Edit, ...]:
    """Return the edits without values that the user's file had before."""
    if not original:
        return wanted
    node = jsonc.parse(original) if any(isinstance(edit, JsonEdit) for edit in wanted) else None
    return tuple(
        edit
        for edit in wanted
        if not (isinstance(edit, JsonEdit) and node and edit.value in jsonc.values_at(node, edit.path))
    )


# --- files ---


def _read(path: str, setup: HookSetup) -> tuple[str, str | None]:
    """Return the path with its links resolved, and the file's text; None if there is none."""
    real = os.path.realpath(path)
    in_project = setup.is_project and is_below(os.fsencode(path), os.fsencode(setup.project))
    if in_project and not is_below(os.fsencode(real), os.fsencode(setup.project)):
        raise UsageError(f"{path} is a link that leads out of the project, to {real}", "replace it by a file")
    try:
        descriptor = os.open(real, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        if os.path.islink(path):
            raise UsageError(
                f"{path} is a link to {real}, which does not exist", "remove it, or make that file"
            ) from None
        return real, None
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}", f"ls -l {path}") from None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise UsageError(f"{path} is not a regular file", f"ls -ld {path}")
    with open(descriptor, "rb") as stream:
        data = stream.read(_LIMIT + 1)
    if len(data) > _LIMIT:
        raise UsageError(f"{path} is larger than any settings file ({_LIMIT >> 20} MiB)", f"ls -l {path}")
    try:
        return real, data.decode()
    except UnicodeDecodeError:
        raise UsageError(f"{path} is not UTF-8", "nothing was changed") from None


def _write(change: _Change) -> None:
    """Replace a file as a whole, or remove it. Raise OSError if that fails."""
    if change.after is None:
        os.unlink(change.path)
        with suppress(OSError):  # it is not empty, or it was there before
            os.rmdir(os.path.dirname(change.path))
        return
    modes = [edit.mode for edit in change.wanted if isinstance(edit, OwnFile)]
    with suppress(FileNotFoundError):
        modes.insert(0, stat.S_IMODE(os.stat(change.path).st_mode))
    os.makedirs(os.path.dirname(change.path), exist_ok=True)
    beside = f"{change.path}.{os.getpid()}.mudroom"
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        with open(descriptor, "wb") as stream:
            stream.write(change.after.encode())
            stream.flush()
            os.fsync(descriptor)
            os.fchmod(descriptor, (modes or [0o644])[0])
        os.replace(beside, change.path)
    except BaseException:
        os.unlink(beside)
        raise


def _record(own: bytes) -> dict[str, Any]:
    data = read(own + b"/record.json", _LIMIT * 4)
    if data is None:
        return {}
    try:
        record = json.loads(data)
    except ValueError:
        return {}  # the additions are found by their marks then
    return record if isinstance(record, dict) else {}


def _remember(setup: HookSetup, record: Mapping[str, Any], changes: Sequence[_Change]) -> None:
    """Write an installation's record. ``original`` is the text without mudroom's edits."""
    files = dict(record.get("files", {}))
    for change in changes:
        known = files.get(change.path)
        if known is not None and known["installed"] == change.before:
            original = known["original"]
        else:
            original = removed(change.before, change.wanted)
        files[change.path] = {"original": original, "installed": change.after}
    text = json.dumps({"agent": setup.agent, "fork": setup.fork, "tools": setup.tools, "files": files}, indent=1)
    path = f"{setup.own}/record.json"
    own = os.fsencode(setup.own)
    require_private(os.path.dirname(os.path.dirname(own)))
    make_private(own)
    _write(_Change(path, "", (OwnFile(path, "", 0o600),), None, text))
    os.chmod(path, 0o600)


def _forget(setup: HookSetup) -> None:
    with suppress(FileNotFoundError):
        os.unlink(f"{setup.own}/record.json")
    with suppress(OSError):
        os.rmdir(setup.own)


# --- output ---


def _print(changes: Sequence[_Change], setup: HookSetup, args: argparse.Namespace, context: Context) -> None:
    done = "removed from" if args.remove else "installed in"
    if context.as_json:
        rows = [
            {"path": change.path, "link": change.link or None, "removed": change.after is None} for change in changes
        ]
        report = {"schema": "mudroom.hook/1", "agent": setup.agent, "scope": setup.scope, "fork": setup.fork}
        context.terminal.json(report | {"dry_run": args.dry_run, "files": rows})
        return
    for change in changes:
        if change.link:
            context.terminal.note(f"{change.link} is a link: {change.path} is edited")
        if args.dry_run:
            context.terminal.out(_difference(change))
        else:
            context.terminal.say(f"{done} {change.path}")
    if args.remove and setup.is_project and os.path.lexists(setup.mount):
        context.terminal.say(f"its fork stays, and is mounted: mudroom diff {setup.fork}, mudroom unmount {setup.fork}")
    if not changes:
        context.terminal.say(f"{setup.agent}: nothing to change")
    elif not args.remove and not args.dry_run:
        context.terminal.say(
            f"commands and edits of {setup.agent} go into the fork {setup.fork}: mudroom diff {setup.fork}"
        )
        context.terminal.say(f"if the hook gives no answer: {SECOND_LINES[setup.agent]}")
        if setup.agent in _AFTERWARDS:
            context.terminal.note(_AFTERWARDS[setup.agent])
        context.terminal.note(
            f"a hook does not confine {setup.agent} itself (docs/HOOKS.md); mudroom {setup.agent} does"
        )


def _difference(change: _Change) -> str:
    import difflib

    before = (change.before or "").splitlines()
    after = (change.after or "").splitlines()
    names = (
        "/dev/null" if change.before is None else change.path,
        "/dev/null" if change.after is None else change.path,
    )
    return "\n".join(difflib.unified_diff(before, after, *names, lineterm=""))


def _check(setup: HookSetup, context: Context) -> int:
    found = _faults(setup)
    if context.as_json:
        report = {"schema": "mudroom.hook/1", "agent": setup.agent, "scope": setup.scope, "fork": setup.fork}
        context.terminal.json(report | {"faults": found})
    else:
        for fault in found:
            context.terminal.out(fault)
        if found:
            option = "" if setup.is_project else f" --scope {setup.scope}"
            context.terminal.note(f"mudroom hook install {setup.agent}{option} writes it")
        if not found:
            context.terminal.out(f"{setup.agent}: installed for the {setup.scope}, fork {setup.fork}")
    return 1 if found else 0


def _faults(setup: HookSetup) -> list[str]:
    found = []
    for path, wanted in _by_file(setup).items():
        try:
            found += [f"{path}: {fault}" for fault in faults(_read(path, setup)[1], wanted)]
        except SettingsError as error:
            found.append(f"{path}: {error}")
        if any(isinstance(edit, OwnFile) and edit.mode & 0o100 for edit in wanted) and not os.access(path, os.X_OK):
            found.append(f"{path}: is not executable" if os.path.exists(path) else f"{path}: is missing")
    return list(dict.fromkeys(found))


def print_state(context: Context) -> int:
    """Print a line for each known agent: its version here, the contract's version, and where a hook is."""
    rows = []
    for agent, contract in CONTRACTS.items():
        scopes = {scope: _scope_state(agent, scope, context) for scope in SCOPES}
        rows.append({"agent": agent, "tested": contract.tested, "here": _version(contract.program), **scopes})
    if context.as_json:
        context.terminal.json({"schema": "mudroom.hooks/1", "agents": rows})
        return 0
    for row in rows:
        here = f"{row['here']} here" if row["here"] else "not here"
        tested = f"contract of {row['tested']}" if row["tested"] else "contract from documents, not tried"
        context.terminal.out(
            f"{row['agent']:<9} {here:<22} {tested:<36} project: {row['project']}; user: {row['user']}"
        )
    return 0


def installed_scopes(agent: str, context: Context) -> list[str]:
    """Return the scopes in which the agent's hook is installed, for the context's project."""
    if agent not in CONTRACTS:
        return []
    return [scope for scope in SCOPES if _scope_state(agent, scope, context).startswith("installed")]


def _scope_state(agent: str, scope: str, context: Context) -> str:
    args = argparse.Namespace(agent=agent, scope=scope, fork=None, allow_tool=[])
    try:
        setup, _record_of = _setup(args, context)
        found = _faults(setup)
    except UsageError as error:
        return f"cannot be told: {error.message}"
    if not found:
        return f"installed, fork {setup.fork}"
    return (
        "none" if len(found) >= len(edits(setup)) and all("missing" in fault for fault in found) else "broken (--check)"
    )


def _version(program: str) -> str:
    """Return the npm package's version for a program on PATH, "yes" if it is not an npm package, empty if there is
    none. The program is not run."""
    import shutil

    path = shutil.which(program)
    if path is None:
        return ""
    directory = os.path.dirname(os.path.realpath(path))
    for _level in range(4):
        with (
            suppress(OSError, ValueError, KeyError, TypeError),
            open(f"{directory}/package.json", encoding="utf-8") as file,
        ):
            return str(json.load(file)["version"])
        directory = os.path.dirname(directory)
    return "yes"
