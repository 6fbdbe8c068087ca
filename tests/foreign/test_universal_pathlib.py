"""universal_pathlib's own cases over the files of a real fork: ``UPath("mudroom://…", fork=…, project=…)``."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

import suite
from conftest import Place

MODULE = '''
"""Written by tests/foreign/test_universal_pathlib.py."""
import os
import warnings

import fsspec
import pytest
from upath import UPath
from upath.tests.cases import BaseTests

from mudroom.ext.fsspec.filesystem import MudroomFileSystem
from mudroom.session import Session

fsspec.register_implementation("mudroom", MudroomFileSystem, clobber=True)
STATE, HOME, PROJECT = (os.fsencode(os.environ[name]) for name in ("MUDROOM_STATE", "HOME", "PROJECT"))


@pytest.fixture(scope="session")
def fork():
    with Session.open(PROJECT, state=STATE, home=HOME, environ=os.environb) as session:
        yield session.forks.new("f").name


@pytest.fixture
def pathlib_base(tmp_path):
    """The tree of ``prepare_file_system`` on a disk, as upath/tests/conftest.py makes it."""
    for name, text in {"folder1/file1.txt": "file1.txt", "folder1/file2.txt": "file2.txt"}.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    for name in ("file1.txt", "file2.txt"):
        (tmp_path / name).write_text("hello world")
    return tmp_path


@pytest.fixture
def local_testdir(pathlib_base):
    return str(pathlib_base)


@pytest.fixture
def clear_fsspec_memory_cache():
    memory = fsspec.get_filesystem_class("memory")
    memory.store.clear()
    memory.pseudo_dirs[:] = [""]


class TestFork(BaseTests):
    @pytest.fixture(autouse=True)
    def path(self, fork, pathlib_base):
        self.path = UPath("mudroom://" + str(pathlib_base), fork=fork, project=PROJECT)
        self.prepare_file_system()

    def test_is_correct_class(self):
        assert isinstance(self.path.fs, MudroomFileSystem)
'''
SETTINGS = "[pytest]\nfilterwarnings = ignore\n"


@pytest.mark.deep
@pytest.mark.foreign
@pytest.mark.limit(300)
def test_the_cases_of_every_file_system(place: Place) -> None:
    found = suite.source("universal_pathlib")
    directory = place.root / "cases"
    directory.mkdir()
    (directory / "test_cases.py").write_text(MODULE)
    (directory / "pytest.ini").write_text(SETTINGS)
    path = os.pathsep.join((str(found), str(suite.ROOT / "src")))
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(place.home),
        "MUDROOM_KEEPER": "0",
        "MUDROOM_STATE": str(place.state),
    }
    environment |= {"PYTHONPATH": path, "PROJECT": str(place.project), "PYTHONDONTWRITEBYTECODE": "1"}
    words = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--junitxml=results.xml"]
    done = subprocess.run(
        [sys.executable, *words], cwd=directory, env=environment, capture_output=True, text=True, check=False
    )
    assert (directory / "results.xml").exists(), done.stdout + done.stderr
    ran = suite.read_results(directory / "results.xml")
    assert list(ran.outcomes.values()).count("ok") >= 100, done.stdout
    native = {name: "skip" if outcome == "skip" else "ok" for name, outcome in ran.outcomes.items()}
    lines = suite.surprises(native, ran, suite.table("universal_pathlib"), "overlay")
    assert lines == [], "\n".join(lines)
