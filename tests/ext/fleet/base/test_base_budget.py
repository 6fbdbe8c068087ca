"""Bytes and system calls that sending a base costs. Times are in ``bench/shipping.py``, beside rsync's."""

from __future__ import annotations

import os
import random
import time
from pathlib import Path

import pytest
from base_transfer import Worker, make, scanned

from conftest import CLOCK_REALTIME_COARSE, tick
from kernel_calls import counted
from mudroom.ext.fleet.base.manifest import (
    DIRECTORY,
    FILE,
    Row,
    base_id,
    digest_of_content,
    digest_of_node,
    encode_node,
)
from mudroom.ext.fleet.base.pack import packs
from mudroom.ext.fleet.wire.frame import Frame, encode
from mudroom.ext.fleet.wire.message import OBJECTS, OFFER, READY, WANT, Base, OfferedBase, Ready, Want, frame_of

FILES, TOP, BELOW, EACH = 20_000, 20, 25, 40
SIZE = 2_048


class Project:
    """A manifest for 20,000 files with noise, 20 in each of 500 directories."""

    def __init__(self, contents: dict[int, bytes], cache: dict[int, bytes]) -> None:
        self.objects: dict[bytes, bytes] = {}
        self.nodes: set[bytes] = set()
        tops = []
        for top in range(TOP):
            below = []
            for directory in range(BELOW):
                first = (top * BELOW + directory) * EACH
                rows = []
                for number in range(first, first + EACH):
                    if number not in cache:
                        cache[number] = digest_of_content(random.Random(number).randbytes(SIZE))
                    digest = cache[number]
                    if number in contents:
                        digest = digest_of_content(contents[number])
                        self.objects[digest] = contents[number]
                    rows.append(Row(b"f%06d" % number, FILE, 0o644, 1_700_000_000_123_456_789 + number, SIZE, digest))
                below.append(self._node(b"e%03d" % directory, rows))
            tops.append(self._node(b"d%03d" % top, below))
        root = self._node(b"", tops).content
        self.base = Base(root, b"/home/ann/project", b"/home/ann", (b".env",), (b"node_modules/.cache",), 0o022)

    def _node(self, name: bytes, rows: list[Row]) -> Row:
        node = encode_node(rows)
        digest = digest_of_node(node)
        self.objects[digest] = node
        self.nodes.add(digest)
        return Row(name, DIRECTORY, 0o755, 0, 0, digest)

    def size(self, digest: bytes) -> int:
        return len(self.objects[digest])

    def is_node(self, digest: bytes) -> bool:
        return digest in self.nodes

    def read(self, digest: bytes, offset: int, length: int) -> bytes:
        return self.objects[digest][offset : offset + length]


@pytest.fixture(scope="module")
def digests() -> dict[int, bytes]:
    return {}


def sent(project: Project, digests: list[bytes]) -> int:
    asked = len(encode(frame_of(WANT, Want(base_id(project.base), tuple(digests), ()))))
    return asked + sum(len(encode(Frame(OBJECTS, 0, pack))) for pack in packs(digests, project))


def offer_size(project: Project) -> int:
    offer, ready = frame_of(OFFER, OfferedBase(project.base)), frame_of(READY, Ready(base_id(project.base)))
    return len(encode(offer)) + len(encode(ready))


def test_an_unchanged_base_is_less_than_a_kilobyte_and_two_changed_files_less_than_40(
    digests: dict[int, bytes],
) -> None:
    first = Project({}, digests)
    assert offer_size(first) <= 1_000
    noise = random.Random(7).randbytes
    second = Project({5: noise(SIZE), FILES - 3: noise(SIZE)}, digests)
    new = [digest for digest in second.objects if digest not in first.objects]
    assert len(new) == 2 + 5  # contents; two directories, the two above them, the root
    assert offer_size(second) + sent(second, new) <= 40_000


def test_a_first_ship_is_a_tenth_more_than_the_files_at_most(digests: dict[int, bytes]) -> None:
    """rsync sends 1.03 times these files."""
    contents = {number: random.Random(number).randbytes(SIZE) for number in range(2_000)}
    project = Project(contents, digests)
    files = [digest for digest in project.objects if digest not in project.nodes]
    nodes = [digest for digest in project.objects if digest in project.nodes]
    share = sent(project, nodes) * len(files) / FILES
    assert sent(project, files) + share <= 1.07 * SIZE * len(files)


def test_an_unchanged_project_is_one_stat_for_each_entry_and_no_file_is_opened(tmp_path: Path) -> None:
    project = make(tmp_path / "p", {f"d{i}/f{j}": b"%d" % j for i in range(10) for j in range(20)})
    now = time.clock_gettime_ns(CLOCK_REALTIME_COARSE)
    os.utime(project, ns=(now, now))
    while time.time_ns() < now + 60_000_000:  # until a later write is sure to have another ctime
        tick()
    scanned(project)
    with counted() as calls:
        scanned(project)
    directories = 11
    assert calls["stat"] <= 200 + directories + 2
    assert calls["open"] <= 4  # the project, the cache, and the root twice
    assert calls["scandir"] == directories
    assert calls["read"] <= 2


def test_a_snapshot_is_five_calls_for_each_file(tmp_path: Path) -> None:
    project = make(tmp_path / "p", {f"d{i}/f{j}": b"%d" % (20 * i + j) for i in range(10) for j in range(20)})
    worker, base = Worker(tmp_path / "w"), scanned(project)
    worker.receive(base)
    with counted() as calls:
        worker.snapshots.acquire(base.base)
    worker.close()
    files, directories = 200, 11
    assert calls["write"] <= files + 3
    assert sum(calls.values()) <= 4.2 * files + 6 * directories + 50
