"""``mudroom vault`` as a user meets it: whole processes, their output, their exit codes."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from conftest import Place, environment, tick
from forked import on_terminal, popen, run
from mudroom import __version__

MUDROOM = [sys.executable, "-m", "mudroom"]


class Cli:
    def __init__(self, place: Place) -> None:
        self.place = place
        self.environment = environment(place, TERM="xterm")

    def __call__(self, *words: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
        tick()
        return run(words, cwd=cwd or self.place.project, env=self.environment, stdin=subprocess.DEVNULL)

    def start(self, *words: str, **options: Any) -> subprocess.Popen[Any]:
        """Return the process of ``mudroom``, with pipes for its output and without an input."""
        tick()
        streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        return popen(words, cwd=self.place.project, env=self.environment, **streams | options)

    def answer(self, question: str, keys: str, *words: str) -> tuple[int, str]:
        """Run on a terminal of its own, and type the keys when the question stands there. Return the exit code, and
        what was shown."""
        variables = {**self.environment, "TERM": "xterm", "NO_COLOR": "1"}
        process, master = on_terminal(words, cwd=self.place.project, env=variables)
        shown, is_typed = b"", False
        while True:
            try:
                shown += os.read(master, 65536)
            except OSError:  # EIO: nobody has the other end any more
                break
            if not is_typed and question.encode() in shown:
                os.write(master, keys.encode())
                is_typed = True
        os.close(master)
        return process.wait(timeout=60), shown.decode("utf-8", "replace").replace("\r\n", "\n")

    def json(self, *words: str, cwd: Path | None = None, code: int = 0) -> dict[str, Any]:
        done = self(*words, "--json", cwd=cwd)
        assert done.returncode == code, done.stderr
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    def apply(self, script: str) -> None:
        assert self("run", "--yes", "--", "sh", "-c", script).returncode == 0

    def keep(self, script: str, cwd: Path | None = None) -> None:
        assert self("run", "--keep", "--", "sh", "-c", script, cwd=cwd).returncode == 0


@pytest.fixture
def cli(place: Place) -> Cli:
    return Cli(place)


def test_a_mistaken_run_is_not_listed_for_ever(cli: Cli) -> None:
    assert cli("run", "--", "no-such-program").returncode == 127
    assert "0 forks, 0 changes" in cli("vault", "ls").stdout
    (vault,) = (cli.place.state / "vaults").iterdir()
    for path in (*vault.iterdir(), vault):
        os.utime(path, (0, 0))
    listed = cli("vault", "ls")
    assert (listed.stdout, listed.stderr) == ("", "1 vault not shown: nothing in it, unused for a day (--all)\n")
    assert "0 forks, 0 changes" in cli("vault", "ls", "--all").stdout
    assert len(cli.json("vault", "ls")["vaults"]) == 1


def test_init_and_ls(cli: Cli) -> None:
    assert cli("vault", "ls").stderr == "no vaults\n"
    done = cli("vault", "init")
    path = Path(done.stdout.strip())
    assert (path / "format").read_text() == f"2 {__version__}\n"
    assert cli("vault", "init").stdout == done.stdout
    assert cli.json("vault", "init") == {
        "schema": "mudroom.init/1",
        "project": str(cli.place.project),
        "vault": str(path),
    }
    cli.keep("echo x > a; echo y > b")
    listed = cli("vault", "ls").stdout
    assert re.fullmatch(r" *\S+ kB    1 fork, 2 changes  \S+/project\n", listed)
    found = cli.json("vault", "ls")
    assert found["schema"] == "mudroom.vaults/1"
    (row,) = found["vaults"]
    assert (row["project"], row["exists"], row["forks"], row["unapplied"]) == (str(cli.place.project), True, 1, 2)
    detail = cli("vault", "ls", ".").stdout
    assert re.search(r"^layers +1 +\S+ kB$", detail, re.MULTILINE)
    assert "kept       30 days, 50 applies, 5.0 GB" in detail
    assert cli.json("vault", "ls", ".")["usage"]["forks"]["number"] == 1


def test_gc_by_the_policy_file(cli: Cli) -> None:
    for number in range(3):
        cli.apply(f"echo {number} > file{number}")
    cli.place.write(".mudroom/policy.yaml", "keep: {applies: 1}\n")
    told = cli("vault", "gc", "--dry-run")
    assert told.stdout.startswith("would remove u1 (count), u2 (count): ")
    assert cli.json("vault", "gc", "-n")["vaults"][0]["applies"] == ["u1", "u2"]
    done = cli("vault", "gc")
    assert done.stdout.startswith("removed u1 (count), u2 (count): ")
    assert cli("vault", "gc").stdout == "nothing has expired\n"
    log = [json.loads(line) for line in cli("log", "--json").stdout.splitlines()]
    assert log[-1]["kind"] == "gc"
    assert log[-1]["data"]["applies"] == ["u1", "u2"]
    assert cli("undo").returncode == 0
    assert cli("vault", "check").stdout == "the vault is whole\n"


def test_forks_go_only_on_request_and_are_named_first(cli: Cli) -> None:
    cli.keep("echo x > a")
    name = cli.json("ls")["forks"][0]["fork"]
    assert cli("vault", "gc").stdout == "nothing has expired\n"
    refused = cli("vault", "gc", "--forks", "0.001s")
    assert refused.returncode == 125
    assert refused.stderr == (
        f"not used for so long: {name}\nmudroom: 1 fork would go: {name} (add --yes, or --dry-run to look only)\n"
    )
    assert len(cli.json("ls")["forks"]) == 1
    assert name in cli("vault", "gc", "--forks", "0.001s", "--dry-run").stdout
    done = cli("vault", "gc", "--forks", "0.001s", "--yes")
    assert done.returncode == 0
    assert f"removed {name}" in done.stdout
    assert cli.json("ls")["forks"] == []


def test_gc_of_all_vaults(cli: Cli, tmp_path: Path) -> None:
    cli.apply("echo x > a")
    for name in ("empty", "work"):
        (tmp_path / name).mkdir()
    cli("vault", "init", cwd=tmp_path / "empty")
    cli.keep("echo x > a", cwd=tmp_path / "work")
    assert len(cli.json("vault", "ls")["vaults"]) == 3
    shutil.rmtree(tmp_path / "empty")
    shutil.rmtree(tmp_path / "work")
    assert cli("vault", "gc", "--all").returncode == 0
    assert len(cli.json("vault", "ls")["vaults"]) == 3  # nobody was there to be asked
    done = cli("vault", "gc", "--all", "--yes")
    assert "is gone; its vault holds 1 unapplied changes" in done.stderr
    assert "it stays" in done.stderr
    left = {row["project"]: row["exists"] for row in cli.json("vault", "ls")["vaults"]}
    assert left == {str(cli.place.project): True, str(tmp_path / "work"): False}
    assert "gone" in cli("vault", "ls").stdout


def test_the_vault_of_a_workers_base(cli: Cli) -> None:
    """Its project is another machine's; this one has the base, which is gone when the worker has removed it."""
    session = cli.place.session(appears_at=b"/home/ann/proj")
    session.run([b"sh", b"-c", b"echo x > a"])
    session.close()
    path = os.fsdecode(session.vault.path)
    assert [(row["project"], row["exists"]) for row in cli.json("vault", "ls")["vaults"]] == [("/home/ann/proj", True)]
    assert cli("vault", "gc", "--all", "--yes").returncode == 0
    assert os.path.isdir(path)
    for fork in session.vault.forks():
        session.vault.discard(fork)
    shutil.rmtree(cli.place.project)
    (cli.place.root / "other").mkdir()
    assert cli("vault", "gc", "--all", "--yes", cwd=cli.place.root / "other").returncode == 0
    assert not os.path.exists(path)


