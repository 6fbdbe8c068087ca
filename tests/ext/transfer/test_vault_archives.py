"""``mudroom vault export`` and ``import`` as a user meets them."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

import forked
from conftest import Place
from test_vault_verb import MUDROOM, Cli


@pytest.fixture
def cli(place: Place) -> Cli:
    return Cli(place)


def test_export_and_import(cli: Cli, tmp_path: Path) -> None:
    cli.place.write("a", "a\n")
    cli.keep("echo more >> a; echo n > new")
    name = cli.json("ls")["forks"][0]["fork"]
    done = cli("vault", "export", name, "../fork.tar.gz")
    assert done.returncode == 0, done.stderr
    assert f"exported {name}: ../fork.tar.gz" in done.stderr
    other = tmp_path / "other"
    other.mkdir()
    (other / "a").write_text("a\n")
    found = cli.json("vault", "import", str(tmp_path / "fork.tar.gz"), "g", cwd=other)
    assert found == {
        "schema": "mudroom.import/1",
        "name": "g",
        "changed": 2,
        "strangers": 0,
        "project": str(cli.place.project),
    }
    assert cli("apply", "g", "--yes", cwd=other).returncode == 0
    assert (other / "a").read_text() == "a\nmore\n"
    assert cli("vault", "import", str(tmp_path / "fork.tar.gz"), "g", cwd=other).returncode in (0, 125)
    (tmp_path / "bad.tar").write_bytes(b"x" * 10_000)
    refused = cli("vault", "import", str(tmp_path / "bad.tar"))
    assert refused.returncode == 125
    assert "the archive cannot be imported" in refused.stderr
    os.mkfifo(tmp_path / "fifo")
    for path, wrong in (("absent", "absent does not exist"), (str(tmp_path), "not a file"), ("../fifo", "not a file")):
        refused = cli("vault", "import", path)
        assert refused.returncode == 125
        assert wrong in refused.stderr and "mudroom vault export FORK FILE" in refused.stderr
        assert len(refused.stderr.splitlines()) == 1
    assert "more than 0 MB" in cli("vault", "import", "../fork.tar.gz", "h", "--limit", "1kB").stderr


def test_through_a_pipe(cli: Cli, tmp_path: Path) -> None:
    """As the help says: ``mudroom vault export F - | ssh HOST mudroom vault import - --project DIR``."""
    cli.place.write("a", "a\n")
    cli.keep("echo more >> a; head -c 2000000 /dev/urandom > big")
    name = cli.json("ls")["forks"][0]["fork"]
    other = tmp_path / "other"
    other.mkdir()
    (other / "a").write_text("a\n")

    def piped(there: str) -> subprocess.CompletedProcess[str]:
        mudroom = " ".join(MUDROOM)
        return subprocess.run(
            ["bash", "-o", "pipefail", "-c", f"{mudroom} vault export {name} - | {there}"],
            cwd=cli.place.project, env=cli.environment, capture_output=True, text=True, timeout=100, check=False,
        )  # fmt: skip

    done = piped(f"{' '.join(MUDROOM)} vault import - g --project {other}")
    assert done.returncode == 0, done.stderr
    assert (done.stdout, f"exported {name}: stdout" in done.stderr) == ("", True)
    assert "imported g: 2 changes" in done.stderr
    assert cli("apply", "g", "--yes", cwd=other).returncode == 0
    assert (other / "a").read_text() == "a\nmore\n"
    assert piped("head -c 100 > /dev/null").returncode == 141  # as of any writer whose reader has gone
    gone = forked.run(
        ["vault", "import", "-"],
        cwd=cli.place.project, env=cli.environment, input="nonsense",
    )  # fmt: skip
    assert gone.returncode == 125
    assert len(gone.stderr.splitlines()) == 1
    assert cli("vault", "export", "none", "-").stdout == ""


def test_no_archive_goes_through_a_terminal(cli: Cli) -> None:
    cli.place.write("a", "a\n")
    cli.keep("echo more >> a")
    name = cli.json("ls")["forks"][0]["fork"]
    leader, follower = os.openpty()
    for words in (("export", name, "-"), ("import", "-")):
        done = forked.run(
            ["vault", *words],
            cwd=cli.place.project, env=cli.environment, stdin=follower, stdout=follower, stderr=subprocess.PIPE,
        )  # fmt: skip
        assert done.returncode == 125
        assert len(done.stderr.splitlines()) == 1
        assert "is a terminal" in done.stderr
    os.close(follower)
    os.close(leader)
    both = cli("vault", "export", name, "-", "--json")
    assert (both.returncode, both.stdout) == (125, "")
    assert "both go to stdout" in both.stderr
