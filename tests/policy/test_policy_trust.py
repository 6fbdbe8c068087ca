"""A stranger's policy: what tightens always holds, what loosens once the user of this machine has trusted it."""

from __future__ import annotations

import json
import os
import stat

import pytest

from mudroom.core.settings import Loaded, Settings, StartCommand
from mudroom.policy.combine import PROJECT, read
from mudroom.policy.settings_table import ROWS, SECTIONS
from mudroom.policy.trust import describe, forget
from policy_files import BEFORE, LOOSE, TIGHT, Strange, action, files, text_of

__all__ = ["files"]


def test_the_two_tables_know_every_setting() -> None:
    every = {f"{section}.{key}" for section, keys in SECTIONS.items() for key in keys}
    assert every == LOOSE.keys() | TIGHT.keys()


@pytest.mark.parametrize("key", LOOSE)
def test_what_loosens_waits_for_trust(files: Strange, key: str) -> None:
    files.write(project=text_of(key, LOOSE[key]))
    found = files.load()
    assert found.settings == Settings()
    assert [one.text.startswith(key) for one in found.left_out] == [True]
    assert found.why == "it is not trusted on this machine"
    files.trust()
    trusted = files.load()
    assert trusted.left_out == ()
    assert trusted.settings != Settings()
    files.environ[b"MUDROOM_TRUST_POLICY"] = b"1"
    files.record.unlink()
    assert files.settings == trusted.settings


@pytest.mark.parametrize("key", TIGHT)
def test_what_does_not_always_holds(files: Strange, key: str) -> None:
    files.write(project=text_of(key, TIGHT[key]))
    found = files.load()
    assert found.left_out == ()
    files.environ[b"MUDROOM_TRUST_POLICY"] = b"1"
    assert files.settings == found.settings


def test_the_users_own_file_needs_no_trust(files: Strange) -> None:
    files.write(user=text_of("network.mode", "open"))
    assert files.left_out == []
    assert files.settings.network == "open"


@pytest.mark.parametrize(
    ("now", "left_out"),
    [
        (BEFORE, []),
        ("# a comment\n" + BEFORE.replace("it is ours", "it is everybody's"), []),
        (BEFORE.replace("[a.com, b.com]", "[b.com]"), []),
        (BEFORE.replace("2GB", "1GB"), []),
        (BEFORE.replace("require_approval", "deny"), []),
        (BEFORE.replace("[c.com]", "[d.com, c.com]"), []),
        (BEFORE + "run: {timeout: 1m, view: copy}\n", []),
        (BEFORE.replace("[a.com, b.com]", "[a.com, b.com, d.com]"), ["network.allow: d.com"]),
        (BEFORE.replace("a.com", "a.com:22"), ["network.allow: a.com:22"]),
        (BEFORE.replace("pattern: make", "pattern: sudo"), ["commands.rules: allow sudo …"]),
        (BEFORE.replace("pattern: make", "pattern: [[make, sudo]]"), ["commands.rules: allow make|sudo …"]),
        (BEFORE + "run: {level: 0}\n", ["run.level: 0"]),
        (BEFORE.replace("deny: [c.com]", "deny: []"), "all"),
        (BEFORE.replace("2GB", "4GB"), "all"),
        (BEFORE.replace("limits: {memory: 2GB}\n", ""), "all"),
        (BEFORE.replace("networked: require_approval", "networked: allow"), "all"),
        (BEFORE.replace("networked: require_approval", ""), "all"),
        (
            BEFORE.replace("limits:", "verify: {command: make test}\nlimits:"),
            ["verify.command: /bin/sh -c 'make test'"],
        ),
    ],
)
def test_what_a_pull_may_change(files: Strange, now: str, left_out: list[str] | str) -> None:
    files.write(project=BEFORE)
    files.trust()
    files.write(project=now)
    every = ["network.allow: a.com", "network.allow: b.com", "commands.rules: allow make …"]
    assert files.left_out == (every if left_out == "all" else left_out)
    why = files.load().why
    if left_out == "all":
        assert why.startswith("it no longer says ")
    else:
        assert why == ("it says more than when it was trusted" if left_out else "")


@pytest.mark.parametrize("now", ["'true'", "[/bin/sh, -c, make, test]", ""])
def test_what_verifies_is_missed(files: Strange, now: str) -> None:
    said = "network: {mode: open}\n"
    files.write(project=said + "verify: {command: make test}\n")
    assert list(files.settings.verify) == []
    files.trust()
    assert files.left_out == []
    assert list(files.settings.verify) == [b"/bin/sh", b"-c", b"make test"]
    files.write(project=said + (f"verify: {{command: {now}}}\n" if now else ""))
    assert "network.mode: open" in files.left_out
    assert "it no longer says verify.command: /bin/sh -c 'make test'" in files.load().why
    assert list(files.settings.verify) == []


@pytest.mark.parametrize(
    "now",
    [
        "[[make, serve], {run: [npm, start], ready: 8001}]",
        "[[make, serve], {run: [npm, start], ready: ['8000']}]",
        "[[make, serve, '|', npm, start, '|ready:', '8000']]",
        "[[make, serve], [npm, start, '|ready:', '8000']]",
        "[[make serve], {run: [npm, start], ready: 8000}]",
        "[{run: [npm, start], ready: 8000}, [make, serve]]",
    ],
)
def test_other_start_commands_need_trust_again(files: Strange, now: str) -> None:
    files.write(project="start: {commands: [[make, serve], {run: [npm, start], ready: 8000}]}\n")
    assert list(files.settings.start) == []
    files.trust()
    assert files.left_out == []
    assert list(files.settings.start) == [StartCommand((b"make", b"serve")), StartCommand((b"npm", b"start"), 8000)]
    files.write(project=f"start: {{commands: {now}}}\n")
    assert len(files.left_out) == 1 and list(files.settings.start) == []


