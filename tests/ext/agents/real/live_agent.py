"""An agent that works in a fork of which another one is made, and its conversation there."""

from __future__ import annotations

import json
import shlex
import sqlite3
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple, cast

from model_server import ModelServer
from real_agents import MUDROOM, PROMPT, Try
from scenario import Step

from clocks import give_way
from mudroom.ext.agents.catalog import Catalog
from tmux import Tmux

GO = "/go"
"""The path for which the model server has an answer when the first agent may go on."""


def steps(url: str) -> tuple[Step, ...]:
    wait = f"touch waiting; until [ -e go ] || curl -sf {url}{GO} > answer; do sleep 0.1; done; echo the-second-result"
    return Step("tell", "echo the-first-result"), Step("wait", wait), Step("finish", content="Done.")


class Printing(NamedTuple):
    """An agent without a terminal."""

    here: Try
    server: ModelServer
    going_on: tuple[str, ...]
    """The words with which it goes on, after those of its first start."""

    @contextmanager
    def working(self) -> Iterator[None]:
        """Work in the fork a, for the block in the second step; then to the end."""
        words = [*MUDROOM, "agent", "run", "--fork", "a", "--", *self.here.words()]
        where: Any = {"cwd": self.here.project, "env": self.here.environment(self.server)}
        with subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, **where) as agent:
            try:
                until_waiting(self.here, agent)
                yield
                assert agent.poll() is None
                self.server.withheld.clear()
                said, _nothing = agent.communicate()
                assert agent.returncode == 0 and "Done." in said, said
            finally:
                agent.kill()

    def go_on(self, fork: str, prompt: str) -> None:
        first = self.here.words()
        words = [*(prompt if word == PROMPT else word for word in first), *self.going_on]
        if self.going_on[:1] == ("resume",):  # a subcommand stands before its prompt
            words = [*first[:-1], *self.going_on, prompt]
        words = [*MUDROOM, "agent", "run", "--fork", fork, "--", *words]
        ended = self.here.run(words, self.here.environment(self.server))
        assert ended.code == 0 and "Done." in ended.output, (ended, self.server.errors)


class Terminal(NamedTuple):
    """An agent in a terminal: codex."""

    here: Try
    server: ModelServer
    going_on: tuple[str, ...]

    @contextmanager
    def working(self) -> Iterator[None]:
        tmux = self._terminal()
        try:
            self._start(tmux, "a", ())
            self._ask(tmux, PROMPT)
            until_waiting(self.here, None)
            yield
            self.server.withheld.clear()
            tmux.until("Done.")
            self._ask(tmux, "Go on in a")
            until(lambda: "Go on in a" in self.server.asked[-1])
            self._leave(tmux)
        finally:
            tmux.close()

    def go_on(self, fork: str, prompt: str) -> None:
        tmux = self._terminal()
        try:
            self._start(tmux, fork, self.going_on)
            self._ask(tmux, prompt)
            tmux.until("Done.")
            self._leave(tmux)
        finally:
            tmux.close()

    def _terminal(self) -> Tmux:
        here = self.here
        values = {name: value for name, value in here.environment(self.server).items() if name not in ("HOME", "TERM")}
        where = SimpleNamespace(project=here.project, home=here.home, state=here.home / ".local/state/mudroom")
        return Tmux(cast(Any, where), 100, 30, **values)

    def _start(self, tmux: Tmux, fork: str, words: tuple[str, ...]) -> None:
        agent = ("codex", *words, "--dangerously-bypass-approvals-and-sandbox")
        line = shlex.join((*MUDROOM, "agent", "run", "--fork", fork, "--", *agent))
        tmux.type(f"clear; {line}; echo ended $?")
        tmux.until("Ask Codex")

    def _ask(self, tmux: Tmux, prompt: str) -> None:
        tmux.keys("-l", prompt)
        tmux.until(prompt)
        tmux.keys("Enter")

    def _leave(self, tmux: Tmux) -> None:
        tmux.keys("-l", "/quit")
        tmux.until("exit Codex")
        tmux.keys("Enter")
        tmux.until("ended 0")


def driver(here: Try, server: ModelServer, *, terminal: bool) -> Printing | Terminal:
    """Return how the agent of ``here`` is started. Prepare its place."""
    server.steps = steps(server.url)
    server.withheld.add(GO)
    here.prepare(server)
    continued = Catalog().profile(here.agent.name).continued
    if terminal:
        with open(here.home / ".codex/config.toml", "a", encoding="utf-8") as stream:
            stream.write(f'\n[projects."{here.project}"]\ntrust_level = "trusted"\n')
        return Terminal(here, server, continued)
    return Printing(here, server, ("resume", "--last") if here.agent.name == "codex" else continued)


def until(is_there: Any) -> None:
    while not is_there():
        give_way()


def until_waiting(here: Try, agent: subprocess.Popen[str] | None) -> None:
    while not list(here.home.glob(".local/state/mudroom/vaults/*/layers/*/tree/waiting")):
        assert agent is None or agent.poll() is None
        give_way()


def sessions(here: Try, fork: str) -> dict[str, int]:
    """Return the conversations that a fork's store has, with the size of each."""
    store = next(here.home.glob(f".local/state/mudroom/vaults/*/forks/{fork}/home/{here.agent.name}"))
    if here.agent.name != "opencode":
        return {path.stem: path.stat().st_size for path in store.rglob("*.jsonl") if len(path.stem) > 30}
    (database,) = store.rglob("opencode*.db")
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as opened:
        counts = "select session.id, count(message.id) from session left join message on session_id = session.id"
        return dict(opened.execute(f"{counts} where parent_id is null group by session.id"))


class Turn(NamedTuple):
    """Seconds from the command that makes a fork."""

    made: float
    asked: float
    """Until the agent's first request to its model."""
    answered: float
    """Until it has said its answer, and has ended."""


def turn(agent: Printing | Terminal, fork: str, prompt: str) -> Turn:
    """Make a fork of a, in which the agent works, and let it go on there. Raise AssertionError if it does not know what
    was said before, or a has what was said afterwards."""
    here, server = agent.here, agent.server
    began = time.monotonic()
    told = here.mudroom("fork", "new", fork, "--from", "a", "--live")
    made = time.monotonic() - began
    words = " ".join((here.agent.name, *Catalog().profile(here.agent.name).continued))
    assert f"mudroom agent run --fork {fork} -- {words}" in told
    if server.withheld:
        here.mudroom("exec", "--fork", fork, "--", "touch", "go")  # a command that is cut off may be started again
    before, requests = sessions(here, fork), len(server.asked)
    agent.go_on(fork, prompt)
    answered = time.monotonic() - began
    asked = next(number for number, body in enumerate(server.asked) if number >= requests and prompt in body)
    body = server.asked[asked]
    assert json.loads(body) and "the-first-result" in body and PROMPT in body, "it knows what was said before"
    after = sessions(here, fork)
    assert after != before
    assert agent.going_on[:1] == ("resume",) or len(after) == len(before) + 1, "a conversation of its own"
    assert not after.keys() - before.keys() & sessions(here, "a").keys()
    return Turn(made, server.replies[asked].asked - began, answered)


def require_apart(agent: Printing | Terminal, prompt: str) -> None:
    """Raise AssertionError if a's conversation has what was said in another fork."""
    store = next(agent.here.home.glob(f".local/state/mudroom/vaults/*/forks/a/home/{agent.here.agent.name}"))
    assert not [path for path in store.rglob("*") if path.is_file() and prompt.encode() in Path(path).read_bytes()]
