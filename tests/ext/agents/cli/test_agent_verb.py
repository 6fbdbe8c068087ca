"""``mudroom agent run`` as a user meets it: a fork of its own, what a card may ask for, and every way to end."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from clocks import give_way
from conftest import Place, full_listing, tick
from screen import BASH, Screen
from test_asking import ASK, MACHINE, NOBODY, answers, needs_a_name
from test_vault_verb import MUDROOM, Cli
from tiers import pairs

PATIENCE = 60.0
"""Seconds for what is expected to come at once."""
GIT = "git -c user.name=Agent -c user.email=a@example.org -c init.defaultBranch=main"


@pytest.fixture
def cli(place: Place) -> Cli:
    place.write("f", "1\n")
    return Cli(place)


def write_card(place: Place, agent: str = "helper", level: int | None = 1, **more: Any) -> str:
    path = place.root / "card.json"
    needs = {key: more.pop(key) for key in list(more) if key.startswith("needs")}
    card = {"agentId": agent, **({"sandboxLevel": level} if level is not None else {}), **more}
    path.write_text(json.dumps(card | ({"sandboxRequirements": needs} if needs else {})))
    return str(path)


def run(cli: Cli, card: str, script: str, *words: str) -> subprocess.CompletedProcess[str]:
    return cli("agent", "run", card, *words, "--", "sh", "-c", script)


def run_json(cli: Cli, card: str, script: str, *words: str, code: int = 0) -> dict[str, Any]:
    done = run(cli, card, script, *words, "--json")
    assert done.returncode == code, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def events(cli: Cli, kind: str = "agent") -> list[dict[str, Any]]:
    rows = [json.loads(line) for line in cli("log", "-n", "0", "--json").stdout.splitlines()]
    return [row for row in rows if row["kind"] == kind]


def states(cli: Cli) -> list[str]:
    return [row["data"]["state"] for row in events(cli)]


# --- its fork ---------------------------------------------------------------------------------------------------------


def test_an_agent_works_in_a_fork_of_its_own_and_goes_on_in_it(cli: Cli, place: Place) -> None:
    card = write_card(place)
    before = full_listing(place.project)
    done = run(cli, card, "echo 2 >> f; echo said")
    assert (done.returncode, done.stdout) == (0, "said\n")
    assert "kept as helper: mudroom diff helper, mudroom apply helper" in done.stderr
    again = run_json(cli, card, "cat f; exit 3", code=3)
    assert (again["fork"], again["stdout"], again["level"]) == ("helper", "1\n2\n", 1)
    assert full_listing(place.project) == before
    assert cli("apply", "helper", "--yes").returncode == 0
    assert (place.project / "f").read_text() == "1\n2\n"


def test_the_journal_says_who_ran_and_how_it_ended(cli: Cli, place: Place) -> None:
    (place.home / ".config/gh").mkdir(parents=True)
    (place.home / ".config/gh/hosts.yml").write_text("token")
    card = write_card(place, needsKeychain=["gh"])
    digest = json.loads(cli("agent", "check", card, "--json").stdout)["digest"]
    assert run(cli, card, "exit 7").returncode == 7
    started, ended = (row["data"] for row in events(cli))
    same = {"agent": "helper", "card": digest, "level": 1, "credentials": ["gh"]}
    assert started == {"state": "started", **same}
    assert ended == {
        "state": "ended",
        **same,
        "exit_code": 7,
        "timed_out": False,
        "ran": True,
        "artifacts": 0,
        "left": 0,
    }
    assert cli("log", "verify").returncode == 0


@pytest.mark.parametrize("what", ["project", "state"])
def test_a_check_promises_nothing_that_a_run_refuses(cli: Cli, place: Place, what: str) -> None:
    there = place.home / "work"
    if what == "project":
        place.project.rename(there)
        place.project = there
    else:
        cli.environment["MUDROOM_STATE"] = str(there / "state")
        there.mkdir()
    card = write_card(place, needsKeychain=["~/work"])
    done = run(cli, card, "true")
    why = f"{there} cannot be opened as credentials: "
    assert (done.returncode, why in done.stderr) == (125, True)
    checked = cli("agent", "check", card)
    assert (checked.returncode, why in checked.stdout) == (1, True)
    found = json.loads(cli("agent", "check", card, "--json").stdout)
    assert (found["level"], found["credentials"], found["paths"]) == (None, [], [])
    assert found["reason"].startswith(why)
    served = json.loads(cli("agent", "card", card).stdout)
    params = served["capabilities"]["extensions"][0]["params"]
    assert (params["sandboxLevel"], params["isolation"], params["credentials"]) == (None, "refused", [])


def test_a_command_that_is_not_there_leaves_nothing(cli: Cli, place: Place) -> None:
    done = cli("agent", "run", write_card(place), "--", "no-such-program")
    assert done.returncode == 127
    assert done.stderr.count("\n") == 1
    assert cli.json("ls")["forks"] == []
    assert states(cli) == ["started", "ended"]


def test_two_at_once_have_a_fork_each(cli: Cli, place: Place) -> None:
    card = write_card(place)
    first = background(cli, card, "echo one > mine; : > started; read line", [])
    wait_for(lambda: cli.json("ls")["forks"])
    second = run_json(cli, card, "echo two > mine")
    assert second["fork"] == "helper-2"
    assert "helper works in the fork helper-2: it is at work in helper already" in second["notes"]
    refused = run(cli, card, "true", "--fork", "helper")
    assert refused.returncode == 125
    assert "the agent helper is at work in the fork helper" in refused.stderr
    assert refused.stderr.count("\n") == 1
    first.communicate(b"\n", timeout=PATIENCE)
    assert first.returncode == 0
    assert run_json(cli, card, "cat mine")["stdout"] == "one\n"


def test_a_fork_of_somebody_else_is_passed_over_unless_it_is_named(cli: Cli, place: Place) -> None:
    assert cli("exec", "--fork", "helper", "--", "touch", "users").returncode == 0
    card = write_card(place)
    found = run_json(cli, card, "ls")
    assert (found["fork"], found["stdout"]) == ("helper-2", "f\n")
    assert "helper works in the fork helper-2: the fork helper is not its own" in found["notes"]
    found = run_json(cli, card, "ls", "--fork", "helper")
    assert (found["fork"], found["stdout"]) == ("helper", "f\nusers\n")


def test_any_id_has_a_fork(cli: Cli, place: Place) -> None:
    for agent in ("team:x/y@1.0", "../../etc", "..", "base", "now", "-x", "a/.", "x" * 128):
        found = run_json(cli, write_card(place, agent), "pwd")
        assert found["fork"] != agent
        (vault,) = place.state.glob("vaults/*")
        assert os.listdir(vault / "forks") == [found["fork"]], agent
        assert cli("discard", found["fork"]).returncode == 0


# --- refusals ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        ("levels:\n  agents: {helper: refuse}\n", "the policy does not let helper run here (levels.agents.helper"),
        ("levels:\n  allow: [0]\n", "level 1 is not allowed by the policy, which allows: 0"),
    ],
)
def test_what_the_policy_refuses_is_one_line_and_126(cli: Cli, place: Place, policy: str, message: str) -> None:
    place.write(".mudroom/policy.yaml", policy)
    done = run(cli, write_card(place, needsNetwork=["a.example"]), "touch x")
    assert (done.returncode, done.stdout) == (126, "")
    assert message in done.stderr
    assert done.stderr.count("\n") == 1
    assert cli.json("ls")["forks"] == []


def test_what_the_policy_raises_is_raised(cli: Cli, place: Place) -> None:
    place.write(".mudroom/policy.yaml", "levels:\n  minimum: 1\n")
    found = run_json(cli, write_card(place, level=0), "true")
    assert found["level"] == 1
    assert "raised from 0 to 1: the least that the policy permits (levels.minimum)" in found["notes"]


def test_bad_words(cli: Cli, place: Place) -> None:
    card = write_card(place)
    for words, message in (
        (("agent", "run", card), "no command was given"),
        (("agent", "run", card, "--"), "no command was given"),
        (("agent", "run", str(place.root / "none.json"), "--", "true"), "No such file"),
        (("agent", "run", card, "--fork", "a/b", "--", "true"), "cannot be the name of a fork"),
        (("agent", "check", card, "--", "true"), "agent check runs no command"),
        (("agent", "run", card, "true"), "agent takes no argument true"),
    ):
        done = cli(*words)
        assert done.returncode == 125, words
        assert message in done.stderr, words
        assert done.stderr.count("\n") == 1, words
    assert not place.state.exists() or cli.json("ls")["forks"] == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_a_card_that_cannot_be_read(cli: Cli, place: Place) -> None:
    card = write_card(place)
    os.chmod(card, 0)
    done = run(cli, card, "true")
    assert done.returncode == 125
    assert "Permission denied" in done.stderr


def test_a_card_that_has_changed_since_it_was_checked(cli: Cli, place: Place) -> None:
    card = write_card(place)
    checked = cli.json("agent", "check", card)["digest"][:16]
    assert checked in cli("agent", "check", card).stdout
    assert run(cli, card, "true", "--checked", checked).returncode == 0
    write_card(place, level=0)
    done = run(cli, card, "true", "--checked", checked)
    assert done.returncode == 126
    assert "the card is not the one that was checked" in done.stderr
    assert run(cli, card, "true", "--checked", "").returncode == 126


# --- what it leaves ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("view", ["overlay", "copy"])
def test_artefacts_are_copied_out(cli: Cli, place: Place, view: str) -> None:
    place.write("reports/old", "the project's own")
    card = write_card(place, artifacts=["reports/**", "*.log"])
    script = (
        "mkdir -p reports/a d; echo r > reports/a/r; echo l > d/x.log; echo n > d/n; ln -s /etc/passwd reports/link"
    )
    script += "; chmod 755 reports/a/r; mkfifo reports/pipe; ln -s / reports/root; echo told; echo cried >&2"
    found = run_json(cli, card, script, "--view", view, "--artifacts", str(place.root / "out"))
    kept = found["agent"]["artifacts"]
    assert sorted(kept["files"]) == ["d/x.log", "reports/a/r"]
    assert {one["path"] for one in kept["left"]} >= {"reports/link", "reports/root"}
    out = place.root / "out"
    assert sorted(str(p.relative_to(out)) for p in out.rglob("*") if not p.is_dir()) == [
        "command", "files/d/x.log", "files/reports/a/r", "stderr", "stdout",
    ]  # fmt: skip
    assert (out / "stdout").read_text() == "told\n"
    assert (out / "files/reports/a/r").stat().st_mode & 0o7111 == 0
    again = run_json(cli, card, "true")
    place_in_vault = Path(again["agent"]["artifacts"]["place"])
    assert place_in_vault.parent.name == "artifacts"
    assert (place_in_vault / "files/reports/a/r").read_text() == "r\n"


def test_artefacts_never_go_where_something_is(cli: Cli, place: Place) -> None:
    card = write_card(place, artifacts=["**"])
    (place.root / "full").mkdir()
    (place.root / "full/x").write_text("")
    (place.root / "link").symlink_to("home")
    (place.root / "file").write_text("")
    for where, message in (
        (place.root / "full", "is not empty"),
        (place.root / "link", "is not a directory"),
        (place.root / "file", "is not a directory"),
        (place.project / "out", "is in the project"),
        (place.state / "out", "is in mudroom's own state"),
        (place.root / "no/such", "No such file"),
    ):
        done = run(cli, card, "touch x", "--artifacts", str(where))
        assert done.returncode == 125, where
        assert message in done.stderr, where
    assert cli.json("ls")["forks"] == []


def test_the_review_says_which_credentials_were_open(cli: Cli, place: Place) -> None:
    (place.home / ".config/gh").mkdir(parents=True)
    (place.home / ".config/gh/hosts.yml").write_text("token")
    assert run(cli, write_card(place, needsKeychain=["gh"]), "echo 2 > f").returncode == 0
    assert run(cli, write_card(place), "echo 3 > g").returncode == 0
    assert "your credentials were open to commands of helper: gh" in cli("diff", "helper").stderr
    assert cli.json("diff", "helper")["credentials"] == ["gh"]
    assert cli("fork", "new", "child", "--from", "helper").returncode == 0
    assert cli.json("diff", "child")["credentials"] == ["gh"]
    assert cli("exec", "--fork", "plain", "--", "touch", "x").returncode == 0
    assert cli.json("diff", "plain")["credentials"] == []
    screen = Screen(place, *MUDROOM, "apply", "helper")
    screen.expect("your credentials were open to commands of helper: gh.*ancel: ")
    screen.type("c\n")
    assert screen.exit_code() == 0


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_its_commits_become_a_branch_if_the_user_says_so(cli: Cli, place: Place) -> None:
    subprocess.run(["sh", "-ec", f"{GIT} init -q; {GIT} add f; {GIT} commit -qm one"], cwd=place.project, check=True)
    card = write_card(place, gitBranch="agent/work")
    script = f"echo 2 >> f; {GIT} commit -qam two"
    told = run(cli, card, script)
    assert "its commits as a branch: mudroom apply helper --commits --branch agent/work" in told.stderr
    assert branches(place) == ["main"]
    found = run_json(cli, card, "true", "--branch")["agent"]["branch"]
    assert (found["branch"], found["commits"]) == ("refs/heads/agent/work", 1)
    assert branches(place) == ["agent/work", "main"]
    assert (place.project / "f").read_text() == "1\n"
    again = run(cli, card, "true", "--branch", "other")
    assert again.returncode == 0
    assert "no branch: the fork helper has no commits" in again.stderr
    plain = run_json(cli, write_card(place), f"echo 3 >> f; {GIT} commit -qam three", "--branch")
    assert plain["agent"]["branch"]["branch"] == "refs/heads/mudroom/helper"


def branches(place: Place) -> list[str]:
    words = ["git", "for-each-ref", "--format=%(refname:short)", "refs/heads"]
    return subprocess.run(words, cwd=place.project, capture_output=True, text=True, check=True).stdout.split()


# --- the hosts that its card names ------------------------------------------------------------------------------------


def ask(cli: Cli, card: str, *hosts: str, words: tuple[str, ...] = ()) -> dict[str, Any]:
    (cli.place.project / "ask.py").write_text(ASK)
    done = cli("agent", "run", card, "--json", *words, "--", sys.executable, "ask.py", *hosts)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_where_nobody_can_be_asked_they_are_refused(cli: Cli, place: Place) -> None:
    found = ask(cli, write_card(place, needsNetwork=[NOBODY]), f"{NOBODY}:443")
    assert "told: HTTP/1.1 403" in found["stdout"]
    assert any(note.startswith(f"helper asks for {NOBODY}: refused, nobody can be asked") for note in found["notes"])


@needs_a_name
def test_the_user_can_allow_them_on_the_command_line(cli: Cli, place: Place) -> None:
    """What is allowed is looked up, and found to be this machine."""
    card = write_card(place, needsNetwork=[MACHINE])
    found = ask(cli, card, f"{MACHINE}:443", f"{NOBODY}:443", words=("--allow-card-network",))
    first, second = found["stdout"].splitlines()
    assert "address of this machine" in first
    assert "address of this machine" not in second
    assert answers(place) == ""
    place.write(".mudroom/policy.yaml", f"network:\n  deny: [{MACHINE}]\n")
    found = ask(cli, card, f"{MACHINE}:443", words=("--allow-card-network",))
    assert "address of this machine" not in found["stdout"]
    assert f"helper asks for {MACHINE}, which the policy denies" in found["notes"]


@needs_a_name
def test_the_policy_can_take_a_card_at_its_word(cli: Cli, place: Place) -> None:
    place.write(".mudroom/policy.yaml", "network:\n  cards: [helper]\n")
    card = write_card(place, needsNetwork=[MACHINE])
    cli.environment["MUDROOM_TRUST_POLICY"] = "0"
    assert "address of this machine" not in ask(cli, card, f"{MACHINE}:443")["stdout"], "the project is not trusted"
    cli.environment["MUDROOM_TRUST_POLICY"] = "1"
    assert "address of this machine" in ask(cli, card, f"{MACHINE}:443")["stdout"]
    assert "allowed by network.cards" in cli("agent", "check", card).stdout
    command = (sys.executable, "ask.py", f"{MACHINE}:443")
    assert "address of this machine" in cli("exec", "--json", "--card", card, "--", *command).stdout
    assert "address of this machine" not in cli("exec", "--json", "--agent", "helper", "--", *command).stdout
    other = ask(cli, write_card(place, "other", needsNetwork=[MACHINE]), f"{MACHINE}:443")
    assert "address of this machine" not in other["stdout"]


@pytest.mark.parametrize("level", [0, 1])
def test_a_card_that_needs_no_network_gets_none(cli: Cli, place: Place, level: int) -> None:
    card = write_card(place, level=level, needsNetwork=False)
    found = run_json(cli, card, "tail -n +3 /proc/net/dev | cut -d: -f1; ls /proc/net/tcp > /dev/null")
    assert found["stdout"].split() == ["lo"]
    assert "network      none: the card needs none" in cli("agent", "check", card).stdout


@pytest.mark.skipif(not BASH, reason="there is no bash")
@pytest.mark.parametrize(
    ("typed", "told", "kept"),
    [
        ("n\n", "403", ""),
        pytest.param("x\nn\n", "403", "", marks=pytest.mark.deep),
        pytest.param("\x04", "403", "", marks=pytest.mark.deep),
        pytest.param("a\n", "403.*address of this machine", "", marks=[needs_a_name, pytest.mark.deep]),
        pytest.param("A\n", "403.*address of this machine", "allow", marks=needs_a_name),
    ],
)
def test_they_are_asked_about_once(place: Place, typed: str, told: str, kept: str) -> None:
    (place.project / "ask.py").write_text(ASK)
    host = MACHINE if "address" in told else NOBODY
    card = write_card(place, needsNetwork=[host, "*.example.com"])
    command = [*MUDROOM, "agent", "run", card, "--", sys.executable, "ask.py", f"{host}:443"]
    screen = Screen(place, *command, columns=300)
    for answer in typed.splitlines(keepends=True):
        screen.expect(rf"helper asks for: {host}, \*\.example\.com.*\[n\]o: ")
        screen.type(answer)
    screen.expect(f"told: HTTP/1.1 {told}")
    assert b"Allow" not in screen.seen, "asked once"
    assert screen.exit_code() == 0
    assert (host in answers(place), "*.example.com" in answers(place)) == ((True, True) if kept else (False, False))


@pytest.mark.skipif(not BASH, reason="there is no bash")
def test_ctrl_c_at_the_question_runs_nothing(place: Place) -> None:
    card = write_card(place, needsNetwork=[NOBODY])
    screen = Screen(place, *MUDROOM, "agent", "run", card, "--", "touch", "x", columns=300)
    screen.expect(r"\[n\]o: ")
    screen.type("\x03")
    assert screen.exit_code() == 130
    assert Cli(place).json("ls")["forks"] == []


def test_variables_are_passed_if_the_user_says_so(cli: Cli, place: Place) -> None:
    card = write_card(place, environment=["API_KEY", "UNSET"])
    cli.environment["API_KEY"] = "secret"
    found = run_json(cli, card, "echo $API_KEY")
    assert found["stdout"] == "\n"
    assert found["notes"][-1:] == ["helper asks for the variable API_KEY: --env API_KEY passes it"]
    found = run_json(cli, card, "echo $API_KEY", "--env", "API_KEY")
    assert (found["stdout"], found["notes"]) == ("secret\n", [])


# --- every way to end -------------------------------------------------------------------------------------------------


def background(cli: Cli, card: str, script: str, words: list[str]) -> subprocess.Popen[bytes]:
    tick()
    command = ["agent", "run", card, *words, "--", "sh", "-c", script]
    return cli.start(*command, stdin=subprocess.PIPE)


def wait_for(condition: Any) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "it did not come"
        give_way()


def alive(word: str) -> list[int]:
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            is_it = word.encode() in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[0]
        except OSError:
            continue  # it has ended
        found += [int(pid)] if is_it else []
    return found


@pytest.mark.skipif(not BASH, reason="exec -a is bash's")
@pytest.mark.parametrize(
    ("number", "manner"), pairs([signal.SIGTERM, signal.SIGHUP, signal.SIGINT], ["quick", "stubborn"])
)
def test_whoever_tells_mudroom_to_end_ends_the_agent(cli: Cli, place: Place, number: int, manner: str) -> None:
    word = f"agent-{os.getpid()}-{number}-{manner}"
    refuse = "trap '' TERM; " if manner == "stubborn" else ""
    script = f"{refuse}echo done > report; ({BASH} -c 'exec -a {word} sleep 1000' &); echo ready; "
    script += f"{BASH} -c 'exec -a {word} sleep 1000'; {BASH} -c 'exec -a {word} sleep 1000'"
    card = write_card(place, artifacts=["report"])
    process = background(cli, card, script, ["--artifacts", str(place.root / "out")])
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    process.send_signal(number)
    if manner == "stubborn":
        wait_for(lambda: len(alive(word)) > 0)
        process.send_signal(number)
    _out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 128 + number, err
    assert alive(word) == []
    assert (place.root / "out/files/report").read_text() == "done\n"
    assert states(cli) == ["started", "ended"]
    assert not [line for line in Path("/proc/self/mountinfo").read_text().splitlines() if str(place.state) in line]
    assert b"kept as helper" in err
    assert run_json(cli, card, "cat report")["stdout"] == "done\n"


@pytest.mark.skipif(not BASH, reason="there is no bash")
def test_on_a_terminal_it_has_one_of_its_own(place: Place) -> None:
    card = write_card(place)
    script = "test -t 0 && test -t 1 && echo both; read line; echo got $line; touch x"
    screen = Screen(place, *MUDROOM, "agent", "run", card, "--", "sh", "-c", script, columns=200)
    screen.expect("both")
    screen.type("this\n")
    screen.expect("got this.*kept as helper")
    assert screen.exit_code() == 0


def test_time_runs_out(cli: Cli, place: Place) -> None:
    done = run(cli, write_card(place), "touch x; sleep 1000", "--timeout", "0.3")
    assert done.returncode == 124
    assert events(cli)[-1]["data"]["timed_out"] is True


def test_mudroom_that_was_killed_leaves_a_fork_to_go_on_in(cli: Cli, place: Place) -> None:
    card = write_card(place)
    process = background(cli, card, "echo half > report; echo ready; sleep 1000", [])
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    process.kill()
    process.communicate(timeout=PATIENCE)
    found = run_json(cli, card, "cat report")
    assert (found["fork"], found["stdout"]) == ("helper", "half\n")
    assert states(cli) == ["started", "started", "ended"]


def test_a_workspace_is_a_fork_like_any_other(cli: Cli, place: Place) -> None:
    (place.home / ".config/gh").mkdir(parents=True)
    card = write_card(place, "team/helper", needsKeychain=["gh"])
    fork = run_json(cli, card, "echo 2 > f; echo said")["fork"]
    assert [(row["fork"], row["agent"]) for row in cli.json("ls")["forks"]] == [(fork, "team/helper")]
    assert f"{fork}  1 file, +1 -1  of team/helper" in cli("ls").stdout
    assert cli("vault", "check").returncode == 0
    assert cli("vault", "export", fork, str(place.root / "fork.tar")).returncode == 0
    assert cli("fork", "rename", fork, "mine").returncode == 0
    assert run_json(cli, card, "cat f")["stdout"] == "1\n", "a new one: the old one is the user's now"
    assert cli.json("diff", "mine")["credentials"] == ["gh"]
    assert cli("vault", "gc").returncode == 0
    assert cli("apply", "mine", "--yes").returncode == 0


def test_what_the_policy_of_commands_refuses(cli: Cli, place: Place) -> None:
    place.write(".mudroom/policy.yaml", "commands:\n  rules:\n    - {pattern: touch, action: deny, reason: not here}\n")
    done = run(cli, write_card(place), "touch x")
    assert done.returncode == 126
    assert "refused" in done.stderr
    assert done.stderr.count("\n") == 1
    assert cli.json("ls")["forks"] == []
    assert events(cli)[-1]["data"]["ran"] is False
