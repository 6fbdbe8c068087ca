"""The directory of an apply's slots: in the vault, or in ``.mudroom/apply`` of a project on another file system."""

from __future__ import annotations

import os

from mudroom.core.tree.path import show
from mudroom.errors import MudroomError
from mudroom.stage import disk
from mudroom.vault.record import ApplyRecord
from mudroom.vault.sync import sync_directory


def make_slots(record: ApplyRecord, *, new: bool = False) -> None:
    """Make it. ``new``: raise FileExistsError if it is there: in a project it may be another vault's, whose files would
    land in the place of the reviewed ones."""
    if new:
        os.makedirs(os.path.dirname(record.slots), exist_ok=True)
        os.mkdir(record.slots, 0o700)
    os.makedirs(record.slots, mode=0o700, exist_ok=True)
    if disk.real_path(record.slots) != record.slots:
        raise MudroomError(
            f"{show(record.slots)} leads through a symbolic link to {show(disk.real_path(record.slots))}"
        )
    if record.slots.startswith(record.project + b"/"):
        with open(os.path.dirname(record.slots) + b"/.gitignore", "wb") as stream:
            stream.write(b"*\n")  # the directory must be on this file system, but must not be committed


def sync_above(record: ApplyRecord) -> None:
    """Make the name of the slots in the project durable, before a file of the project is moved there."""
    path = record.slots
    while path != record.project:
        path = os.path.dirname(path)
        sync_directory(path)


def remove_empty_slots(record: ApplyRecord) -> None:
    """Remove the slots' directory and the parents made for it in the project, as far as they are empty."""
    path = record.slots
    while path not in (record.project, b"/") and path.rpartition(b"/")[2] != b"applies":
        try:
            if os.listdir(path) == [b".gitignore"]:
                os.unlink(path + b"/.gitignore")
            os.rmdir(path)
        except FileNotFoundError:
            pass  # interrupted in between
        except OSError:
            return  # the directory is not empty
        path = path.rpartition(b"/")[0]
