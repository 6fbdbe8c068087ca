"""What the page waits for: the list of many changed files, and one file's difference, beside ``git`` on the same trees;
and the first view of it in a browser, where there is one."""

from __future__ import annotations

import functools
import glob
import http.client
import importlib.util
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from bench.measure import Contestant, Finding, Lap, against, at_most, clocked, command, interleave, timed, unmeasured
from bench.place import Place, Scale, fill, have, new_place, run

_STATUS, _DIFF = "git status", "git diff of one file"
FIRST_VIEW = 1.0
"""Seconds: the budget of the first view."""


class _Server(NamedTuple):
    told: dict[str, Any]
    connection: http.client.HTTPConnection

    def get(self, path: str) -> Any:
        self.connection.request("GET", "/api/v1" + path, headers={"Authorization": f"Bearer {self.told['token']}"})
        answer = self.connection.getresponse()
        body = answer.read()
        if answer.status != 200:
            raise RuntimeError(body.decode())
        return json.loads(body)


def page(base: bytes, scale: Scale) -> Iterator[Finding]:
    """A fork with as many changed files as an apply is measured with."""
    if importlib.util.find_spec("starlette") is None or not have("git"):
        yield unmeasured("page", "the page", "starlette or git is not installed")
        return
    with new_place(base, "page") as place:
        fork, name = _prepare(place, scale.modified)
        with _serving(place) as server:
            (project,) = server.get("/projects")
            at = f"/projects/{project['id']}/forks/{fork}"
            file = server.get(at + "/changes?count=1")["rows"][0]["id"]
            asked = {
                "first": at + "/changes",
                "changes": at + "/changes?count=20000",
                "diff": at + f"/diff?file={file}",
            }
            anew = _contestant("anew", lambda: server.get(asked["changes"]), _touched(place))
            found = interleave([*_contestants(server, asked), *_git(place, name)], scale.looks * 3)
            what = f"a fork with {scale.modified:,} changed files"
            yield Finding("page", f"the list of {what}", found["changes"], None, against(found, [_STATUS]))
            yield Finding("page", f"the first rows of {what}", found["first"], None, against(found, [_STATUS]))
            yield Finding("page", f"one file of {what}", found["diff"], None, against(found, [_DIFF]))
            found = interleave([anew, *_git(place, name)], scale.looks)  # apart: nothing is kept after it
            yield Finding("page", f"the list of {what}, when it is new", found["anew"], None, against(found, [_STATUS]))
            yield from _first_view(server, f"#/p/{project['id']}/f/{fork}/review", what)


def _prepare(place: Place, files: int) -> tuple[str, bytes]:
    """A fork in which every file has one line more, and a repository whose tree has, too; one of the files."""
    fill(place.project, files)
    with place.session() as session:
        fork = run(
            session, "sh", "-c", "find . -type f -name 'f*' -exec sh -c 'for f; do echo more >> $f; done' x {} +"
        )
    copy = place.root + b"/git"
    shutil.copytree(os.fsdecode(place.project), os.fsdecode(copy))
    for words in (["init", "-q"], ["add", "-A"], ["-c", "user.name=x", "-c", "user.email=x@y", "commit", "-qm", "x"]):
        command(["git", *words], copy, place.environ)
    command(["sh", "-c", "find . -name 'f*.txt' -exec sh -c 'for f; do echo more >> $f; done' x {} +"], copy)
    return fork.fork, b"d0000/f000000.txt"


@contextmanager
def _serving(place: Place) -> Iterator[_Server]:
    words = [sys.executable, "-m", "mudroom", "serve", "--port", "0", "--json"]
    with subprocess.Popen(words, cwd=place.project, env=place.environ, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            told = json.loads(process.stdout.readline())
            port = int(told["url"].rsplit(":", 1)[1].strip("/"))
            yield _Server(told, http.client.HTTPConnection("127.0.0.1", port))
        finally:
            process.terminate()


def _contestants(server: _Server, asked: dict[str, str]) -> list[Contestant]:
    return [_contestant(name, functools.partial(server.get, path)) for name, path in asked.items()]


def _contestant(name: str, get: Callable[[], object], before: Callable[[], None] = lambda: None) -> Contestant:
    def ask() -> Iterator[Lap]:
        before()
        yield name, clocked(get)[0]

    return ask


def _touched(place: Place) -> Callable[[], None]:
    """What makes another one of the fork's record, so that nothing that the server has kept of it counts."""
    (record,) = glob.glob(os.fsdecode(place.state) + "/vaults/*/forks/*/record")
    return lambda: os.utime(record)


def _git(place: Place, name: bytes) -> list[Contestant]:
    copy = place.root + b"/git"
    return [
        timed(_STATUS, ["git", "status", "--porcelain"], copy, place.environ),
        timed(_DIFF, ["git", "diff", "--", name], copy, place.environ),
    ]


def _first_view(server: _Server, address: str, what: str) -> Iterator[Finding]:
    """From the address to the first line of the list, in a window that has the page's files."""
    where = shutil.which("chromium")
    if where is None or importlib.util.find_spec("playwright") is None:
        return
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=where, chromium_sandbox=os.geteuid() != 0)
        view = browser.new_page()
        view.goto(server.told["login"])
        view.wait_for_selector("main:not([aria-busy='true'])")  # the page has kept its key

        def look() -> Iterator[Lap]:
            view.goto("about:blank")

            def show() -> None:
                view.goto(server.told["url"] + address)
                view.wait_for_selector("[role=treeitem]")

            yield "first view", clocked(show)[0]
            view.wait_for_selector("section.hunk")  # what came after it is not to be at work when the next begins

        found = interleave([look], 5)
        browser.close()
    yield Finding("page", f"first view of {what}", found["first view"], at_most(FIRST_VIEW, "1 s"))
