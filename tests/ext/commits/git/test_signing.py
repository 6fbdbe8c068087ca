"""Commits that the user's own git signs when they land (``git.sign: on-landing``), verified by real git."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest
from agent_repository import Agent, subjects
from handgit import fsck, git

from conftest import Place
from mudroom.core.settings import Settings
from mudroom.errors import UsageError

pytestmark = [
    pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed"),
    pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="ssh-keygen is not installed"),
]
ME = "[user]\n\tname = T\n\temail = t@example.org\n"
SSH = """\tsigningkey = {0}/key.pub
[gpg]
\tformat = ssh
[gpg "ssh"]
\tallowedSignersFile = {0}/signers
"""
LANDING = Settings(git_sign="on-landing")
WORK = "echo 2 >> file; git commit -qam two; echo 3 >> file; git commit -qam three"
FOREIGN = "git -c user.name=Agent -c user.email=a@example.org"


@pytest.fixture
def project(place: Place, monkeypatch: pytest.MonkeyPatch) -> Place:
    place.write("file", "one\n")
    git(place.project, "git init -q; git add -A; git commit -qm one")
    git(place.root, "ssh-keygen -q -t ed25519 -N '' -f key; echo \"t@example.org $(cat key.pub)\" > signers")
    (place.root / "gitconfig").write_text(ME + SSH.format(place.root))
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(place.root / "gitconfig"))
    return place


@pytest.fixture
def agent(project: Place) -> Agent:
    return Agent(project, LANDING)


def log(project: Path, what: str) -> list[str]:
    return git(project, f"git log --topo-order --format='%G? %s' {what}").splitlines()


@pytest.mark.both_users
def test_commits_of_a_branch_are_signed(agent: Agent) -> None:
    agent.run(WORK)
    commits = agent.bring()
    project = agent.place.project
    assert (len(commits.commits), commits.result.signed) == (2, 2)
    assert log(project, "mudroom/agent") == ["G three", "G two", "N one"]
    assert commits.head == git(project, "git rev-parse mudroom/agent").strip()
    git(project, "git verify-commit mudroom/agent mudroom/agent~")
    assert git(project, "git log -1 --format='%an %cn %B' mudroom/agent") == "T T three\n\n"
    assert fsck(project) == ""  # also no unsigned commit is left over


def test_a_program_of_the_project_does_not_sign(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    """A relative entry in PATH means a directory in which an agent's files may have landed."""
    agent.place.write("ssh-keygen", f"#!/bin/sh\ntouch {agent.place.root}/ran\n")
    (agent.place.project / "ssh-keygen").chmod(0o755)
    monkeypatch.setenv("PATH", f".:{os.environ['PATH']}")
    monkeypatch.chdir(agent.place.project)
    again = Agent(agent.place, LANDING)
    again.run(WORK)
    assert again.bring().result.signed == 2
    assert not (agent.place.root / "ran").exists()


def test_a_repeat_finds_its_signed_commits(agent: Agent) -> None:
    agent.run(WORK)
    agent.bring()
    project = agent.place.project
    before = git(project, "git rev-parse mudroom/agent")
    assert not agent.bring().name
    agent.run("echo 4 >> file; git commit -qam four")
    commits = agent.bring()
    assert [commit.subject for commit in commits.commits] == ["four"]
    assert log(project, "mudroom/agent") == ["G four", "G three", "G two", "N one"]
    assert git(project, "git rev-parse mudroom/agent~") == before
    assert fsck(project) == ""
    agent.undo()
    assert git(project, "git rev-parse mudroom/agent") == before


def test_the_checked_out_branch_lands_signed(agent: Agent) -> None:
    agent.run(f"{WORK}; git checkout -qb side HEAD~; git commit -q --allow-empty -m side; git tag light")
    agent.run("git tag -a -m note annotated; git checkout -q main; git merge -qm merge side")
    landed = agent.session.changes.apply("agent", git=True)
    project = agent.place.project
    assert not landed.conflicts and landed.repositories[0].signed == 4
    assert sorted(log(project, "main")) == ["G merge", "G side", "G three", "G two", "N one"]
    assert len({git(project, f"git rev-parse {name}^{{commit}}") for name in ("side", "light", "annotated")}) == 1
    assert git(project, "git status --porcelain") == fsck(project) == ""
    agent.undo()
    assert log(project, "--all") == ["N one"]
    agent.session.changes.redo()
    assert len(log(project, "main")) == 5
    agent.run("echo 5 >> file; git commit -qam five")
    agent.session.changes.apply("agent", git=True)
    assert log(project, "main")[0] == "G five" and fsck(project) == ""


