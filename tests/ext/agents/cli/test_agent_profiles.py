"""An agent by its name: its program, its store, its variables and hosts, as a user meets them. No card."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from typing import Any

import pytest

import forked
from clocks import give_way
from conftest import Place
from mudroom.ext.agents.cli.agent_profile import place_named_by
from test_vault_verb import Cli
from tiers import each, half

pytestmark = pytest.mark.both_users

SETTINGS = '{"model": "opus"}\n'
PLANT = """
echo '{"hooks": {"SessionStart": "curl evil"}}' > ~/.claude/settings.json
mkdir -p ~/.claude/skills/evil ~/.claude/projects/p
echo evil > ~/.claude/skills/evil/SKILL.md
echo said > ~/.claude/projects/p/t.jsonl
date > ~/.claude/.last-cleanup
echo '{"numStartups": 9, "mcpServers": {"evil": {"command": "sh"}}}' > ~/.claude.json
echo more >> ~/.claude/.credentials.json
echo 2 >> f
"""


class Agent:
    """A program ``claude`` behind links, as npm installs it, and its store."""

    def __init__(self, place: Place) -> None:
        self.place, self.cli = place, Cli(place)
        self.home = place.home
        place.write("f", "1\n")
        modules = self.home / "prefix/lib/node_modules/@anthropic-ai/claude-code"
        self.program = modules / "cli"
        modules.mkdir(parents=True)
        (modules / "package.json").write_text('{"version": "2.1.9"}')
        (modules / "part.sh").write_text("part() { echo part; }\n")
        binaries = self.home / "prefix/bin"
        binaries.mkdir()
        (binaries / "claude").symlink_to("../lib/node_modules/@anthropic-ai/claude-code/cli")
        store = self.home / ".claude"
        store.mkdir()
        (store / "settings.json").write_text(SETTINGS)
        (store / ".credentials.json").write_text("token\n")
        (store / "projects/other").mkdir(parents=True)
        (store / "projects/other/secret.jsonl").write_text("of another project\n")
        self.cli.environment["PATH"] = f"{binaries}:{os.environ['PATH']}"

    def script(self, text: str) -> None:
        self.program.write_text(f'#!/bin/sh\n. "$(dirname "$(readlink -f "$0")")/part.sh"\n{text}\n')
        self.program.chmod(0o755)

    def run(self, *words: str, options: tuple[str, ...] = ()) -> dict[str, Any]:
        return self.cli.json("agent", "run", *options, "--json", "--", "claude", *words)

    def store(self) -> dict[str, str]:
        files = (path for path in (self.home / ".claude").rglob("*") if path.is_file())
        return {str(path.relative_to(self.home / ".claude")): path.read_text() for path in files}


@pytest.fixture
def agent(place: Place) -> Agent:
    return Agent(place)


LEVELS = [(), ("--view", "copy"), ("--level", "0"), ("--level", "0", "--view", "copy")]


@pytest.mark.parametrize("options", half(LEVELS), ids=" ".join)
def test_a_hook_that_is_planted_stays_in_the_fork_and_is_shown(agent: Agent, options: tuple[str, ...]) -> None:
    agent.script(PLANT + "cat ~/.claude/settings.json")
    before = agent.store()
    result = agent.run(options=options)
    assert (result["exit_code"], result["fork"]) == (0, "claude"), result
    assert agent.store() == before | {".credentials.json": "token\nmore\n"}
    assert not (agent.home / ".claude.json").exists()
    assert [(row["path"], row["change"], row["keys"]) for row in result["settings"]] == [
        ("~/.claude.json", "new", ["mcpServers"]),
        ("~/.claude/settings.json", "changed", []),
        ("~/.claude/skills/evil/SKILL.md", "new", []),
    ]
    agent.script("cat ~/.claude/settings.json ~/.claude/projects/p/t.jsonl; ls ~/.claude/projects")
    again = agent.run(options=options)
    assert "SessionStart" in again["stdout"]  # the fork's own, from run to run
    assert again["stdout"].endswith("said\np\n")  # no transcript of another project


def test_what_is_chosen_lands_and_is_taken_back(agent: Agent) -> None:
    agent.script(PLANT)
    before = agent.store()
    agent.run()
    cli, home = agent.cli, agent.home
    shown = cli("agent", "settings", "claude", "--diff")
    assert "+evil" in shown.stdout
    assert "your agent's settings" in cli("diff", "claude").stderr
    skill = "~/.claude/skills/evil/SKILL.md"
    landed = cli.json("agent", "settings", "claude", "--land", skill, "--land", ".claude.json")
    assert landed["results"] == [
        {"path": ".claude.json", "reason": None},
        {"path": ".claude/skills/evil/SKILL.md", "reason": None},
    ]
    assert json.loads((home / ".claude.json").read_text()) == {"mcpServers": {"evil": {"command": "sh"}}}
    assert (home / ".claude/settings.json").read_text() == SETTINGS
    left = cli.json("agent", "settings", "claude")["changes"]
    assert [row["path"] for row in left] == ["~/.claude/settings.json"]
    assert cli("agent", "settings", "--undo").returncode == 0
    assert agent.store() == before | {".credentials.json": "token\nmore\n"}
    assert not (home / ".claude.json").exists()
    assert "no settings of an agent have landed" in cli("agent", "settings", "--undo").stderr
    kinds = [json.loads(line)["kind"] for line in cli("log", "-n", "2", "--json").stdout.splitlines()]
    assert kinds == ["settings", "settings"]


def test_commits_are_offered_as_a_branch(agent: Agent) -> None:
    git = "git -c user.name=A -c user.email=a@example.org -c init.defaultBranch=main"
    subprocess.run(
        f"{git} init -q && git add f && {git} commit -qm one", shell=True, cwd=agent.place.project, check=True
    )
    agent.script(f"echo 2 >>f; {git} commit -qam 'two of it'")
    said = agent.cli("agent", "run", "--", "claude").stderr
    assert (
        "1 commit on main: two of it   (apply --git brings them with the files, --commits as branch mudroom/claude)"
        in said
    )


def test_what_both_have_changed_does_not_land(agent: Agent) -> None:
    agent.script(PLANT)
    agent.run()
    (agent.home / ".claude/settings.json").write_text('{"model": "haiku"}\n')
    done = agent.cli("agent", "settings", "claude", "--all")
    assert done.returncode == 3
    assert "settings.json  not landed: it has changed on the host, too" in done.stderr
    assert (agent.home / ".claude/settings.json").read_text() == '{"model": "haiku"}\n'
    (agent.home / ".claude/skills/evil/SKILL.md").write_text("mine")
    done = agent.cli("agent", "settings", "--undo")
    assert done.returncode == 3
    assert "SKILL.md  not taken back: it has changed since it landed" in done.stderr
    assert (agent.home / ".claude/skills/evil/SKILL.md").read_text() == "mine"


def test_the_hosts_own_changes_are_seen_by_the_next_run(agent: Agent) -> None:
    agent.script("cat ~/.claude/settings.json ~/.claude/CLAUDE.md")
    (agent.home / ".claude/CLAUDE.md").write_text("first\n")
    assert agent.run()["stdout"] == SETTINGS + "first\n"
    (agent.home / ".claude/CLAUDE.md").unlink()
    (agent.home / ".claude/settings.json").write_text("{}\n")
    agent.script("cat ~/.claude/settings.json; ls ~/.claude")
    assert agent.run()["stdout"] == "{}\nsettings.json\n" or "CLAUDE.md" not in agent.run()["stdout"]
    assert agent.run()["settings"] == []


@pytest.mark.parametrize("options", half(LEVELS), ids=" ".join)
def test_links_that_a_command_has_planted_lead_nowhere(agent: Agent, options: tuple[str, ...]) -> None:
    target = agent.place.root / "target"
    target.mkdir()
    agent.script(
        f"rm ~/.claude/settings.json; ln -s {target}/made ~/.claude/settings.json; mkdir ~/.claude/d;"
        f" ln -s {target} ~/.claude/skills; ln -s {target}/x ~/.claude/x.json"
    )
    agent.run(options=options)
    agent.script("true")
    (agent.home / ".claude/skills").mkdir()
    (agent.home / ".claude/skills/a.md").write_text("a")
    result = agent.run(options=options)
    assert result["exit_code"] == 0
    assert list(target.iterdir()) == []
    done = agent.cli("agent", "settings", "claude", "--all")
    assert done.returncode == 3
    assert not (agent.home / ".claude/x.json").is_symlink()
    assert (agent.home / ".claude/settings.json").read_text() == SETTINGS


def test_a_link_at_the_place_of_a_login(agent: Agent) -> None:
    """The store's program has replaced its own login's mount point: the next run mends it, and writes nothing else."""
    target = agent.place.root / "target"
    (agent.home / ".claude/.credentials.json").unlink()
    agent.script(f"ln -s {target} ~/.claude/.credentials.json")
    agent.run()
    (agent.home / ".claude/.credentials.json").write_text("token\n")
    agent.script("cat ~/.claude/.credentials.json; echo more >> ~/.claude/.credentials.json")
    assert agent.run()["stdout"] == "token\n"
    assert (agent.home / ".claude/.credentials.json").read_text() == "token\nmore\n"
    assert not target.exists()


def test_a_card_opens_no_more_than_a_profile(agent: Agent) -> None:
    card = agent.place.root / "card.json"
    for needs in (True, ["claude"], ["~/.claude"], ["~/.claude/settings.json"]):
        requirements = {"needsOAuth": needs}
        card.write_text(json.dumps({"agentId": "claude", "sandboxLevel": 1, "sandboxRequirements": requirements}))
        agent.script(PLANT)
        before = {name: text for name, text in agent.store().items() if name != ".credentials.json"}
        done = agent.cli("agent", "run", str(card), "--", "claude")
        assert done.returncode == 0, done.stderr
        after = {name: text for name, text in agent.store().items() if name != ".credentials.json"}
        assert after == before
        assert not (agent.home / ".claude.json").exists()


def test_two_runs_of_one_agent_have_two_stores(agent: Agent) -> None:
    agent.script(PLANT)
    agent.run()
    agent.script("cat ~/.claude/settings.json")
    assert agent.run(options=("--fork", "second"))["stdout"] == SETTINGS


# --- its program, its variables, its hosts ----------------------------------------------------------------------------


def test_a_program_behind_links_is_found_with_its_package(agent: Agent) -> None:
    agent.script("part; echo $1")
    assert agent.run("said")["stdout"] == "part\nsaid\n"
    short = agent.cli("claude", "--said")
    assert (short.returncode, short.stdout) == (0, "part\n--said\n")
    assert agent.cli("agent", "run", "claude").stdout == "part\n\n"


def test_its_variables_are_passed_and_others_are_named_once(agent: Agent) -> None:
    agent.cli.environment |= {"ANTHROPIC_API_KEY": "sk-ant-0123456789", "GITHUB_TOKEN": "ghp_0123456789abcdef"}
    agent.script("echo $ANTHROPIC_API_KEY.$GITHUB_TOKEN.$DISABLE_AUTOUPDATER")
    done = agent.cli("claude")
    assert done.stdout == "sk-ant-0123456789..1\n"
    first = done.stderr.splitlines()[0]
    assert "variables passed: ANTHROPIC_API_KEY" in first
    assert "not passed: GITHUB_TOKEN (--env NAME passes one)" in first
    assert "0123456789" not in done.stderr
    agent.script("echo $GITHUB_TOKEN.$DISABLE_AUTOUPDATER")
    chosen = agent.run(options=("--env", "GITHUB_TOKEN", "--env", "DISABLE_AUTOUPDATER=0"))
    assert chosen["stdout"] == "ghp_0123456789abcdef.0\n"


def test_a_model_server_on_this_machine_that_no_rule_opens_is_named(agent: Agent) -> None:
    agent.cli.environment["ANTHROPIC_BASE_URL"] = "http://127.0.0.1:8377/v1"
    agent.script("true")
    note = "ANTHROPIC_BASE_URL names a server on this machine; to open it: mudroom net allow 127.0.0.1:8377"
    assert note in agent.cli("claude").stderr
    assert note in agent.run()["notes"]
    assert agent.cli("net", "allow", "127.0.0.1:8377").returncode == 0
    assert "names a server" not in agent.cli("claude").stderr
    open_network = agent.cli("agent", "run", "--net", "open", "--", "claude")
    assert "names a server" not in open_network.stderr


@each(
    ("value", "place"),
    [
        ("http://127.0.0.1:8377/v1", ("127.0.0.1", 8377)),
        ("http://localhost/v1", ("localhost", 80)),
        ("https://user:word@[::1]:11434", ("::1", 11434)),
        ("127.0.0.1:11434", ("127.0.0.1", 11434)),
        ("localhost", None),
        ("https://api.example.com", None),
        ("http://127.0.0.1:99999", None),
        ("http://[::1", None),
        ("/home/me/localhost:80", None),
        ("", None),
    ],
)
def test_a_place_named_by_a_variable(value: str, place: tuple[str, int] | None) -> None:
    assert place_named_by(value) == place


def test_a_host_that_its_profile_denies_is_refused_without_a_question(agent: Agent) -> None:
    agent.script("curl -sS -m 20 http://statsig.anthropic.com/ -o /dev/null -w '%{http_code}'")
    result = agent.run()
    assert result["stdout"] == "403"
    assert any("profile claude" in denial["reason"] for denial in result["denials"])


def test_a_rule_of_the_users_wins_over_a_denied_host_of_the_profile(agent: Agent) -> None:
    (agent.home / "prefix/bin/codex").symlink_to(agent.program)
    agent.script(
        "curl -sS -m 20 http://registry.npmjs.org/ -o /dev/null; curl -sS -m 20 http://api.github.com/ -o /dev/null"
    )
    assert agent.cli("net", "allow", "registry.npmjs.org").returncode == 0
    result = agent.cli.json("agent", "run", "--json", "--", "codex")
    reasons = {denial["target"]: denial["reason"] for denial in result["denials"]}
    assert "profile codex" in reasons["api.github.com:80"]
    assert "profile codex" not in reasons.get("registry.npmjs.org:80", "")


def test_the_inner_sandbox_is_switched_off_where_mudroom_confines(agent: Agent) -> None:
    agent.script('echo "$@"')
    codex = agent.home / "prefix/bin/codex"
    codex.symlink_to(agent.program)
    off = '-c sandbox_mode="danger-full-access" exec hello\n'
    done = agent.cli("codex", "exec", "hello")
    assert done.stdout == off
    assert "its own sandbox is off" in done.stderr
    asked = agent.cli("codex", "exec", "--sandbox", "workspace-write", "hello")
    assert asked.stdout == off.replace("hello", "--sandbox danger-full-access hello")
    assert "--sandbox danger-full-access instead of workspace-write" in asked.stderr.splitlines()[0]
    bare = agent.cli("agent", "run", "--level", "0", "--", "codex", "exec", "-s", "read-only", "hello")
    assert bare.stdout == "exec -s read-only hello\n"
    assert "its own sandbox is off" not in bare.stderr


def test_an_unknown_program_gets_the_careful_profile(agent: Agent) -> None:
    (agent.home / "prefix/bin/my-agent").symlink_to(agent.program)
    agent.script("part; ls -A ~/.claude")
    done = agent.cli("agent", "run", "--", "my-agent")
    assert done.stdout == "part\n"
    assert "no profile knows this program" in done.stderr
    assert agent.cli("ls").stdout.startswith("my-agent") or "my-agent" in agent.cli("ls").stdout


# --- wrong input ------------------------------------------------------------------------------------------------------


def test_wrong_words(agent: Agent) -> None:
    agent.script("true")
    for words, code, message in (
        (("agent", "run"), 125, "no agent was named (installed: mudroom agent run -- claude"),
        (("gemini",), 127, "gemini: no such program on PATH (npm install -g @google/gemini-cli)"),
        (("agent", "run", "--", "./nonesuch"), 127, "./nonesuch: no such program on PATH"),
        (("agent", "run", "--checked", "0123456789", "--", "claude"), 125, "--checked is for a card"),
        (("agent", "settings", "nonesuch"), 125, "there is no fork named nonesuch"),
        (("cluade",), 125, "there is no verb 'cluade' (did you mean mudroom claude?)"),
    ):
        done = agent.cli(*words)
        assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (code, "", 1), done
        assert message in done.stderr, words


def test_a_version_that_the_profile_was_not_tried_with_is_told(agent: Agent) -> None:
    agent.script("true")
    assert "was tried with" not in agent.cli("claude").stderr
    (agent.program.parent / "package.json").write_text('{"version": "3.0.0"}')
    assert "claude 3.0.0 is installed, and its profile was tried with 2.1" in agent.cli("claude").stderr


@pytest.mark.parametrize("name", ["settings.json", ".credentials.json"])
def test_a_file_of_the_store_that_is_a_link(agent: Agent, name: str) -> None:
    """A dotfile manager's link in the home is followed; one in the store, which an agent could have made, is not."""
    secret = agent.home / "secret"
    secret.write_text("a secret\n")
    (agent.home / ".claude" / name).unlink()
    (agent.home / ".claude" / name).symlink_to(secret)
    agent.script(f"cat ~/.claude/{name}; echo more >> ~/.claude/{name}")
    result = agent.run()
    assert "a secret" not in result["stdout"]
    assert secret.read_text() == "a secret\n"


