"""Rules and roles of a stranger's policy: they tighten unseen, and loosen for nobody whom the user has not seen."""

from __future__ import annotations

import pytest

from policy_files import Strange, action, files

__all__ = ["files"]


def test_a_rule_that_is_not_trusted_still_asks_for_more(files: Strange) -> None:
    files.write(
        project=(
            "commands:\n  rules:\n"
            "  - {pattern: make, action: allow_with_checkpoint}\n"
            "  - {pattern: docker, action: allow_with_checkpoint}\n"
            "  - {pattern: sudo, action: require_approval}\n"
        ),
        user="commands: {classes: {host_escape_risk: deny}}",
    )
    assert len(files.left_out) == 2
    assert action(files, "make", "mutating") == "allow_with_checkpoint"
    assert action(files, "docker run", "host_escape_risk") == "deny"
    assert action(files, "sudo x", "host_escape_risk") == "deny"
    files.trust()
    assert action(files, "docker run", "host_escape_risk") == "allow_with_checkpoint"
    assert action(files, "sudo x", "host_escape_risk") == "deny", "asking is never milder than the user's own word"


def test_a_role_of_the_projects_own_tightens_unseen(files: Strange) -> None:
    files.write(project="roles: {r: {classes: {mutating: deny, unknown: allow}}}\nagents: {a: r}")
    assert files.left_out == ["roles.r.classes.unknown: allow"]
    assert action(files, "x", "mutating", agent="a") == "deny"
    assert action(files, "x", "unknown", agent="a") == "allow_with_checkpoint"


def test_the_users_role_is_not_given_away(files: Strange) -> None:
    files.write(
        project="roles: {free: {}}\nagents: {a: free}", user="roles: {free: {classes: {host_escape_risk: allow}}}"
    )
    assert files.left_out == ["agents.a: free"]
    assert action(files, "x", "host_escape_risk", agent="a") == "require_approval"
    files.trust()
    assert action(files, "x", "host_escape_risk", agent="a") == "allow"


@pytest.mark.parametrize("which", ["project", "local"])
def test_what_is_stricter_than_the_user_does_not_make_way_for_what_is_milder(files: Strange, which: str) -> None:
    """A class that the project closes is still one that the user has spoken of: a role does not open it."""
    files.write(
        user="commands: {classes: {networked: require_approval}}",
        **{
            which: "commands: {classes: {networked: deny}}\nroles: {r: {classes: {networked: allow}}}\nagents: {a: r}\n"
        },
    )
    assert files.left_out == []
    assert action(files, "curl", "networked") == "deny"
    assert action(files, "curl", "networked", agent="a") == "deny"


def test_what_nobody_has_seen_does_not_replace_what_the_project_says(files: Strange) -> None:
    """A pull may bring a file for this machine: it is no way round what was trusted together with the rest."""
    files.write(
        project=(
            "network: {mode: none}\ncommands: {classes: {networked: deny}}\nrun: {view: copy}\n"
            "roles: {r: {classes: {mutating: deny}}, free: {}}\nagents: {a: r}\n"
        )
    )
    files.trust()
    files.write(
        local=(
            "network: {mode: gate}\ncommands: {classes: {networked: allow}}\nrun: {view: auto}\n"
            "roles: {free: {}}\nagents: {a: free}\n"
        )
    )
    assert (str(files.settings.network), files.settings.view) == ("none", "copy")
    assert action(files, "curl", "networked") == "deny"
    assert action(files, "make", "mutating", agent="a") == "deny"
    files.write(local="limits: {memory: 1GB}\nnetwork: {mode: none}\n")
    assert files.settings.limits.memory == 10**9, "what tightens holds"


ROLE_OF_AN_AGENTS_NAME = "roles: {claude-code: {}}\nagents: {evil: claude-code}\n"


def test_what_is_for_one_agent_is_not_given_to_another(files: Strange) -> None:
    """Rules may be for an agent by its name; a role of that name would have them, too."""
    files.write(
        user=(
            "roles: {rev: {}}\nagents: {claude-code: rev}\ncommands:\n  classes: {networked: require_approval}\n"
            "  rules: [{pattern: git push, action: allow, agents: [claude-code]}]\n"
        ),
        project=ROLE_OF_AN_AGENTS_NAME,
    )
    assert files.left_out == ["agents.evil: claude-code"]
    assert action(files, "git push", "networked", agent="evil") == "require_approval"
    assert action(files, "git push", "networked", agent="claude-code") == "allow"


@pytest.mark.parametrize("said", ["rules: [{pattern: git push, action: allow}]", "classes: {networked: allow}"])
def test_nor_is_a_role_of_this_machine(files: Strange, said: str) -> None:
    files.write(
        user="commands: {classes: {networked: require_approval}}",
        local=f"roles: {{rev: {{{said}}}}}\nagents: {{a: rev}}\n",
    )
    files.trust()
    files.write(project="agents: {evil: rev}\n")
    assert files.left_out == ["agents.evil: rev"]
    assert action(files, "git push", "networked", agent="a") == "allow"
    assert action(files, "git push", "networked", agent="evil") == "require_approval"


def test_nor_one_of_the_projects_that_was_trusted_for_another(files: Strange) -> None:
    files.write(
        user="commands: {classes: {destructive: require_approval}}",
        project="roles: {r: {rules: [{pattern: rm -rf build, action: allow}]}}\nagents: {a: r}\n",
    )
    files.trust()
    assert action(files, "rm -rf build", "destructive", agent="a") == "allow"
    files.write(project="roles: {r: {rules: [{pattern: rm -rf build, action: allow}]}}\nagents: {a: r, b: r}\n")
    assert files.left_out == ["agents.b: r"]
    assert action(files, "rm -rf build", "destructive", agent="a") == "allow"
    assert action(files, "rm -rf build", "destructive", agent="b") == "require_approval"


def test_an_agent_that_loses_its_role_is_missed_even_if_the_role_loosens(files: Strange) -> None:
    said = "roles: {r: {classes: {networked: deny, unknown: allow}}}\n"
    said += "commands: {rules: [{pattern: make, action: allow}]}"
    files.write(project=said + "\nagents: {a: r}\n")
    files.trust()
    assert files.left_out == []
    files.write(project=said)
    assert files.left_out == ["roles.r.classes.unknown: allow", "commands.rules: allow make …"]
    assert "no longer says agents.a: r" in files.load().why


def test_an_agent_whose_role_is_not_believed_is_still_one(files: Strange) -> None:
    files.write(
        project="agents: {a: free}\ncommands: {rules: [{pattern: make, action: deny, agents: [a]}]}",
        user="roles: {free: {}}",
    )
    assert files.left_out == ["agents.a: free"]
    assert action(files, "make", "mutating", agent="a") == "deny"
