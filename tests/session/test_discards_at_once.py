"""Many forks are discarded at once, by threads of one session and by processes: each is gone, and each is told."""

from __future__ import annotations

import os
import threading

from conftest import Place

SIDES, EACH = 4, 8


def test_by_threads_of_one_session(place: Place) -> None:
    session = place.session()
    names = [f"f{number}" for number in range(SIDES * EACH)]
    for name in names:
        session.forks.new(name)
        session.forks.files(name).write(b"a/b", b"c\n")
    session.forks.flush(names[0])
    errors = list[BaseException]()
    start = threading.Barrier(SIDES)

    def discard(side: int) -> None:
        start.wait()
        try:
            for name in names[side::SIDES]:
                session.forks.discard(name)
        except BaseException as error:  # noqa: BLE001 - raised below
            errors.append(error)

    threads = [threading.Thread(target=discard, args=(side,)) for side in range(SIDES)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    _require_gone(place, names)


def test_by_processes(place: Place) -> None:
    names = [f"f{number}" for number in range(SIDES * EACH)]
    with place.session() as session:
        for name in names:
            session.forks.new(name)
            session.forks.files(name).write(b"a/b", b"c\n")
    ready, go = os.pipe()
    children = []
    for side in range(SIDES):
        pid = os.fork()
        if not pid:
            code = 1
            try:
                with place.session() as session:
                    os.close(go)
                    os.read(ready, 1)  # all begin when the parent has closed its end
                    for name in names[side::SIDES]:
                        session.forks.discard(name)
                code = 0
            finally:
                os._exit(code)
        children.append(pid)
    os.close(go)
    os.close(ready)
    assert [os.waitpid(pid, 0)[1] for pid in children] == [0] * SIDES
    _require_gone(place, names)


def _require_gone(place: Place, names: list[str]) -> None:
    with place.session() as session:
        assert session.vault.forks() == []
        session.vault.empty_trash()
        assert os.listdir(session.vault.path + b"/trash") == []
        told = [event.fork for event in session.vault.journal.events(last=1000) if event.kind == "discard"]
    assert sorted(told) == sorted(names)
