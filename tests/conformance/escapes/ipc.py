"""System V and POSIX shared memory, queues and semaphores: what the host has, and what would be left there."""

from __future__ import annotations

import ctypes
import os
import struct

from .attempt import World, attempt
from .call import call, libc

_SYSV = "sysvipc(7), ipc_namespaces(7)"
_POSIX = "mq_overview(7)"
IPC_CREAT, IPC_RMID, SETVAL = 0o1000, 0, 16
SLOT = 64


def _attach(identity: int) -> int:
    return call("shmat", identity, 0, 0)


def _write(where: int, world: World) -> None:
    ctypes.memmove(where + SLOT * world.slot, world.mark.encode(), len(world.mark))


@attempt("ipc", "a shared memory segment of the host is read, by its key", _SYSV, proof="secret")
def shm_read(world: World) -> str:
    where = _attach(call("shmget", world.ipc["shm-key"], 0, 0))
    return ctypes.string_at(where, SLOT).decode("latin-1")


@attempt("ipc", "a shared memory segment of the host is written, by its key", _SYSV)
def shm_write(world: World) -> None:
    _write(_attach(call("shmget", world.ipc["shm-key"], 0, 0)), world)


@attempt("ipc", "the same by its id, which can be guessed", _SYSV)
def shm_by_id(world: World) -> None:
    _write(_attach(world.ipc["shm-id"]), world)


@attempt("ipc", "all segments are listed", "shmctl(2), SHM_STAT", proof="claim")
def shm_list(world: World) -> str | None:
    with open("/proc/sysvipc/shm") as stream:
        rows = [line.split() for line in stream.readlines()[1:]]
    return next((f"segment {row[1]}" for row in rows if int(row[0]) == world.ipc["shm-key"]), None)


@attempt("ipc", "a segment is left behind", _SYSV)
def shm_leave(world: World) -> None:
    where = _attach(call("shmget", world.ipc["left-key"], 1 << 16, IPC_CREAT | 0o600))
    ctypes.memmove(where, world.mark.encode(), len(world.mark))


@attempt("ipc", "a semaphore of the host is raised", _SYSV)
def sem_raise(world: World) -> None:
    call("semop", call("semget", world.ipc["sem-key"], 0, 0), struct.pack("<Hhh", 0, 1, 0), 1)


@attempt("ipc", "a semaphore of the host is set, by its id", _SYSV)
def sem_set(world: World) -> None:
    call("semctl", world.ipc["sem-id"], 1, SETVAL, 7)


@attempt("ipc", "a message is sent to a queue of the host", _SYSV)
def msg_send(world: World) -> None:
    text = world.mark.encode()
    call("msgsnd", call("msgget", world.ipc["msg-key"], 0), struct.pack("<q", 1) + text, len(text), 0o4000)


@attempt("ipc", "a message of the host is taken from its queue", _SYSV, proof="secret")
def msg_receive(world: World) -> str:
    area = ctypes.create_string_buffer(512)
    size = call("msgrcv", world.ipc["msg-id"], area, 500, 99, 0o4000)
    return area.raw[8 : 8 + size].decode("latin-1")


@attempt("ipc", "a POSIX queue of the host is written", _POSIX)
def mq_send(world: World) -> None:
    queue = call("mq_open", world.queue, os.O_WRONLY | os.O_NONBLOCK, 0, 0)
    call("mq_timedsend", queue, world.mark, len(world.mark), 0, 0)


@attempt("ipc", "a POSIX queue is left behind", _POSIX)
def mq_leave(world: World) -> None:
    call("mq_open", f"{world.queue}-left", os.O_CREAT | os.O_RDWR, 0o600, struct.pack("<8q", 0, 1, 128, 0, 0, 0, 0, 0))


@attempt("ipc", "a POSIX queue is removed from under its owner", _POSIX)
def mq_remove(world: World) -> None:
    call("mq_unlink", f"{world.queue}-gone")


@attempt("ipc", "POSIX shared memory of the host is read", "shm_overview(7)", proof="secret")
def posix_shm(world: World) -> str:
    libc.shm_open.restype = ctypes.c_int
    descriptor = libc.shm_open(f"/{world.queue}".encode(), os.O_RDWR, 0o600)
    if descriptor < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return os.read(descriptor, 100).decode("latin-1")


@attempt("ipc", "POSIX shared memory of the host is removed", "shm_overview(7)")
def posix_shm_remove(world: World) -> None:
    if libc.shm_unlink(f"/{world.queue}-gone".encode()) < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
