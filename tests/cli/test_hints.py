"""Commands that mudroom names in its messages: each exists, and works when it is pasted into a shell, in the state in
which it was named."""

from __future__ import annotations

import argparse
import ast
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from conftest import Place
from mudroom.cli.main import VERBS, offered_verbs, verb_parser
from mudroom.core.approval.approval import HostQuestion
from screen import BASH, Screen
from test_asking import ASK, NOBODY
from test_vault_verb import MUDROOM, Cli

SOURCE = Path(__file__).parents[2] / "src" / "mudroom"
NPM = "registry.npmjs.org"


# --- each command exists ---


NAMED = re.compile(rf"(?<![\w/.`-])mudroom ({'|'.join(VERBS)})\b((?: [^\s;,()`]+)*)")


def texts(path: Path) -> Iterator[str]:
    """The texts of a module, without docstrings; an inserted value is X."""
    tree = ast.parse(path.read_text())
    documents = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    parts = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else "X" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documents | parts:
            yield node.value


def options_of(parser: Any) -> set[str]:
    """The options of a parser, and of those of its actions."""
    options = {option for action in parser._actions for option in action.option_strings}
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            options.update(*map(options_of, action.choices.values()))
    return options


def actions_of(parser: Any) -> set[str]:
    """The words that a parser takes first; empty if any."""
    return {word for action in parser._actions if not action.option_strings for word in action.choices or ()}


def test_a_command_that_is_named_exists() -> None:
    """Its verb, its action and its options; other words may be prose ("undo takes it back")."""
    known: dict[str, set[str]] = {}
    actions: dict[str, set[str]] = {}
    wrong, commands, offered = [], 0, offered_verbs()
    for path in sorted(SOURCE.rglob("*.py")):
        for text in texts(path) if NAMED.search(path.read_text()) else ():
            for match in NAMED.finditer(text):
                verb, words = match[1], match[2].split(" -- ")[0].split()
                commands += 1
                if verb not in offered:
                    continue  # of a satellite that is absent
                if verb not in known:
                    parser = verb_parser(verb)
                    known[verb], actions[verb] = options_of(parser), actions_of(parser)
                    if verb == "hook":  # the parser of an action is made when it is used
                        source = (SOURCE / "ext/agents/cli/hook_install.py").read_text()
                        known[verb].update(re.findall(r'add_argument\(\s*"(--[a-z-]+)"', source))
                if (
                    actions[verb]
                    and words
                    and re.fullmatch("[a-z]+", words[0])
                    and words[0] not in {*actions[verb], "shows"}
                ):
                    wrong.append(f"{path.relative_to(SOURCE)}: {match[0]}")
                options = [option[0] for word in words if (option := re.match(r"--?[a-z][a-z-]*", word))]
                wrong += [f"{path.relative_to(SOURCE)}: {match[0]}" for option in options if option not in known[verb]]
    assert commands > 150
    assert wrong == []


# --- each command works ---


PROSE = r"(?= (?:lists|shows|takes|does|turns|says|writes|and|has|would|all)\b)"
COMMAND = re.compile(rf"mudroom (?:{'|'.join(VERBS)})\b[^;)\n]*?(?:{PROSE}|(?=, |;|\)|$|: ))", re.M)


class Hinted(NamedTuple):
    """A situation, and what its commands are for."""

    prepare: Callable[[Cli], str]
    """Bring it about; return the message."""
    commands: tuple[str, ...]
    """Those that the message names, each to be pasted in that state."""
    works: Callable[[Cli], bool] = lambda _cli: True
    """Whether the state is, after all of them, as the message promises."""


def message(*words: str) -> Callable[[Cli], str]:
    def prepare(cli: Cli) -> str:
        done = cli(*words)
        return done.stdout + done.stderr

    return prepare


def after(*steps: Callable[[Cli], str]) -> Callable[[Cli], str]:
    return lambda cli: [step(cli) for step in steps][-1]


