"""Answers about hosts, kept in the project's folder: what was answered on this machine is trusted, and missed if it
is gone."""

from __future__ import annotations

import os
import threading

import pytest

from mudroom.core.network.host_rules import Request, parse_rule, vet
from mudroom.core.network.host_rules import decide as decide_host
from mudroom.errors import MudroomError
from mudroom.policy import host_answers
from mudroom.policy.command_answers import remember as keep_rule
from mudroom.policy.trust import vouch, vouched
from policy_files import BEFORE, Strange, action, files

__all__ = ["files"]


def test_what_is_for_this_machine_may_have_come_with_the_project(files: Strange) -> None:
    files.write(local="network: {mode: open, deny: [a.com]}", rules="allow: [sudo reboot]\ndeny: [make]\n")
    assert files.left_out == ["network.mode: open", "commands.rules: allow sudo reboot"]
    assert str(files.settings.network) == "auto"
    assert action(files, "sudo reboot", "host_escape_risk") == "require_approval"
    assert action(files, "make", "mutating") == "deny", "what tightens holds"
    assert [rule.pattern for rule in files.settings.hosts] == ["a.com"]
    files.trust()
    assert str(files.settings.network) == "open"
    assert action(files, "sudo reboot", "host_escape_risk") == "allow"


def test_an_answer_is_trusted_as_it_is_given(files: Strange) -> None:
    project, state = os.fsencode(files.project), os.fsencode(files.state)
    files.write(rules="allow: [sudo evil]\n")
    keep_rule(project, "sudo reboot ; su", state=state)
    assert files.left_out == ["commands.rules: allow sudo evil"], "what a stranger put there is not trusted with it"
    assert action(files, "sudo reboot", "host_escape_risk") == "allow"
    assert action(files, "su", "host_escape_risk") == "allow"
    keep_rule(project, "sudo poweroff")
    assert "commands.rules: allow sudo poweroff" in files.left_out, "mudroom was not told whose machine this is"


def test_an_answer_that_is_bound_to_its_question_is_trusted_for_that_alone(files: Strange) -> None:
    project, state = os.fsencode(files.project), os.fsencode(files.state)
    bound, other = (f"(as of {digit * 32})" for digit in "ab")
    keep_rule(project, f"sudo reboot {bound}", state=state)
    assert files.left_out == []
    for row in ("sudo reboot", f"sudo reboot {other}"):
        files.write(rules=f"allow: ['{row}', 'sudo reboot {bound}']\n")
        assert files.left_out == [f"commands.rules: allow {row}"]


def test_an_item_of_the_project_is_not_one_for_this_machine(files: Strange) -> None:
    """It would count more there than the user's own word."""
    files.write(project="network: {mode: open}", user="network: {mode: gate}")
    files.trust()
    assert (files.left_out, str(files.settings.network)) == ([], "gate")
    files.write(local="network: {mode: open}")
    assert (files.left_out, str(files.settings.network)) == (["network.mode: open"], "gate")
    files.trust()
    assert (files.left_out, str(files.settings.network)) == ([], "open")


def test_answers_do_not_make_other_things_trusted(files: Strange) -> None:
    files.write(project=BEFORE)
    keep_rule(os.fsencode(files.project), "sudo reboot", state=os.fsencode(files.state))
    assert len(files.left_out) == 3
    files.trust()
    keep_rule(os.fsencode(files.project), "su", state=os.fsencode(files.state))
    assert files.left_out == []
    files.write(project=BEFORE.replace("deny: [c.com]", "deny: []"))
    assert len(files.left_out) == 5, "something that tightened is gone"


def test_hosts_that_were_allowed_elsewhere_are_not_allowed_here(files: Strange) -> None:
    project, state = os.fsencode(files.project), os.fsencode(files.state)
    path = files.project / ".mudroom/local/permissions.yaml"
    path.parent.mkdir(parents=True)
    path.write_text("allow: [evil.com]\nprivate: [db.evil.com]\ndeny: [a.com]\nask: [b.com]\n")

    def hosts() -> list[str]:
        return [rule.pattern for rule in host_answers.load(project, state)]

    assert hosts() == ["a.com", "b.com"]
    host_answers.keep(project, parse_rule("good.com", "allow"), state=state)
    host_answers.keep(project, parse_rule("db.good.com", "allow", private=True), state=state)
    assert hosts() == ["a.com", "b.com", "good.com", "db.good.com"]
    assert len(host_answers.load(project, state, trusts_all=True)) == 6
    assert host_answers.loosening_items(project, state)[0] == ("local network.allow: evil.com", "permissions.yaml:1")
    host_answers.drop(project, "good.com", state=state)
    path.write_text("allow: [good.com]\n")
    assert hosts() == ["db.good.com"]
    host_answers.keep(project, parse_rule("good.com", "deny"), state=state)
    host_answers.keep(project, parse_rule("good.com", "allow"))
    assert hosts() == ["db.good.com", "good.com"], "mudroom was not told whose machine this is"