def test_every_project_has_its_own_limits(cli: Cli, tmp_path: Path) -> None:
    other = tmp_path / "other"
    (other / ".mudroom").mkdir(parents=True)
    for script in ("echo 1 > a", "echo 2 > a"):
        cli.apply(script)
        assert cli("run", "--yes", "--", "sh", "-c", script, cwd=other).returncode == 0
    (other / ".mudroom/policy.yaml").write_text("keep: {applies: 1}\n")
    rows = {row["project"]: row["applies"] for row in cli.json("vault", "gc", "--all")["vaults"]}
    assert rows == {str(cli.place.project): [], str(other): ["u1"]}
    (other / ".mudroom/policy.yaml").write_text("keep: {appels: 1}\n")
    assert "did you mean keep.applies?" in cli("vault", "gc", "--all").stderr


def test_check_names_what_is_wrong(cli: Cli) -> None:
    cli.keep("echo x > a")
    vault = Path(cli("vault", "init").stdout.strip())
    name = cli.json("ls")["forks"][0]["fork"]
    (vault / "forks" / name / "record").write_bytes(b"\x91")
    done = cli("vault", "check")
    assert done.returncode == 1
    assert done.stdout.startswith(f"fork {name}: ")
    found = cli.json("vault", "check", code=1)
    assert (found["whole"], found["problems"][0]["subject"]) == (False, f"fork {name}")
    (vault / "format").write_text("3\n")
    assert cli("vault", "check").returncode == 125
    assert "has format 3, this mudroom knows 2" in cli("vault", "ls").stdout


@pytest.mark.parametrize(
    "words", [("gc", "x"), ("export", "x"), ("import",), ("ls", "a", "b"), ("rm",), ("gc", "--forks", "soon"), ()]
)
def test_wrong_words(cli: Cli, words: tuple[str, ...]) -> None:
    done = cli("vault", *words)
    assert done.returncode == 125
    assert done.stderr.startswith("mudroom: ")


def test_caches_that_outlive_the_last_fork_are_told_and_removed_on_request(cli: Cli) -> None:
    script = "mkdir -p ~/.cache; head -c 101000000 /dev/zero >~/.cache/big; echo x >x"
    fork = json.loads(cli("run", "--json", "--", "sh", "-c", script).stdout)["fork"]
    done = cli("discard", fork)
    (line,) = (line for line in done.stderr.splitlines() if "caches" in line)
    assert line == "note: 101 MB of caches stay for the next commands: mudroom vault gc --caches removes them"
    assert cli("vault", "gc").stdout == "nothing has expired\n"
    assert cli("vault", "gc", "--caches", "--dry-run").stdout == "would remove 1 leftover: 101 MB\n"
    assert cli("vault", "gc", "--caches").stdout == "removed 1 leftover: 101 MB\n"
    assert cli("vault", "gc", "--caches").stdout == "nothing has expired\n"
    cli("exec", "--fork", "f", "--", "touch", "x")
    assert "caches" not in cli("discard", "f").stderr


@pytest.mark.parametrize("action", ["adopt", "archive"])
def test_a_vault_of_another_format_is_not_called_missing(cli: Cli, action: str) -> None:
    vault = Path(cli("vault", "init").stdout.strip())
    (vault / "format").write_text("3")
    refused = cli("vault", action)
    assert refused.returncode == 125
    assert "has format 3, this mudroom knows 2 (mudroom vault ls --all" in refused.stderr
    assert len(refused.stderr.splitlines()) == 1
