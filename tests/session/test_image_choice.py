"""Which image a command runs in: the policy says, a card may ask, and an image says nothing by itself."""

from __future__ import annotations

from mudroom.core.agent.card import AgentCard
from mudroom.core.settings import Settings
from mudroom.session.confinement.grant import image_of
from tiers import each

CARD = AgentCard("helper", 2, image="theirs:1")
TRUSTED = ("helper",)
ROWS = [
    (Settings(), None, ""),
    (Settings(image="host"), None, ""),
    (Settings(image="ours:1"), None, "ours:1"),
    (Settings(), AgentCard("helper"), ""),
    (Settings(image="ours:1"), AgentCard("helper"), "ours:1"),
    (Settings(image="ours:1"), CARD, "ours:1"),
    (Settings(image="ours:1", image_cards=TRUSTED), CARD, "ours:1"),
    (Settings(image="host", image_cards=TRUSTED), CARD, ""),
    (Settings(image_cards=TRUSTED), CARD, "theirs:1"),
    (Settings(image_cards=("other",)), CARD, ""),
    (Settings(image_cards=TRUSTED), AgentCard("helper", image="host"), ""),
]


@each(("settings", "card", "image"), ROWS)
def test_who_says(settings: Settings, card: AgentCard | None, image: str) -> None:
    assert image_of(settings, card, 2)[0] == image
    assert image_of(settings, card, 1) == image_of(settings, card, 0) == ("", ())


def test_a_card_that_is_not_heeded_is_told() -> None:
    note = (
        "helper asks for the image theirs:1, and has the host's own toolchain: container.cards in the policy does not "
        "name the agent"
    )
    assert image_of(Settings(), CARD, 2) == ("", (note,))
    assert image_of(Settings(image="ours:1"), CARD, 2)[1] == (), "the policy has said what it is"
    assert image_of(Settings(), AgentCard("helper", image="host"), 2)[1] == ()