def policy(text: str) -> Callable[[Cli], str]:
    return lambda cli: str(cli.place.write(".mudroom/policy.yaml", text))


def asks(host: str) -> Callable[[Cli], str]:
    """A command that wants a host, without anybody to ask."""

    def prepare(cli: Cli) -> str:
        cli.place.write("ask.py", ASK)
        done = cli("run", "--yes", "--", sys.executable, "ask.py", host)
        return done.stdout.partition("\n")[2] + done.stderr

    return prepare


def ignored(cli: Cli) -> str:
    """A question on a terminal that ends without an answer."""
    cli.place.write("ask.py", ASK)
    screen = Screen(cli.place, *MUDROOM, "run", "--no", "--", sys.executable, "ask.py", f"{NPM}:443", columns=250)
    screen.expect(r"\[p\]reset npm: 3 hosts  .*  then Enter\r\n")
    screen.type("?\n")
    screen.expect(r"\? is no answer. o: .*; p: Always allow the preset npm: 3 hosts \(allow @npm\).*; then Enter\r\n")
    screen.type("?\n")
    match = screen.expect(r"refused: [^\n]*\n")
    screen.exit_code()
    told = match.group().decode().strip()
    assert "denies it" not in told, "nobody has denied it"
    return told


def untrusted(cli: Cli) -> str:
    """An answers file that came with the project."""
    del cli.environment["MUDROOM_TRUST_POLICY"]
    cli.place.write(".mudroom/local/permissions.yaml", 'allow:\n  - "@npm"\n', mode=0o600).parent.chmod(0o700)
    return cli("net", "ls").stderr


def allowed(*hosts: str) -> Callable[[Cli], bool]:
    return lambda cli: cli("net", "why", *hosts).returncode == 0


def denied(host: str) -> Callable[[Cli], bool]:
    return lambda cli: ": deny: permissions" in cli("net", "why", host).stdout


SITUATIONS = {
    "a bare word": Hinted(
        message("net", "allow", "npm"),
        ("mudroom net allow @npm", "mudroom net allow npm."),
        allowed(NPM, "nodejs.org", "npm"),
    ),
    "a bare word, denied": Hinted(
        message("net", "deny", "npm"), ("mudroom net deny @npm", "mudroom net deny npm."), denied("npm:22")
    ),
    "a slip of the key": Hinted(message("net", "allow", "@nmp"), ("mudroom net allow @npm",), allowed(NPM)),
    "a tool": Hinted(
        message("net", "allow", "@apt"), ("mudroom net allow @debian @ubuntu",), allowed("security.debian.org")
    ),
    "no such preset": Hinted(message("net", "allow", "@qqqqqq"), ("mudroom net presets",)),
    "the list of presets": Hinted(
        lambda cli: cli("net", "presets").stderr, ("mudroom net allow @npm @pypi",), allowed(NPM, "pypi.org")
    ),
    "no rules": Hinted(message("net", "ls"), ("mudroom net allow @npm", "mudroom net presets"), allowed(NPM)),
    "a host of a preset is removed": Hinted(
        after(message("net", "allow", "@npm"), message("net", "rm", NPM)),
        ("mudroom net rm @npm",),
        lambda cli: not allowed(NPM)(cli),
    ),
    "a preset is removed by its bare name": Hinted(
        after(message("net", "deny", "@npm"), message("net", "rm", "npm")), ("mudroom net rm @npm",)
    ),
    "what was never allowed": Hinted(message("net", "rm", "a.com"), ("mudroom net ls",)),
    "a server on this machine": Hinted(
        message("net", "why", "[::1]:8377"), ("mudroom net allow '[::1]:8377'",), allowed("[::1]:8377")
    ),
    "a host that was refused": Hinted(
        asks(f"{NOBODY}:8443"), (f"mudroom net allow {NOBODY}:8443",), allowed(f"{NOBODY}:8443")
    ),
    "a registry that was refused": Hinted(asks(f"{NPM}:443"), ("mudroom net allow @npm",), allowed(NPM, "nodejs.org")),
    "more hosts than are named": Hinted(lambda _cli: "(mudroom net log --denied)", ("mudroom net log --denied",)),
}
"""Messages of ``net`` and of refusals."""


