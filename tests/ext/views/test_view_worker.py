"""The process that makes a view: what it may not do, and what its end means."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys

import pytest

from mudroom.ext.views import reader
from mudroom.ext.views.kinds.row import FileView
from mudroom.ext.views.reader import ask_worker
from mudroom.ext.views.worker import ViewRequest, make
from test_views import PATHS, SEEDS
from tiers import each

TRIES = """
import ctypes, errno, os, socket, sys
sys.path.insert(0, {root!r})
from mudroom.ext.views.worker import confine
import platform
read, write = os.pipe()
confine(platform.machine())
told = []
for attempt in (
    lambda: os.open("/etc/passwd", os.O_RDONLY), lambda: os.open("x", os.O_CREAT | os.O_WRONLY),
    lambda: socket.socket(), lambda: os.fork(), lambda: os.kill(os.getppid(), 0), lambda: os.unlink("x"),
    lambda: os.execv("/bin/true", ["true"]), lambda: os.listdir("/"), lambda: os.setuid(0),
):
    try:
        attempt()
        told.append("done")
    except OSError as error:
        told.append(errno.errorcode[error.errno])
os.write(1, " ".join(told).encode())
os._exit(0)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="Linux confines a process by a filter of system calls")
def test_a_confined_process_reaches_nothing(tmp_path: object) -> None:
    root = reader._ROOT
    done = subprocess.run([sys.executable, "-c", TRIES.format(root=root)], capture_output=True, check=False)
    assert (done.returncode, done.stdout.decode(), done.stderr) == (0, " ".join(["EPERM"] * 9), b"")
    assert platform.machine() in ("x86_64", "aarch64")


@each(("kind",), [(kind,) for kind in SEEDS])
def test_each_kind_is_made_without_a_file_that_is_opened_later(kind: str) -> None:
    seed = SEEDS[kind]
    view = ask_worker(ViewRequest(kind, PATHS.get(kind, b"a"), seed, seed))
    assert (view.kind, view.problem, view.rows) == (kind, "", [])
    view = ask_worker(ViewRequest(kind, PATHS.get(kind, b"a"), None, seed))
    assert view.rows and not view.problem


def test_an_xz_archive_and_every_compression_is_read_confined() -> None:
    import io
    import zipfile

    for compression in (zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA):
        data = io.BytesIO()
        with zipfile.ZipFile(data, "w", compression) as made:
            made.writestr("\u00e9", b"1")
        assert ask_worker(ViewRequest("archive", b"a.zip", None, data.getvalue())).rows[0].label == "\u00e9"


def test_a_problem_is_a_sentence() -> None:
    assert (
        ask_worker(ViewRequest("notebook", b"n.ipynb", b"{", b"{}")).problem
        == "the old text is not a notebook of nbformat 4"
    )
    deep = json.dumps({"cells": [{"cell_type": "code", "source": "", "outputs": []}]}).encode()
    assert ask_worker(ViewRequest("notebook", b"n.ipynb", None, b"[" * 100_000)).problem
    assert not ask_worker(ViewRequest("notebook", b"n.ipynb", None, deep)).problem


@each(
    ("error", "problem"),
    [(MemoryError(), "it takes too much memory"), (RecursionError(), "it is nested too deeply")],
)
def test_what_a_kind_runs_into(error: BaseException, problem: str) -> None:
    def view(*_sides: object) -> FileView:
        raise error

    assert make(ViewRequest("json", b"a", None, None), view).problem == problem


WHATEVER = "it takes too long or too much memory, or is damaged"


@pytest.mark.parametrize(
    ("program",),
    [
        ("import time; time.sleep(600)",),
        ("import os; os.abort()",),
        ("print('{}')",),
        ("print('[' * 100000)",),
        ("print('{\"kind\": 1}')",),
        ("import sys\nwhile True: sys.stdout.write('x' * 65536)",),
        ("",),
    ],
)
def test_a_process_that_is_not_what_it_was_is_ended(program: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "_PROGRAM", program)
    monkeypatch.setattr(reader, "LONGEST", 1.0)
    monkeypatch.setattr(reader, "MOST_ANSWER", 1 << 16)
    assert ask_worker(ViewRequest("json", b"a", b"x" * (1 << 20), None)).problem == WHATEVER


def test_a_machine_without_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/nonexistent")
    assert ask_worker(ViewRequest("json", b"a", None, None)).problem == WHATEVER


def test_what_the_process_writes_is_escaped_again(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = json.dumps({"kind": "json", "rows": [{"kind": "added", "label": "\x1b[2J", "lines": ["\u202e"]}]})
    monkeypatch.setattr(reader, "_PROGRAM", f"print({answer!r})")
    (row,) = ask_worker(ViewRequest("json", b"a", None, None)).rows
    assert (row.label, row.lines) == ("\\x1b[2J", ["\\u{202e}"])


def test_the_process_has_none_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_OF_A_TEST", "1")
    monkeypatch.setattr(
        reader, "_PROGRAM", "import os; print('{\"kind\": \"%s\"}' % os.environ.get('SECRET_OF_A_TEST'))"
    )
    assert ask_worker(ViewRequest("json", b"a", None, None)).kind == "None"
    assert "SECRET_OF_A_TEST" in os.environ