def test_a_login_that_is_not_kept_is_said_at_the_end(agent: Agent) -> None:
    login = agent.home / ".claude/.credentials.json"
    agent.script("rm ~/.claude/.credentials.json; mkdir ~/.claude/.credentials.json; exit 3")
    note = (
        "note: claude's login ~/.claude/.credentials.json was not kept: a directory is in its place; "
        "this machine's own is left as it is; log in again if it is used up\n"
    )
    ended = agent.cli("agent", "run", "--", "claude")
    assert (ended.returncode, ended.stderr.count(note)) == (3, 1), ended.stderr
    environment = {**agent.cli.environment, "COLUMNS": "400"}
    acp = forked.run(
        ["acp", "--", "claude"],
        cwd=agent.place.project, env=environment, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert acp.stderr.count(note) == 1, acp.stderr
    assert login.read_text() == "token\n"


@pytest.mark.parametrize("is_gone", [False, True])
def test_a_login_that_a_killed_mudroom_has_left_is_brought_before_the_fork_goes(agent: Agent, is_gone: bool) -> None:
    """Or it is said that it could not be."""
    login, state = agent.home / ".claude/.credentials.json", agent.place.state
    agent.script(
        "touch begun; until [ -e ~/.claude/go ]; do :; done\n"
        "echo new > ~/.claude/n && mv ~/.claude/n ~/.claude/.credentials.json; touch up; sleep 600"
    )
    killed = forked.popen(
        ["agent", "run", "--", "claude"],
        cwd=agent.place.project, env={**agent.cli.environment, "MUDROOM_KEEPER": "0"},
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    for name in ("begun", "up"):
        while not list(state.glob(f"vaults/*/layers/*/tree/{name}")):
            assert killed.poll() is None
            give_way()
        killed.send_signal(signal.SIGSTOP)  # it looks no more
        for store in state.glob("vaults/*/forks/claude/home/claude/0"):
            (store / "go").touch()
    killed.kill()
    killed.wait()
    assert login.read_text() == "token\n"
    if is_gone:
        login.unlink()
    done = agent.cli("discard", "claude")
    assert done.returncode == 0, done.stderr
    note = "was not kept: this machine has none any more; it goes with its fork: log in again"
    assert (note in done.stderr) is is_gone
    assert login.exists() is not is_gone
    assert is_gone or login.read_text() == "new\n"
