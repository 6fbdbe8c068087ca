"""What ends mudroom ends an agent as any command: it is collected and journalled."""

from __future__ import annotations

import pytest

from test_agent_verb import write_card
from test_group_signals import (
    cli,
    test_a_signal_to_the_group,
    test_a_terminal_that_closes,
    test_after_sigkill_the_next_command_collects_it_and_says_so,
    test_the_second_signal_ends_a_stubborn_command,
)
from test_vault_verb import Cli

__all__ = [
    "cli",
    "test_a_signal_to_the_group",
    "test_a_terminal_that_closes",
    "test_after_sigkill_the_next_command_collects_it_and_says_so",
    "test_the_second_signal_ends_a_stubborn_command",
]
pytestmark = [pytest.mark.both_users, pytest.mark.deep]  # test_agent_verb has each signal in the quick tier


@pytest.fixture
def verb(cli: Cli) -> list[str]:
    return ["agent", "run", write_card(cli.place)]
