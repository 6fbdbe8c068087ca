"""Slots for the commands of a session: a courtesy that holds nobody up for long."""

from __future__ import annotations

import threading

import pytest

from mudroom.session.confinement import crowd
from mudroom.session.confinement.crowd import SLOTS, Crowd


def test_a_slot_that_is_given_back_is_taken_by_the_next() -> None:
    those = Crowd()
    slots = [those.slot() for _number in range(SLOTS)]
    for slot in slots:
        slot.take()
    late, taken = those.slot(), threading.Event()

    def wait() -> None:
        while not those.enter():
            pass
        taken.set()

    thread = threading.Thread(target=wait)
    thread.start()
    assert not taken.is_set()
    slots[0].give()
    slots[0].give()  # once only
    assert taken.wait(60)
    thread.join()
    late.give()  # it holds none


def test_who_waits_in_vain_goes_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crowd, "PATIENCE", 0.001)
    those = Crowd()
    slots = [those.slot() for _number in range(5 * SLOTS)]
    for slot in slots:
        slot.take()
    for slot in slots:
        slot.give()
    for slot in slots[:SLOTS]:
        slot.take()  # as many as at the beginning are free
    assert not those.enter()
