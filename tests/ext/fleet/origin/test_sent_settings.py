"""Errands' settings: an answer about another command stays on this machine, one about the errand's own goes along."""

from __future__ import annotations

import os

from origin_fixtures import idle_front_end

from conftest import Place
from mudroom.core.command.policy import CommandRule
from mudroom.core.settings import Settings
from mudroom.ext.fleet.origin.run import FleetErrand, RunRequest, begin
from mudroom.ext.fleet.wire.settings import decode
from mudroom.policy import command_answers


def test_an_answer_goes_only_with_the_command_that_it_is_about(place: Place) -> None:
    project = os.fsencode(place.project)
    command_answers.remember(project, "deploy --password hunter2")
    command_answers.remember(project, "curl -u ann:hunter3 https://example.org", action="deny")
    command_answers.remember(project, "make *")
    answers = tuple(command_answers.load(project))
    policy = CommandRule(((b"rm",),), "deny", "policy.yaml:3")
    base = Settings()
    settings = base._replace(commands=base.commands._replace(rules=(policy, *answers)))
    session = place.session(settings)
    lines = (
        (b"true",),
        (b"make", b"test"),
        (b"sh", b"-c", b"cd /tmp && curl -u ann:hunter3 https://example.org"),
        (b"deploy", b"--password", b"other"),
    )
    with begin(session, RunRequest(tuple(map(FleetErrand, lines))), [], idle_front_end()) as run:
        messages = [errand.message for errand, _row in run.rows()]
    sources = [[rule.action for rule in decode(message.settings).commands.rules] for message in messages]
    assert sources == [["deny"], ["deny", "allow"], ["deny", "deny"], ["deny"]]
    for message in messages:
        words = b" ".join(message.argv)
        for secret in (b"hunter2", b"hunter3"):
            assert (secret in message.settings) <= (secret in words)