def test_what_verifies_for_the_user_is_the_users_word(files: Strange) -> None:
    files.write(project="verify: {command: 'true'}", user="verify: {command: [make, test]}")
    files.trust()
    assert files.settings.verify == (b"make", b"test")
    files.write(local="verify: {command: [make, check]}")
    files.trust()
    assert files.settings.verify == (b"make", b"check")


def test_words_are_not_taken_for_others(files: Strange) -> None:
    """What is compared says where a word ends."""
    files.write(project="commands: {rules: [{pattern: [a, [b, c]], action: allow}]}")
    files.trust()
    for pattern in ("[a, 'b|c']", "['a b|c']", "[[a, b], c]", "[a, [b]]"):
        files.write(project=f"commands: {{rules: [{{pattern: {pattern}, action: allow}}]}}")
        assert len(files.left_out) == 1, pattern


def test_what_is_included_is_the_projects_too(files: Strange) -> None:
    files.write(project="include: more.yaml")
    more = files.project / ".mudroom/more.yaml"
    more.write_text("network: {mode: open}")
    assert files.left_out == ["network.mode: open"]
    files.trust()
    assert files.settings.network == "open"
    more.write_text("network: {mode: open, private: [db.example]}")
    assert files.left_out == ["network.private: db.example, may be private"]


def test_the_record_is_the_users_alone(files: Strange) -> None:
    files.write(project="network: {mode: open}")
    files.trust()
    assert stat.S_IMODE(files.record.stat().st_mode) == 0o600
    assert stat.S_IMODE(files.record.parent.stat().st_mode) == 0o700
    assert not str(files.record).startswith(str(files.project))
    for mode in (0o620, 0o602):
        files.record.chmod(mode)
        assert files.left_out, "others could have written it"
    files.record.chmod(0o600)
    assert files.left_out == []
    assert forget(os.fsencode(files.project), os.fsencode(files.state))
    assert not forget(os.fsencode(files.project), os.fsencode(files.state))
    assert files.left_out


@pytest.mark.parametrize("damage", [b"", b"{}", b"[", b"null", b"[" * 100_000, b'{"schema": "mudroom.policy.trust/2"}'])
def test_a_damaged_record_is_none(files: Strange, damage: bytes) -> None:
    files.write(project="network: {mode: open}")
    files.trust()
    files.record.write_bytes(damage)
    assert files.left_out == ["network.mode: open"]


def test_a_record_of_another_project_is_none(files: Strange) -> None:
    files.write(project="network: {mode: open}")
    files.trust()
    row = json.loads(files.record.read_text())
    files.record.write_text(json.dumps(row | {"project": "/elsewhere"}))
    assert files.left_out == ["network.mode: open"]
    files.record.unlink()
    files.record.symlink_to(files.home / "x")
    (files.home / "x").write_text(json.dumps(row))
    assert files.left_out == ["network.mode: open"]


def test_the_same_project_elsewhere_is_another(files: Strange) -> None:
    files.write(project="network: {mode: open}")
    files.trust()
    files.project.rename(files.project.parent / "moved")
    files.project = files.project.parent / "moved"
    assert files.left_out == ["network.mode: open"]


def test_nothing_loaded_says_nothing(files: Strange) -> None:
    assert files.load() == Loaded()


HOSTILE = "\\x1bc\\u202e\\n"


@pytest.mark.parametrize(
    "text",
    [
        f'agents: {{"{HOSTILE}": free}}',
        f'agents: {{a: "{HOSTILE}"}}',
        f'levels: {{agents: {{"{HOSTILE}": 1}}}}',
        f'run: {{environment: ["A={HOSTILE}"]}}',
        f'run: {{read: ["/{HOSTILE}"]}}',
        f'network: {{cards: ["{HOSTILE}"]}}',
        f'secrets: {{show: ["{HOSTILE}"]}}',
        f'credentials: {{show: ["~/{HOSTILE}"]}}',
        f'commands: {{rules: [{{pattern: [make], action: allow, agents: ["{HOSTILE}"]}}]}}',
        'network: {inspect: [{host: a.com, paths: ["/\\u202e, set x: y"]}]}',
        'network: {inspect: [{host: a.com, methods: ["\\x1b[2J"]}]}',
    ],
)
def test_what_is_shown_to_be_trusted_does_nothing_to_the_terminal(files: Strange, text: str) -> None:
    files.write(project=text, user="roles: {free: {}}")
    layers = read(os.fsencode(files.project), os.fsencode(files.home / ".config/mudroom"), b"/none", b"")
    assert layers[PROJECT]
    assert all(describe(one).isprintable() for one in layers[PROJECT])


def test_a_row_says_whether_a_value_loosens() -> None:
    assert {row.key for row in ROWS if row.loosening.text} == LOOSE.keys()


def test_what_is_for_this_machine_counts_as_near_only_once_it_was_seen(files: Strange) -> None:
    """It loosens nothing that is built in, but what the user has said."""
    files.write(
        user="network: {mode: none}\ncommands: {classes: {host_escape_risk: deny}}\nlimits: {memory: 1GB}",
        local=(
            "network: {mode: gate}\nlimits: {memory: 2GB}\n"
            "commands: {rules: [{pattern: sudo, action: require_approval}]}\n"
        ),
    )
    assert files.left_out == []
    assert (str(files.settings.network), files.settings.limits.memory) == ("none", 10**9)
    assert action(files, "sudo x", "host_escape_risk") == "deny"
    files.trust()
    assert (str(files.settings.network), files.settings.limits.memory) == ("gate", 2 * 10**9)
    assert action(files, "sudo x", "host_escape_risk") == "require_approval"
