"""``user_commands`` of the policy, end to end with ``mudroom run``."""

from __future__ import annotations

import json
import subprocess

import pytest

from conftest import Place
from test_vault_verb import Cli

PLAIN = ("sh", "-c", "echo new > a.txt")


@pytest.fixture
def cli(place: Place) -> Cli:
    place.write("a.txt", "old\n")
    return Cli(place)


def policy(cli: Cli, **settings: str) -> None:
    cli.place.write(
        ".mudroom/policy.yaml", "user_commands:\n" + "".join(f"  {key}: {value}\n" for key, value in settings.items())
    )


def text(cli: Cli, name: str = "a.txt") -> str:
    return (cli.place.project / name).read_text()


def test_without_a_policy_nothing_is_applied_unasked(cli: Cli) -> None:
    done = cli("run", "--", *PLAIN)
    assert (done.returncode, text(cli)) == (0, "old\n")
    assert "kept as run-" in done.stderr


@pytest.mark.parametrize(
    ("settings", "applied"),
    [
        ({"auto_apply": "always"}, True),
        ({"auto_apply": "never"}, False),
        ({"auto_apply": "trusted", "trusted": "[sh]"}, True),
        ({"auto_apply": "trusted", "trusted": "[sh -c]"}, True),
        ({"auto_apply": "trusted", "trusted": "[bash, sh -x]"}, False),
        ({"auto_apply": "trusted"}, False),
        ({"auto_apply_trusted": "true", "trusted": "[sh]"}, True),
        ({"auto_apply_trusted": "false", "trusted": "[sh]"}, False),
        ({"auto_apply": "never", "auto_apply_trusted": "true", "trusted": "[sh]"}, True),
        ({"trusted": "[sh]"}, False),
    ],
)
def test_what_is_applied_unasked(cli: Cli, settings: dict[str, str], applied: bool) -> None:
    policy(cli, **settings)
    done = cli("run", "--", *PLAIN)
    assert done.returncode == 0, done.stderr
    assert text(cli) == ("new\n" if applied else "old\n")
    assert ("undo takes it back" in done.stderr + done.stdout) == applied


def test_the_answer_on_the_command_line_counts_more(cli: Cli) -> None:
    policy(cli, auto_apply="always")
    for answer in ("--no", "--keep"):
        cli("run", answer, "--", *PLAIN)
        assert text(cli) == "old\n"


def test_it_holds_for_json_too(cli: Cli) -> None:
    policy(cli, auto_apply="always")
    done = cli("run", "--json", "--", *PLAIN)
    assert json.loads(done.stdout)["applied"]["written"] == 1
    assert text(cli) == "new\n"


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("echo new > a.txt; exit 3", "the command exited with 3"),
        ("echo new > a.txt; kill -9 $$", "signal 9 ended the command"),
        ("echo new > a.txt; echo x > Makefile", "Makefile runs by itself later"),
        ("echo new > a.txt; mkdir .vscode; echo > .vscode/a; echo > conftest.py", ".vscode"),
        ("mkdir -p .mudroom; echo 'network: {mode: open}' > .mudroom/other.yaml; echo new > a.txt", None),
    ],
)
def test_what_is_never_applied_unasked(cli: Cli, script: str, why: str | None) -> None:
    policy(cli, auto_apply="always")
    done = cli("run", "--", "sh", "-c", script)
    if why is None:  # a command cannot write there at all
        assert not (cli.place.project / ".mudroom/other.yaml").exists()
        return
    assert f"not applied without asking: {why}" in done.stderr
    assert text(cli) == "old\n"
    assert "kept as run-" in done.stderr


@pytest.mark.parametrize(
    ("script", "applied"),
    [
        ("echo x > src/new.py; mkdir -p src/sub docs; echo x > src/sub/b.py; echo x > docs/a.md; echo x > a.csv", True),
        ("echo x > src/old.py", True),
        ("rm -f src/old.py", True),
        ("git init -q repo", False),
        ("git add -A; git -c user.name=x -c user.email=x@y commit -qm x", True),
        ("echo x > new.py", False),
        ("mkdir lib; echo x > lib/new.py", False),
        ("echo x > settings.json", False),
        ("echo x > unknown", False),
        ("ln -s a.txt b.txt", False),
    ],
)
def test_only_what_is_known_to_be_inert_is_applied_unasked(cli: Cli, script: str, applied: bool) -> None:
    cli.place.write("src/old.py", "old\n")
    subprocess.run(["git", "init", "-q"], cwd=cli.place.project, check=True)
    policy(cli, auto_apply="always")
    done = cli("run", "--", "sh", "-c", f"echo new > a.txt; {script}")
    assert text(cli) == ("new\n" if applied else "old\n"), done.stderr
    assert ("may run or be obeyed: only text" in done.stderr) != applied
    policy(cli, auto_apply="always", auto_apply_flagged="true")
    cli("run", "--", "sh", "-c", f"echo again > a.txt; {script}")
    assert text(cli) == "again\n"


