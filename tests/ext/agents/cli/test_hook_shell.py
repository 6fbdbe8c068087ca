"""``mudroom hook shell DIR``: the forms of a shell, and the programs that start one."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from conftest import Place
from test_vault_verb import Cli


class Shims:
    """A project, and shims in a directory named ``agent``."""

    def __init__(self, place: Place) -> None:
        self.cli = Cli(place)
        self.project = place.project
        self.directory = place.root / "sh ims/agent"
        done = self.cli("hook", "shell", str(self.directory))
        assert done.returncode == 0, done.stderr
        self.written = done.stdout.splitlines()
        self.bash, self.sh = str(self.directory / "bash"), str(self.directory / "sh")

    def run(
        self, *words: str, given: str = "", cwd: Path | None = None, **environment: str
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            words,
            cwd=cwd or self.project,
            env={**self.cli.environment, **environment},
            input=given,
            capture_output=True,
            text=True,
            check=False,
        )

    def files(self) -> set[str]:
        return set(os.listdir(self.project))

    def fork(self, name: str = "agent") -> str:
        return self.cli("diff", name).stdout


@pytest.fixture
def shims(place: Place) -> Shims:
    place.write("a", "one\n")
    return Shims(place)


def test_the_forms_of_a_shell(shims: Shims) -> None:
    done = shims.run(shims.bash, "-c", 'echo "$1 it\'s"; echo two >b; exit 7', "name", "x y")
    assert (done.returncode, done.stdout, done.stderr) == (7, "x y it's\n", "")
    assert shims.run(shims.sh, "-c", "cat b").stdout == "two\n"
    assert shims.run(shims.bash, "-lc", "shopt -q login_shell && echo login").stdout.endswith("login\n")
    (shims.project / "script").write_text("echo script $1; exit 4\n")
    done = shims.run(shims.bash, "script", "word")
    assert (done.returncode, done.stdout) == (4, "script word\n")
    done = shims.run(shims.bash, given="read line; echo got $line\nword\nexit 5\n")
    assert (done.returncode, done.stdout) == (5, "got word\n")
    done = shims.run(shims.bash, "-s", "word", given="echo $1")
    assert (done.returncode, done.stdout) == (0, "word\n")
    assert shims.run(shims.bash, "nothing").returncode == 127
    assert shims.run(shims.bash, "-c", "echo err >&2; nothing-of-this").returncode == 127
    assert shims.files() == {"a", "script"}
    assert "+two" in shims.fork()


def test_the_fork_is_named_by_the_variable_or_the_directory(shims: Shims) -> None:
    shims.run(shims.bash, "-c", "echo >b", MUDROOM_FORK="try-1")
    assert "b" in shims.fork("try-1")
    other = shims.directory.parent / "Ünamed!"
    shims.cli("hook", "shell", str(other))
    shims.run(str(other / "bash"), "-c", "echo >c")
    assert "c" in shims.fork("named")
    shims.cli("hook", "shell", str(other), "--fork", "mine")
    shims.run(str(other / "bash"), "-c", "echo >d")
    assert "d" in shims.fork("mine")


def test_a_signal_reaches_the_command(shims: Shims) -> None:
    with subprocess.Popen(
        [shims.bash, "-c", "trap 'echo ended; exit 9' TERM; echo ready; while :; do sleep 0.05; done"],
        cwd=shims.project,
        env=shims.cli.environment,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        process.send_signal(signal.SIGTERM)
        assert process.stdout.read() == b"ended\n"
        assert process.wait() in (9, 128 + signal.SIGTERM)


def test_without_mudroom_nothing_is_run(shims: Shims) -> None:
    path = Path(shims.bash)
    text = path.read_text()
    program = next(line for line in text.splitlines() if line.startswith("for program in")).split()[3]
    path.write_text(text.replace(program, "/nothing"))
    done = shims.run(shims.bash, "-c", "echo >b")
    assert done.returncode == 126
    assert done.stderr == "bash: /nothing is missing, so nothing is run (mudroom hook shell writes this file)\n"
    assert shims.files() == {"a"}


def test_outside_a_project_nothing_is_run(shims: Shims) -> None:
    for place in (Path("/"), shims.cli.place.home):
        done = shims.run(shims.bash, "-c", "echo >b", cwd=place)
        assert done.returncode == 125
        assert done.stderr.count("\n") == 1, done.stderr
        assert "the project cannot be" in done.stderr


def test_inside_it_is_a_plain_shell(shims: Shims) -> None:
    path = f"{shims.directory}:/usr/bin:{shims.directory}:/bin:{shims.directory}"
    done = shims.run(shims.bash, "-c", "echo $SHELL; echo $PATH; bash -c 'echo inner'", PATH=path)
    assert done.stdout == f"{shutil.which('bash', path='/usr/local/bin:/usr/bin:/bin')}\n/usr/bin:/bin\ninner\n"


@pytest.mark.parametrize("path", [None, "", "{}", "{0}:{0}"], ids=["unset", "empty", "shims", "shims twice"])
def test_a_path_without_other_directories_is_not_the_project(shims: Shims, path: str | None) -> None:
    """An empty PATH is the current directory (exec(3)): a program of the project would be run."""
    (shims.project / "git").write_text("#!/bin/sh\necho of the project\n")
    (shims.project / "git").chmod(0o755)
    environment = {name: value for name, value in shims.cli.environment.items() if name != "PATH"}
    if path is not None:
        environment["PATH"] = path.format(shims.directory)
    done = subprocess.run(
        [shims.sh, "-c", "echo $PATH; git --version"],
        cwd=shims.project, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert "of the project" not in done.stdout
    assert "/usr/bin:" in done.stdout.splitlines()[0]


def test_files_that_are_not_ours_stay(shims: Shims) -> None:
    other = shims.directory.parent / "bin"
    other.mkdir()
    (other / "bash").write_text("#!/bin/sh\n")
    done = shims.cli("hook", "shell", str(other))
    assert done.returncode == 125
    assert done.stderr == f"mudroom: {other}/bash is there already and not mudroom's (name another directory)\n"
    (other / "bash").unlink()
    (other / "bash").symlink_to(shims.bash)
    done = shims.cli("hook", "shell", str(other))
    told = f"mudroom: {other}/bash is there already (Too many levels of symbolic links) (name another directory)\n"
    assert (done.returncode, done.stderr) == (125, told)
    assert shims.cli("hook", "shell", str(shims.directory)).returncode == 0, "it is written anew"
    assert shims.cli("hook", "shell", str(shims.project / "a")).returncode == 125
    done = shims.cli("hook", "shell", shims.bash)
    assert (done.returncode, done.stderr) == (125, f"mudroom: {shims.bash} is not a directory (name another one)\n")


# --- programs that start a shell ---


def program(name: str) -> str:
    path = shutil.which(name)
    if path is None:
        pytest.skip(f"not installed: {name}")
    return path


def test_make(place: Place) -> None:
    program("make")
    shims = _without_space(place)
    place.write("Makefile", "all:\n\techo made >b; cat b\n\t@exit 3\n")
    done = shims.run("make", f"SHELL={shims.sh}")
    assert done.returncode == 2
    assert "made\n" in done.stdout
    assert "Error 3" in done.stderr
    assert shims.files() == {"Makefile"}
    assert "+made" in shims.fork()


def _without_space(place: Place) -> Shims:
    """Return shims in a directory without a space, for programs that split the name of their shell."""
    shims = Shims(place)
    directory = place.root / "agent"
    shims.cli("hook", "shell", str(directory))
    shims.directory, shims.bash, shims.sh = directory, str(directory / "bash"), str(directory / "sh")
    return shims


def test_subprocess_of_python(shims: Shims) -> None:
    done = subprocess.run(
        "echo $0 >b; exit 6",
        shell=True,
        executable=shims.bash,
        cwd=shims.project,
        env=shims.cli.environment,
        check=False,
        capture_output=True,
    )
    assert (done.returncode, done.stderr) == (6, b"")
    assert shims.files() == {"a"}


def test_vim(place: Place) -> None:
    vim = program("vim")
    shims = _without_space(place)
    shims.run(vim, "-u", "NONE", "-es", "-c", "!echo vim >b", "-c", "qa!", SHELL=shims.bash, TERM="dumb")
    assert shims.files() == set()
    assert "+vim" in shims.fork()


def test_an_alias_of_git(place: Place) -> None:
    git = program("git")
    shims = _without_space(place)
    shims.run(git, "init", "-q")
    shims.run(git, "config", "alias.touch", f"!{shims.sh} -c 'echo git >b'")
    assert shims.run(git, "touch").returncode == 0
    assert shims.files() == {".git"}
    assert "+git" in shims.fork()


def test_scripts_of_npm(place: Place) -> None:
    npm = program("npm")
    shims = _without_space(place)
    place.write("package.json", '{"scripts": {"b": "echo npm >b; exit 3"}}')
    path = os.path.dirname(npm) + ":" + shims.cli.environment["PATH"]
    done = shims.run(npm, "run", "--script-shell", shims.bash, "b", PATH=path)
    assert done.returncode == 3, done.stderr
    assert shims.files() == {"package.json"}
    assert "+npm" in shims.fork()


def test_script_and_its_terminal(place: Place) -> None:
    """script(1) starts $SHELL on a terminal; without words it is a shell in the fork."""
    script = program("script")
    shims = _without_space(place)
    done = shims.run(
        script, "-qec", "echo $SHELL; tty; echo on a terminal >b", "/dev/null", SHELL=shims.bash, TERM="dumb"
    )
    assert "/dev/" in done.stdout, done
    shims.run(script, "-qe", "/dev/null", given="echo typed >c; exit 3\n", SHELL=shims.bash, TERM="dumb")
    assert shims.files() == set()
    assert "+on a terminal" in shims.fork()
    assert "+typed" in shims.fork()
