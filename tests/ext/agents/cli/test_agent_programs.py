"""An agent's program has its profile under every verb that starts one: its login, its variables, its directories."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from conftest import Place
from mudroom.core.registry import AGENT_PROGRAMS
from mudroom.ext.agents.catalog import Catalog
from mudroom.ext.agents.core.profile import generic_profile
from test_agent_profiles import Agent
from test_vault_verb import Cli
from tiers import each, pairs

pytestmark = pytest.mark.both_users

SCRIPT = """
cat ~/.claude/.credentials.json; echo "key=$ANTHROPIC_API_KEY"
echo more >>~/.claude/.credentials.json; echo 2 >f"""
VERBS = [("run", "--no"), ("exec",), ("exec", "--fork", "a"), ("exec", "--agent", "coder")]
MINE = 'format = 1\nname = "mine"\nprograms = ["my-agent"]\n[environment]\npass = ["MINE"]\n'


@pytest.fixture
def agent(place: Place) -> Agent:
    agent = Agent(place)
    agent.script(SCRIPT)
    agent.cli.environment["ANTHROPIC_API_KEY"] = "sk-of-the-test"
    return agent


def test_the_kernel_knows_the_programs_of_all_profiles() -> None:
    profiles = [Catalog().profile(name) for name in Catalog().names()]
    assert sorted(AGENT_PROGRAMS) == sorted(program for profile in profiles for program in profile.programs)


@pytest.mark.parametrize(("verb", "by_path"), pairs(VERBS, [False, True]))
def test_a_verb_that_starts_an_agent_uses_its_profile(agent: Agent, verb: tuple[str, ...], by_path: bool) -> None:
    word = str(agent.home / "prefix/bin/claude") if by_path else "claude"
    result = agent.cli.json(*verb, "--json", "--", word)
    assert (result["exit_code"], result["stdout"]) == (0, "token\nkey=sk-of-the-test\n"), result
    assert agent.store()[".credentials.json"] == "token\nmore\n"


def test_attempts_of_an_agent_use_its_profile(agent: Agent) -> None:
    result = agent.cli.json("try", "-n", "2", "--jobs", "1", "--json", "--", "claude")
    assert [attempt["state"] for attempt in result["attempts"]] == ["passed", "passed"], result
    assert agent.store()[".credentials.json"] == "token\nmore\nmore\n"


def test_an_attempt_that_fails_shows_its_code_and_its_last_line(agent: Agent) -> None:
    agent.script("echo working; echo 'Not logged in' >&2; exit 3")
    ended = agent.cli("try", "-n", "1", "--", "claude", "-p", "x")
    (row,) = [line for line in ended.stdout.splitlines() if " t1-1" in line or line.lstrip().startswith("1 ")]
    assert row.endswith("exit code 3: Not logged in"), ended.stdout


def test_a_card_of_the_users_comes_before_the_profile(agent: Agent, tmp_path: Path) -> None:
    card = tmp_path / "card.json"
    card.write_text(json.dumps({"agentId": "mine"}))
    result = agent.cli.json("exec", "--card", str(card), "--read", str(agent.home / "prefix"), "--json", "--", "claude")
    assert result["stdout"] == "key=\n"


def test_a_program_is_a_verb_as_its_agent_is(agent: Agent) -> None:
    (agent.home / "prefix/bin/mini").symlink_to("claude")
    agent.script("echo $LITELLM_LOCAL_MODEL_COST_MAP")
    ended = agent.cli("mini")
    assert (ended.returncode, ended.stdout) == (0, "True\n"), ended.stderr


def test_the_version_of_an_adapter_is_not_compared_with_the_agent_s(agent: Agent) -> None:
    modules = agent.home / "prefix/lib/node_modules/@zed-industries/claude-agent-acp"
    modules.mkdir(parents=True)
    (modules / "package.json").write_text('{"version": "0.23.1"}')
    (modules / "cli").write_text("#!/bin/sh\necho up\n")
    (modules / "cli").chmod(0o755)
    (agent.home / "prefix/bin/claude-agent-acp").symlink_to("../lib/node_modules/@zed-industries/claude-agent-acp/cli")
    ended = agent.cli("exec", "--", "claude-agent-acp")
    assert ended.stdout.startswith("up\n"), ended.stderr
    assert "was tried with" not in ended.stderr
    assert "Claude Code by claude-agent-acp 0.23.1; variables passed: ANTHROPIC_API_KEY" in ended.stderr


def test_a_profile_of_the_users_belongs_to_its_program(agent: Agent) -> None:
    agents = agent.cli.place.home / ".config/mudroom/agents"
    agents.mkdir(parents=True)
    (agents / "mine.toml").write_text(MINE)
    (agent.home / "prefix/bin/my-agent").symlink_to("claude")
    agent.cli.environment["MINE"] = "passed"
    agent.script('echo "mine=$MINE"')
    assert agent.cli.json("exec", "--json", "--", "my-agent")["stdout"] == "mine=passed\n"


def test_variables_that_look_like_the_agent_s_and_are_not_passed_are_named(agent: Agent) -> None:
    agent.cli.environment |= {"ANTHROPIC_VERTEX_PROJECT_ID": "p", "CLAUDE_CODE_USE_VERTEX": "1", "VERTEX_X": "1"}
    said = agent.cli("exec", "--", "claude").stderr
    named = "not passed: ANTHROPIC_VERTEX_PROJECT_ID, CLAUDE_CODE_USE_VERTEX (--env NAME passes one)"
    assert named in said
    said = agent.cli("exec", "--env", "CLAUDE_CODE_USE_VERTEX", "--", "claude").stderr
    assert "not passed: ANTHROPIC_VERTEX_PROJECT_ID (--env NAME passes one)" in said
    (agent.home / "prefix/bin/mini").symlink_to(agent.program)
    agent.cli.environment |= {"MSWEA_X": "1", "BASH_X": "1"}
    assert ", MSWEA_X (--env NAME passes one)" in agent.cli("exec", "--", "mini").stderr


@pytest.mark.parametrize("outside", [(), ("--outside",)])
@pytest.mark.parametrize("program", ["@agentclientprotocol/claude-agent-acp", "@agentclientprotocol/codex-acp"])
def test_an_adapter_that_is_missing_is_installed_by_its_own_package(
    place: Place, program: str, outside: tuple[str, ...]
) -> None:
    word = program.partition("/")[2]
    ended = Cli(place)("acp", *outside, "--", word)
    assert (ended.returncode, ended.stderr.splitlines()[-1]) == (
        127, f"mudroom: {word}: no such program on PATH (npm install -g {program})"
    )  # fmt: skip


def unknown(agent: Agent, name: str = "my-agent") -> None:
    (agent.home / "prefix/bin" / name).symlink_to(agent.program)


def test_a_program_without_a_profile_has_a_store_that_lasts(agent: Agent) -> None:
    unknown(agent)
    (agent.home / ".my-agent").mkdir()
    (agent.home / ".my-agent/token").write_text("of the host")
    agent.script(
        "mkdir -p ~/.my-agent ~/.config/my-agent; ls ~/.my-agent; echo x >>~/.my-agent/s; wc -l <~/.my-agent/s"
    )
    assert agent.cli("agent", "run", "--", "my-agent").stdout == "1\n"
    ended = agent.cli("agent", "run", "--", "my-agent")
    assert ended.stdout == "s\n2\n"
    assert "settings" not in ended.stderr
    assert [path.name for path in (agent.home / ".my-agent").iterdir()] == ["token"]


@each("name", ["ssh", "npm", "config", "gh", "aws", "mudroom", "cargo"])
def test_a_program_with_the_name_of_another_one_s_store_has_none(name: str) -> None:
    taken = {"ssh": b".ssh", "npm": b".npm", "config": b".config", "gh": b".config/gh", "aws": b".aws"}
    taken |= {"mudroom": b".config/mudroom", "cargo": b".cargo"}
    assert taken[name] not in generic_profile(name).directories


def test_a_project_in_the_place_of_such_a_store_stays_in_view(agent: Agent) -> None:
    unknown(agent)
    project = agent.home / ".config/my-agent"
    project.mkdir(parents=True)
    (project / "f").write_text("of the project\n")
    agent.script("cat f")
    ended = agent.cli("agent", "run", "--", "my-agent", cwd=project)
    assert ended.stdout == "of the project\n", ended.stderr


def test_at_a_failure_the_lines_of_a_profile_are_offered_and_help(agent: Agent) -> None:
    unknown(agent)
    (agent.home / ".my-agent").mkdir()
    (agent.home / ".my-agent/token").write_text("t\n")
    agent.cli.environment["MY_AGENT_MODEL"] = "m"
    agent.script("cat ~/.my-agent/token && echo $MY_AGENT_MODEL")
    ended = agent.cli("agent", "run", "--", "my-agent")
    assert ended.returncode == 1
    first, *lines = ended.stderr.split("no profile knows my-agent.", 1)[1].splitlines()
    path = Path(first.split("write these lines to ")[1].rstrip(":"))
    assert len(lines) == 6
    path.parent.mkdir(parents=True)
    path.write_text("\n".join(lines) + "\n")
    again = agent.cli("agent", "run", "--", "my-agent")
    assert again.stdout == "t\nm\n", again.stderr


@pytest.mark.parametrize("by_path", [False, True])
def test_a_file_of_the_project_is_no_agent_by_its_name(agent: Agent, by_path: bool) -> None:
    agent.place.write("bin/claude", "#!/bin/sh\ncat ~/.claude/.credentials.json; echo key=$ANTHROPIC_API_KEY\n")
    project = agent.place.project
    (project / "bin/claude").chmod(0o755)
    agent.cli.environment["PATH"] = f"{project}/bin:{agent.cli.environment['PATH']}"
    ended = agent.cli("exec", "--", "bin/claude" if by_path else "claude")
    assert ended.stdout.startswith("key=\n"), ended.stderr
    assert "is a file of the project, so it has no profile: mudroom agent run -- " in ended.stderr


def test_a_program_that_is_not_on_this_host_is_said_as_ever(agent: Agent) -> None:
    ended = agent.cli("exec", "--", "gemini")
    assert (ended.returncode, "gemini: command not found" in ended.stderr) == (127, True), ended.stderr