def test_nor_what_ran_out_of_time(cli: Cli) -> None:
    policy(cli, auto_apply="always")
    done = cli("run", "--timeout", "3", "--", "sh", "-c", "echo new > a.txt; exec sleep 100")
    assert done.returncode == 124
    assert "not applied without asking: the command ran out of time" in done.stderr
    assert text(cli) == "old\n"


def test_what_runs_later_if_the_policy_says_so_plainly(cli: Cli) -> None:
    policy(cli, auto_apply="always", auto_apply_flagged="true")
    assert cli("run", "--", "sh", "-c", "echo x: > Makefile").returncode == 0
    assert text(cli, "Makefile") == "x:\n"
    cli("run", "--", "sh", "-c", "echo y: > Makefile; exit 1")
    assert text(cli, "Makefile") == "x:\n", "but never what failed"


def test_nor_a_conflict(cli: Cli) -> None:
    """The user's editor writes the very file while the command runs."""
    policy(cli, auto_apply="always")
    outside = cli.place.project / "a.txt"
    script = "echo mine > a.txt; echo ready; read x"
    with cli.start("run", "--", "sh", "-c", script, stdin=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        outside.write_text("theirs\n")
        _out, err = process.communicate("\n", timeout=60)
    assert "not applied without asking: a.txt was changed in the project meanwhile" in err
    assert outside.read_text() == "theirs\n"


@pytest.mark.parametrize(("threshold", "shown"), [("0", False), ("1", False), ("2", True), ("100", True)])
def test_a_short_diff_is_shown_at_once(cli: Cli, threshold: str, shown: bool) -> None:
    policy(cli, show_diff_threshold=threshold)
    done = cli("run", "--", *PLAIN)
    assert ("-old\n+new\n" in done.stderr) == shown


def test_what_could_steer_the_terminal_is_not_shown_as_it_is(cli: Cli) -> None:
    policy(cli, show_diff_threshold="10")
    done = cli("run", "--", "sh", "-c", r"printf '\033]0;x\007' > a.txt")
    assert "\x1b]" not in done.stderr
    assert "\\x1b]0;x\\x07" in done.stderr


def test_the_level_of_the_users_own_commands(cli: Cli) -> None:
    policy(cli, sandbox="0")

    def level(*words: str) -> int:
        return int(json.loads(cli(*words, "--", "true").stdout)["level"])

    assert level("run", "--json") == 0
    assert level("run", "--json", "--level", "1") == 1
    assert level("exec", "--json") == 1, "an agent's are not the user's own"


def test_a_stranger_cannot_have_it_applied(cli: Cli) -> None:
    del cli.environment["MUDROOM_TRUST_POLICY"]
    policy(cli, auto_apply="always", trusted="[sh]")
    done = cli("run", "--", *PLAIN)
    assert text(cli) == "old\n"
    assert (
        "note: not taken from .mudroom/policy.yaml, it is not trusted on this machine: "
        "user_commands.auto_apply: always; user_commands.trusted: sh … (mudroom policy trust shows all and asks)"
    ) in done.stderr


def test_a_link_that_leads_out_is_not_applied_unasked(cli: Cli) -> None:
    policy(cli, auto_apply="always")
    done = cli("run", "--", "sh", "-c", "ln -s ~/.ssh keys; echo new > a.txt")
    assert text(cli) == "old\n"
    assert "keys is a link that leads out of the project" in done.stderr
    assert "leads out of the project: keys → " in done.stderr
    policy(cli, auto_apply="always", auto_apply_flagged="true")
    cli("run", "--", "sh", "-c", "ln -s ~/.ssh keys")
    assert (cli.place.project / "keys").is_symlink()


def test_what_is_applied_unasked_has_no_set_id_bits(cli: Cli) -> None:
    policy(cli, auto_apply="always", auto_apply_flagged="true")
    done = cli("run", "--json", "--", "sh", "-c", "cp /bin/true tool; chmod 6755 tool")
    assert (cli.place.project / "tool").stat().st_mode & 0o7777 == 0o755
    (row,) = json.loads(done.stdout)["changes"]["files"]
    assert (row["mode"], set(row["flags"])) == ([None, "0755"], {"executes-later", "reduced-mode"})