@pytest.mark.skipif(shutil.which("gpgconf") is None, reason="gpg is not installed")
@pytest.mark.both_users
def test_with_an_openpgp_key(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    with tempfile.TemporaryDirectory(prefix="mrg", dir="/tmp") as keys:  # the agent's socket has a short path
        monkeypatch.setenv("GNUPGHOME", keys)
        key = "gpg --batch -q --passphrase '' --pinentry-mode loopback --quick-gen-key 'T <t@example.org>' ed25519"
        git(agent.place.root, f"{key} sign never")
        (agent.place.root / "gitconfig").write_text(ME)
        try:
            again = Agent(agent.place, LANDING)
            again.run(WORK)
            again.bring()
            git(agent.place.project, "git verify-commit mudroom/agent mudroom/agent~")
        finally:
            subprocess.run(["gpgconf", "--kill", "all"], check=True)


def test_commits_of_others_are_not_signed(agent: Agent) -> None:
    agent.run(f"echo 2 >> file; {FOREIGN} commit -qam theirs; git commit -q --allow-empty -m mine")
    agent.run(f"{FOREIGN} commit -q --allow-empty -m after")
    commits = agent.bring()
    project = agent.place.project
    assert log(project, "mudroom/agent") == ["N after", "G mine", "N theirs", "N one"]
    assert commits.result.signed == 1
    assert git(project, "git log -1 --format=%cn mudroom/agent") == "Agent\n"
    agent.run("git reset -q --hard $(git cat-file commit HEAD~ | sed '/^$/,$d' | git hash-object -t commit -w --stdin)")
    assert agent.bring("bare-head").result.signed == 0  # its header has no end at which a signature could be


def test_fetched_commits_of_the_user_stay_as_they_are(agent: Agent) -> None:
    """Another name for a published commit would part the branch from its upstream."""
    git(agent.place.project, "git clone -q . up; cd up; git commit -q --allow-empty -m published; rm -rf .git/hooks")
    published = git(agent.place.project, "git -C up rev-parse HEAD").strip()
    again = Agent(agent.place, LANDING)
    again.run(
        "git remote add origin up; git fetch -q origin; git merge -q origin/main; git commit -q --allow-empty -m x"
    )
    again.bring()
    assert git(agent.place.project, "git rev-parse mudroom/agent~").strip() == published
    assert log(agent.place.project, "mudroom/agent") == ["G x", "N published", "N one"]


def test_stashes_and_notes_keep_their_commits(agent: Agent) -> None:
    agent.run(f"{WORK}; git notes add -m word; echo 5 >> file; git stash -q")
    agent.session.changes.apply("agent", git=True)
    project = agent.place.project
    assert log(project, "main") == ["G three", "G two", "N one"]
    assert subjects(project, "stash@{0}")[0].startswith("WIP on main: ")
    git(project, "git stash pop -q")
    assert (project / "file").read_text() == "one\n2\n3\n5\n"


@pytest.mark.parametrize(
    ("break_it", "why", "git_too"),
    [
        ("rm key key.pub", "user.signingKey names no file", True),
        ("ssh-keygen -q -p -P '' -N secret -f key", "/ssh-keygen does not sign: ", True),
        ("rm key", "/ssh-keygen does not sign: ", False),  # only the agent has it, and there is no agent
        ("sed -i 's/= ssh/= no/' gitconfig", "gpg.format is no", False),
        ("printf '[gpg \"ssh\"]\\n\\tprogram = absent\\n' >> gitconfig", "absent is not installed", False),
    ],
)
def test_without_a_usable_key_nothing_is_lost(
    agent: Agent, break_it: str, why: str, monkeypatch: pytest.MonkeyPatch, *, git_too: bool
) -> None:
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    monkeypatch.setenv("SSH_ASKPASS", "/bin/false")
    monkeypatch.setenv("SSH_ASKPASS_REQUIRE", "force")
    root, project = agent.place.root, agent.place.project
    agent.run(WORK)
    git(root, f"mkdir kept; cp key key.pub gitconfig kept; {break_it}")
    state = "git for-each-ref; git status --porcelain; git count-objects; cat file"
    before = git(project, state)

    def land(agent: Agent) -> None:
        if git_too:
            agent.session.changes.apply("agent", git=True)
        else:
            agent.bring()

    with pytest.raises(UsageError) as refused:
        land(Agent(agent.place, LANDING))
    assert why in str(refused.value) and "\n" not in str(refused.value)
    assert git(project, state) == before
    git(root, "cp -p kept/* .")
    land(Agent(agent.place, LANDING))
    assert log(project, "main" if git_too else "mudroom/agent") == ["G three", "G two", "N one"]


@pytest.mark.skipif(shutil.which("ssh-agent") is None, reason="ssh-agent is not installed")
def test_a_key_of_the_ssh_agent(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    """user.signingKey is the public key itself, as password managers set it up."""
    agent.run(WORK)
    root = agent.place.root
    public = (root / "key.pub").read_text().strip()
    (root / "gitconfig").write_text((ME + SSH.format(root)).replace(f"{root}/key.pub", f'"{public}"'))
    with tempfile.TemporaryDirectory(prefix="mrs", dir="/tmp") as directory:
        socket = f"{directory}/agent"
        with subprocess.Popen(["ssh-agent", "-D", "-a", socket], stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None and process.stdout.readline()
            monkeypatch.setenv("SSH_AUTH_SOCK", socket)
            git(root, "ssh-add -q key; rm key key.pub")
            assert Agent(agent.place, LANDING).bring().result.signed == 2
            process.terminate()
    git(agent.place.project, "git verify-commit mudroom/agent")


def test_it_is_the_policy_that_asks(project: Place) -> None:
    """commit.gpgSign alone does not rename the commits of a fork."""
    with (project.root / "gitconfig").open("a") as settings:
        settings.write("[commit]\n\tgpgsign = true\n")
    agent = Agent(project)
    agent.run(WORK)
    assert agent.bring().result.signed is None
    assert log(project.project, "mudroom/agent") == ["N three", "N two", "N one"]


def test_a_signature_of_another_is_not_broken(agent: Agent) -> None:
    agent.run("git commit -q --allow-empty -m mine; git commit -q --allow-empty -m theirs")
    forge = (
        "git cat-file commit HEAD | sed 's/^committer .*>/committer A <a@example.org>/; "
        "/^committer/a gpgsig -----BEGIN X-----\\n more' > text; git reset -q --hard "
        "$(git hash-object -t commit -w text); rm text"
    )
    agent.run(forge)
    with pytest.raises(UsageError, match="is signed by another, and comes after one that you would sign"):
        agent.bring()
    assert subjects(agent.place.project, "--all") == ["one"]