def test_what_mudroom_takes_out_itself_is_not_missed(files: Strange) -> None:
    project, state = os.fsencode(files.project), os.fsencode(files.state)
    files.write(project=BEFORE, rules="deny: [sudo reboot]\n")
    files.trust()
    keep_rule(project, "sudo reboot", state=state)
    assert files.left_out == []
    assert action(files, "sudo reboot", "host_escape_risk") == "allow"
    keep_rule(project, "sudo reboot", action="deny", state=state)
    (files.answers / "rules.yaml").write_text("allow: [sudo reboot]\n")
    assert files.left_out[-1] == "commands.rules: allow sudo reboot", "a pull does not undo a denial"
    assert len(files.left_out) == 4
    assert "it no longer says local commands.rules: deny sudo reboot" in files.load().why


def test_a_denial_that_was_answered_is_missed(files: Strange) -> None:
    project, state = os.fsencode(files.project), os.fsencode(files.state)
    keep_rule(project, "git push", action="deny", state=state)
    keep_rule(project, "make x", state=state)
    assert (files.left_out, action(files, "git push", "networked")) == ([], "deny")
    (files.answers / "rules.yaml").write_text("allow:\n  - make x\n")
    assert files.left_out == ["commands.rules: allow make x"]
    assert files.load().why == "it no longer says local commands.rules: deny git push, which it did when it was trusted"
    files.trust()
    assert files.left_out == [], "the user has seen that it is gone"


def test_a_host_that_was_denied_is_missed(files: Strange) -> None:
    project, state = os.fsencode(files.project), os.fsencode(files.state)
    path = files.answers / "permissions.yaml"

    def hosts() -> list[str]:
        return [f"{rule.action} {rule.pattern}" for rule in host_answers.load(project, state)]

    host_answers.keep(project, parse_rule("bad.com", "deny"), state=state)
    host_answers.keep(project, parse_rule("good.com", "allow"), state=state)
    files.write(project="network: {mode: open}")
    files.trust_all()
    assert (hosts(), files.left_out) == (["deny bad.com", "allow good.com"], [])
    path.write_text("allow: [good.com]\nask: [c.com]\n")
    assert hosts() == ["ask c.com"]
    assert host_answers.missing_answers(project, state) == ["local network.deny: bad.com"]
    path.write_text("allow: [good.com]\ndeny: [c.com, bad.com]\n")
    assert "allow good.com" in hosts()
    host_answers.drop(project, "bad.com", state=state)
    assert hosts() == ["allow good.com", "deny c.com"], "the user has taken it out"
    host_answers.keep(project, parse_rule("c.com", "deny"), state=state)
    host_answers.keep(project, parse_rule("c.com", "allow"), state=state)
    assert hosts() == ["allow good.com", "allow c.com"], "the user says otherwise by now"


def test_a_record_that_cannot_be_written_keeps_no_answer(files: Strange) -> None:
    files.state.write_text("")
    with pytest.raises(MudroomError, match=r"the state directory .* is not a directory"):
        keep_rule(os.fsencode(files.project), "sudo reboot", state=os.fsencode(files.state))
    assert not files.places["rules"].exists()


def test_many_answers_at_once(files: Strange) -> None:
    project, state = os.fsencode(files.project), os.fsencode(files.state)
    threads = [threading.Thread(target=vouch, args=(project, state, [f"item {number}"])) for number in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert vouched(project, state) == {f"item {number}" for number in range(20)}


@pytest.mark.parametrize("more", ["private: true", "set: {Authorization: Bearer theirs}", "remove: [Authorization]"])
def test_asking_by_name_is_not_to_open_what_is_private_or_to_say_what_is_sent(files: Strange, more: str) -> None:
    files.write(project=f'network: {{inspect: [{{host: "**.cdn.example", action: ask, {more}}}]}}')
    assert len(files.left_out) == 1
    (rule,) = files.settings.hosts
    assert (rule.action, rule.inspect) == ("ask", True), "it asks, where another rule may allow"
    assert (rule.private, rule.set_headers, rule.remove_headers) == (False, (), ())
    found = decide_host(Request("a.cdn.example", 443), files.settings.hosts)
    assert vet(found, [bytes([127, 0, 0, 1])]) is not None
    files.trust()
    assert files.left_out == []
    (rule,) = files.settings.hosts
    assert rule.private or rule.set_headers or rule.remove_headers
    files.write(project="network: {mode: open}")
    files.trust()
    assert files.left_out == []
    files.write(project=f"network: {{mode: open, inspect: [{{host: a.com, action: ask, {more}}}]}}")
    files.trust()
    files.write(project="network: {mode: open}")
    assert files.left_out == ["network.mode: open"], "what asked is missed"


@pytest.mark.parametrize("more", ["only: true", "foreign: refuse", "foreign: strip"])
def test_a_bond_of_a_host_that_is_gone_is_missed(files: Strange, more: str) -> None:
    loose = "network: {presets: [github], inspect: [%s]}"
    files.write(project=loose % f"{{host: api.github.com, methods: [GET], {more}}}")
    files.trust()
    assert files.left_out == []
    for less in ("{host: api.github.com, methods: [GET]}", ""):
        files.write(project=loose % less)
        assert "network.presets: @github" in files.left_out, "what was trusted with the bond, too"