@pytest.fixture
def cli(place: Place) -> Cli:
    place.write(".git/HEAD", "")
    return Cli(place)


def paste(cli: Cli, line: str) -> subprocess.CompletedProcess[str]:
    """As a user does: by a shell, without a terminal."""
    program = cli.place.home / "bin" / "mudroom"
    program.parent.mkdir(exist_ok=True)
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m mudroom "$@"\n')
    program.chmod(0o755)
    environment = {**cli.environment, "PATH": f"{program.parent}{os.pathsep}{cli.environment['PATH']}"}
    return subprocess.run(
        ["/bin/sh", "-c", line],
        cwd=cli.place.project,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


EVERY_DAY = {"a bare word", "no rules", "a registry that was refused", "a host of a preset is removed"}
"""Situations of the quick tier."""


@pytest.mark.parametrize(
    "situation", [pytest.param(name, marks=() if name in EVERY_DAY else pytest.mark.deep) for name in SITUATIONS]
)
def test_a_command_that_is_named_works(cli: Cli, situation: str) -> None:
    hinted = SITUATIONS[situation]
    told = hinted.prepare(cli)
    assert tuple(dict.fromkeys(COMMAND.findall(told)))[: len(hinted.commands)] == hinted.commands, told
    for command in hinted.commands:
        done = paste(cli, command)
        assert done.returncode == 0, (command, done)
    assert hinted.works(cli), told


@pytest.mark.skipif(not BASH, reason="there is no bash")
def test_an_unanswered_question_names_its_command(cli: Cli) -> None:
    told = ignored(cli)
    assert f"refused: {NPM}:443: asked, and what was typed is no answer (mudroom net allow @npm)" in told
    assert paste(cli, COMMAND.findall(told)[0]).returncode == 0
    assert allowed(NPM)(cli)


def test_a_question_that_waits_names_its_command(cli: Cli) -> None:
    cli.place.write(".mudroom/policy.yaml", "commands: {classes: {destructive: require_approval}}\n")
    rm = ("exec", "--fork", "f", "--agent", "a", "--", "rm", "-rf", "x")
    told = cli(*rm)
    assert told.returncode == 126
    (command,) = set(COMMAND.findall(told.stderr))
    assert re.fullmatch("mudroom approve [0-9a-f]{6}", command)
    assert paste(cli, command).returncode == 0
    assert cli(*rm).returncode == 0


def test_a_question_about_a_host_offers_its_preset(cli: Cli) -> None:
    """In the queue: a command waits in the background, and the list of questions says what may be answered."""
    queue = cli.place.session().vault.approvals
    with queue.put(HostQuestion(NPM, 443, "tls", "f", "a"), 30) as ticket:
        told = cli("approve")
        (command,) = {command for command in COMMAND.findall(told.stdout) if "--preset" in command}
        assert command == f"mudroom approve {ticket.asked.name} --preset"
        done = paste(cli, command)
        assert (done.returncode, "rule: allow @npm" in done.stderr) == (0, True), done
        decision = ticket.look()
        assert decision is not None
        assert (decision.state, decision.keep, decision.rule) == ("allowed", True, "allow @npm")
    assert allowed(NPM, "nodejs.org")(cli)


@pytest.mark.skipif(not BASH, reason="there is no bash")
def test_an_untrusted_answer_names_what_trusts_it(cli: Cli) -> None:
    """The command asks: it is for a terminal."""
    told = untrusted(cli)
    assert COMMAND.findall(told)[0] == "mudroom policy trust", told
    assert paste(cli, "mudroom policy trust").returncode == 125, "there is nobody to ask"
    assert paste(cli, "mudroom policy trust --yes").returncode == 0, "as its error says"
    assert allowed(NPM)(cli)
