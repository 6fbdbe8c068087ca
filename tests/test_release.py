"""The steps of ``dev/release`` before anything is built, and what it leaves when a build fails: in a small repository,
with an interpreter that does as if. ``dev/release --try`` is the real one."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
FILES = {
    "src/mudroom/__init__.py": '__version__ = "0.1.0"\n',
    "src/mudroom/ext/completion/generate.py": 'DATE = "2020-01-01"\n',
    "CHANGELOG.md": "# Changelog\n\n## 0.2.0 (unreleased)\n\n- new\n\n## 0.1.0 (unreleased)\n",
    ".gitignore": ".venv/\n",
    ".venv/bin/python": '#!/bin/sh\n[ "$1" != -m ]\n',  # making an environment fails
}


class Repository:
    def __init__(self, root: Path) -> None:
        self.root = root
        for name, text in FILES.items():
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        (root / ".venv/bin/python").chmod(0o755)
        (root / "dev").mkdir()
        for name in ("release", "setup.sh"):
            shutil.copy(ROOT / "dev" / name, root / "dev" / name)
        self.environ = {
            "PATH": os.defpath,
            "HOME": str(root.parent),
            "TMPDIR": str(root.parent),
            "PYTHON": str(root / ".venv/bin/python"),
            "GIT_CONFIG_NOSYSTEM": "1",
        }
        self.git("init", "--quiet", "--initial-branch=main")
        self.git("config", "user.name", "Releaser")
        self.git("config", "user.email", "releaser@example.org")
        self.git("add", "--all")
        self.git("commit", "--quiet", "--message", "first")

    def git(self, *words: str) -> str:
        done = subprocess.run(
            ["git", *words], cwd=self.root, env=self.environ, capture_output=True, text=True, check=True
        )
        return done.stdout

    def release(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["bash", "dev/release", *words],
            cwd=self.root, env=self.environ, capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip

    def state(self) -> tuple[str, str, str]:
        """Return what a refused release leaves as it was: commit, status and tags."""
        return self.git("rev-parse", "HEAD"), self.git("status", "--porcelain"), self.git("tag")

    def text(self, name: str) -> str:
        return (self.root / name).read_text()


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    (tmp_path / "source").mkdir()
    return Repository(tmp_path / "source")


def _line(done: subprocess.CompletedProcess[str]) -> str:
    """Return the only line that was printed, without its colours."""
    [line] = re.sub(r"\x1b\[[0-9]*m", "", done.stdout + done.stderr).splitlines()
    return line


def _change(repository: Repository) -> None:
    (repository.root / "new").write_text("")


def _tag(name: str) -> Callable[[Repository], object]:
    return lambda repository: repository.git("tag", name)


def _no_section(repository: Repository) -> None:
    (repository.root / "CHANGELOG.md").write_text("# Changelog\n\n## 0.1.0 (2020-01-01)\n")
    repository.git("commit", "--quiet", "--all", "--message", "no section")


REFUSED: list[tuple[str, Callable[[Repository], object], int, str]] = [
    ("0.2.0", _change, 1, "the work tree has changes: commit them, or git stash --include-untracked"),
    ("0.2.0", _tag("v0.2.0"), 1, "the tag v0.2.0 exists: choose another version"),
    ("0.2.0", _tag("v0.10.0"), 1, "0.2.0 is older than v0.10.0"),
    ("0.2.0rc1", _tag("v0.2.0"), 1, "0.2.0rc1 is older than v0.2.0"),
    ("0.2.0", _no_section, 1, "CHANGELOG.md has no section '## 0.2.0 (unreleased)': write what is new"),
    (
        "0.2.0",
        lambda repository: repository.git("checkout", "--quiet", "--detach"),
        1,
        "no branch is checked out, so nothing would hold the commit: git switch main",
    ),
    (
        "0.2.0",
        lambda repository: repository.git("config", "user.name", ""),
        1,
        "git does not know who you are: git config user.name, user.email",
    ),
    *(
        (word, lambda _repository: None, 2, f"not a version: {shown} (write 0.2.0, or 0.2.0rc1 before it)")
        for word, shown in (
            ("v0.2.0", "v0.2.0"),
            ("1", "1"),
            ("0.02.0", "0.02.0"),
            ("0.2.", "0.2."),
            ("0.2.0-rc1", "0.2.0-rc1"),
            ("0.2.0/../x", "0.2.0/../x"),
            ("0.2.0\nx", "$'0.2.0\\nx'"),
            ("0.2.0 ", "0.2.0\\ "),
        )
    ),
]


def test_wrong_requests_are_refused_by_one_line_and_change_nothing(tmp_path: Path) -> None:
    for number, (version, change, code, message) in enumerate(REFUSED):
        (tmp_path / f"{number}/source").mkdir(parents=True)
        repository = Repository(tmp_path / f"{number}/source")
        change(repository)
        before = repository.state()
        done = repository.release(version)
        assert (done.returncode, done.stdout) == (code, ""), (version, message, done.stderr)
        assert re.sub(r"\x1b\[[0-9]*m", "", done.stderr) == f"dev/release: {message}\n", version
        assert repository.state() == before, (version, message)


def test_words_too_many_or_too_few(repository: Repository) -> None:
    before = repository.state()
    for words, message in (
        (("0.2.0", "0.3.0"), "dev/release: one version, and nothing else"),
        (("--prepare",), "dev/release: --prepare takes a version"),
        (("--sign-apt", "KEY"), "dev/release: --sign-apt takes a key of gpg, after --build"),
    ):
        done = repository.release(*words)
        assert (done.returncode, _line(done)) == (2, message)
    assert repository.state() == before


def test_a_release_is_prepared_and_tagged(repository: Repository) -> None:
    repository.git("tag", "v0.2.0rc1")
    done = repository.release("--prepare", "0.2.0")
    assert done.returncode == 0, done.stderr
    today = time.strftime("%Y-%m-%d", time.gmtime())
    assert repository.text("src/mudroom/__init__.py") == '__version__ = "0.2.0"\n'
    assert repository.text("CHANGELOG.md").splitlines()[2::4] == [f"## 0.2.0 ({today})", "## 0.1.0 (unreleased)"]
    assert repository.text("src/mudroom/ext/completion/generate.py") == f'DATE = "{today}"\n'
    assert repository.git("log", "--format=%s") == "release: 0.2.0\nfirst\n"
    assert repository.state()[1:] == ("", "v0.2.0rc1\n")
    assert repository.release("--tag").returncode == 0
    assert repository.git("cat-file", "-t", "v0.2.0") == "tag\n"
    assert repository.git("rev-parse", "v0.2.0^{commit}") == repository.git("rev-parse", "HEAD")
    assert _line(repository.release("--tag")) == "dev/release: the tag v0.2.0 exists"
    repository.git("commit", "--quiet", "--allow-empty", "--message", "next")
    assert _line(repository.release("--tag")).startswith("dev/release: HEAD is no release")


def test_a_release_whose_build_fails_leaves_neither_commit_nor_tag(repository: Repository) -> None:
    before = repository.state()
    done = repository.release("0.2.0")  # the interpreter makes no environment for the build's tools
    assert done.returncode != 0
    assert "dev/release: not released: the commit is taken back, and there is no tag" in done.stderr
    assert repository.state() == before
    hook = repository.root / ".git/hooks/pre-commit"  # before the commit
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\nexit 1\n")
    hook.chmod(0o755)
    assert repository.release("0.2.0").returncode != 0
    assert repository.state() == before
