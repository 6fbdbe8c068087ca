"""The launcher: the small resident program that performs plans.

It runs as a process of its own (``python -I -S launcher.py FD``), receives requests over a socket, and for each one
clones a child into new namespaces, performs the plan's steps there, drops every privilege and runs the command.

Rules of this file:
1. It imports nothing of mudroom, and of the library only what the architecture test lists: every millisecond of
   start-up here is a millisecond of every cold ``mudroom run``.
2. It decides nothing. A plan is a list of tuples ``(op, *arguments)``; ``STEPS`` says what each op does. What is
   not in the plan does not happen.
3. It is single-threaded and stays so: it clones without exec, which is only sound while no other thread exists.
4. Any failure before the exec ends the child and is reported with the index of the step; the command has not run.

Processes: ``launcher`` (host namespaces) → ``init`` (pid 1 of the sandbox: performs the plan, then reaps) →
``command``. The kernel kills all that is left in a pid namespace when its init ends (pid_namespaces(7)).

Wire format, both ways little-endian: 4 bytes length, then that many bytes of ``marshal``. Descriptors travel with
the length (SCM_RIGHTS). Only the host process and this one ever hold the socket.

The report pipe of a run carries one marshalled tuple, ``("failed", step index, op, errno, detail)`` or
``("exited", wait status, user s, system s, max RSS KiB, refused metadata changes)``; its end of file means that the
whole sandbox is gone.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import _socket
import ctypes
import marshal
import os
import select
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    Options = Sequence[tuple[bytes, bytes | None]]
    Request = dict[str, Any]

# --- kernel interface: numbers from the uapi headers, names kept as the man pages spell them ----------------------

MACHINE = os.uname().machine
# Only these three differ between the architectures; everything from 424 on is shared.
SYS_clone, SYS_pivot_root, SYS_seccomp = {"x86_64": (56, 155, 317), "aarch64": (220, 41, 277)}.get(MACHINE, (0, 0, 0))
SYS_open_tree, SYS_move_mount, SYS_fsopen, SYS_fsconfig, SYS_fsmount = 428, 429, 430, 431, 432
SYS_close_range, SYS_mount_setattr = 436, 442
SYS_landlock_create_ruleset, SYS_landlock_add_rule, SYS_landlock_restrict_self = 444, 445, 446

AT_FDCWD, AT_EMPTY_PATH, AT_RECURSIVE = -100, 0x1000, 0x8000
OPEN_TREE_CLONE, OPEN_TREE_CLOEXEC = 1, 0o2000000
MOVE_MOUNT_F_EMPTY_PATH = 4
FSOPEN_CLOEXEC, FSMOUNT_CLOEXEC = 1, 1
FSCONFIG_SET_FLAG, FSCONFIG_SET_STRING, FSCONFIG_CMD_CREATE = 0, 1, 6
MS_REC, MS_PRIVATE, MNT_DETACH = 0x4000, 0x40000, 2
CLONE_NEWUSER, CLONE_NEWPID = 0x10000000, 0x20000000

PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_CAPBSET_READ, PR_CAPBSET_DROP = 1, 4, 23, 24
PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS, PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL = 36, 38, 47, 4
SECCOMP_SET_MODE_FILTER = 1
LINUX_CAPABILITY_VERSION_3 = 0x20080522
SIOCSIFFLAGS, IFF_UP = 0x8914, 1
LANDLOCK_CREATE_RULESET_VERSION, LANDLOCK_RULE_PATH_BENEATH = 1, 1

ENOENT, ENOEXEC, EACCES, EINVAL, EPERM, ENOSYS, ENOTDIR = 2, 8, 13, 22, 1, 38, 20

libc = ctypes.PyDLL(None, use_errno=True)  # PyDLL keeps the GIL: a clone in the middle of a release would hang
c_long, c_ulong, c_char_p, c_void_p = ctypes.c_long, ctypes.c_ulong, ctypes.c_char_p, ctypes.c_void_p


def check(result: int, what: str = "") -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), what)
    return result


def syscall(number: int, *args: int | bytes | None) -> int:
    """The raw system call. ints become longs, bytes become pointers; raises OSError."""
    converted = [c_long(a) if isinstance(a, int) else c_char_p(a) if isinstance(a, bytes) else a for a in args]
    return check(libc.syscall(c_long(number), *converted))


def prctl(option: int, a: int = 0, b: int = 0) -> int:
    return check(libc.prctl(option, c_ulong(a), c_ulong(b), c_ulong(0), c_ulong(0)))


# --- steps --------------------------------------------------------------------------------------------------------


class Context:
    """What the steps of one plan share: the descriptor of the new root and what confinement needs at the end."""

    def __init__(self, namespaces: int) -> None:
        self.root = -1
        self.namespaces = namespaces


def make_directories(root: int, path: bytes, mode: int = 0o755) -> None:
    """Create the directories of ``path`` (relative) below the descriptor ``root``; existing ones are kept."""
    position = path.find(b"/")
    while position > 0:
        _mkdir(root, path[:position], 0o755)
        position = path.find(b"/", position + 1)
    if path:
        _mkdir(root, path, mode)


def _mkdir(root: int, path: bytes, mode: int) -> None:
    try:
        os.mkdir(path, mode, dir_fd=root)
    except FileExistsError:
        pass


def attach(context: Context, tree: int, path: bytes) -> None:
    syscall(SYS_move_mount, tree, b"", context.root, path or b".", MOVE_MOUNT_F_EMPTY_PATH)
    os.close(tree)


def new_filesystem(kind: bytes, options: Options, attributes: int) -> int:
    """A detached mount of a new file system; ``options`` are (key, value) with None for flags. See fsopen(2)."""
    context_fd = syscall(SYS_fsopen, kind, FSOPEN_CLOEXEC)
    try:
        for key, value in options:
            if value is None:
                syscall(SYS_fsconfig, context_fd, FSCONFIG_SET_FLAG, key, None, 0)
            else:
                syscall(SYS_fsconfig, context_fd, FSCONFIG_SET_STRING, key, value, 0)
        syscall(SYS_fsconfig, context_fd, FSCONFIG_CMD_CREATE, None, None, 0)
        return syscall(SYS_fsmount, context_fd, FSMOUNT_CLOEXEC, attributes)
    finally:
        os.close(context_fd)


def set_attributes(tree: int, attributes: int, recursive: bool) -> None:
    """mount_setattr(2): struct mount_attr is attr_set, attr_clr, propagation, userns_fd (64 bits each)."""
    attr = attributes.to_bytes(8, "little") + bytes(24)
    flags = AT_EMPTY_PATH | (AT_RECURSIVE if recursive else 0)
    syscall(SYS_mount_setattr, tree, b"", flags, attr, 32)


def step_private(_context: Context) -> None:
    """No mount event of this namespace ever reaches the host's, or the other way round."""
    check(libc.mount(b"none", b"/", None, c_ulong(MS_REC | MS_PRIVATE), None))


def step_root(context: Context, mountpoint: bytes, options: Options) -> None:
    """A new empty root. It is mounted over ``mountpoint``, a directory of the vault, until the pivot."""
    tree = new_filesystem(b"tmpfs", options, 6)
    syscall(SYS_move_mount, tree, b"", AT_FDCWD, mountpoint, MOVE_MOUNT_F_EMPTY_PATH)
    os.close(tree)
    context.root = os.open(mountpoint, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)


def step_bind(context: Context, source: bytes, path: bytes, attributes: int, optional: bool) -> None:
    """Show a tree of the host at ``path``. Recursive: the kernel refuses to uncover what a submount hides."""
    try:
        tree = syscall(SYS_open_tree, AT_FDCWD, source, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_RECURSIVE)
    except OSError as error:
        if optional and error.errno in (ENOENT, EACCES, ENOTDIR):
            return
        raise
    if attributes:
        set_attributes(tree, attributes, recursive=True)
    if os.fstat(tree).st_mode & 0o170000 == 0o040000:
        make_directories(context.root, path)
    else:
        make_directories(context.root, path.rpartition(b"/")[0])
        try:
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o644, dir_fd=context.root))
        except FileExistsError:
            pass
    attach(context, tree, path)


def step_tmpfs(context: Context, path: bytes, options: Options, attributes: int) -> None:
    tree = new_filesystem(b"tmpfs", options, attributes)
    make_directories(context.root, path)
    attach(context, tree, path)


def step_proc(context: Context, path: bytes) -> None:
    tree = new_filesystem(b"proc", (), 14)
    make_directories(context.root, path)
    attach(context, tree, path)


def step_devpts(context: Context, path: bytes) -> None:
    tree = new_filesystem(b"devpts", ((b"ptmxmode", b"0666"), (b"mode", b"0620"), (b"newinstance", None)), 10)
    make_directories(context.root, path)
    attach(context, tree, path)


def step_overlay(
    context: Context, path: bytes, lowers: tuple[bytes, ...], upper: bytes, work: bytes, volatile: bool
) -> None:
    """The staged view. Layers are named by descriptor, so no character of a path needs escaping on any kernel.

    ``userxattr`` always: without it the mount succeeds in a user namespace, but removing a lower directory fails
    with EIO. redirect_dir, metacopy, index and xino stay off: with them a lower that changes between two mounts
    is not supported (Documentation/filesystems/overlayfs.rst).
    """
    held: list[int] = []

    def named(directory: bytes) -> bytes:
        held.append(os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC))
        return b"/proc/self/fd/%d" % held[-1]

    below = [named(lower) for lower in lowers]
    rest = [(b"upperdir", named(upper)), (b"workdir", named(work)), (b"userxattr", None)]
    if volatile:
        rest.append((b"volatile", None))
    tree = new_filesystem(b"overlay", [(b"lowerdir", b":".join(below)), *rest], 6)
    for descriptor in held:
        os.close(descriptor)
    make_directories(context.root, path)
    attach(context, tree, path)


def step_directory(context: Context, path: bytes, mode: int) -> None:
    make_directories(context.root, path, mode)
    os.chmod(path, mode, dir_fd=context.root)


def step_symlink(context: Context, target: bytes, path: bytes) -> None:
    make_directories(context.root, path.rpartition(b"/")[0])
    os.symlink(target, path, dir_fd=context.root)


def step_file(context: Context, path: bytes, content: bytes, mode: int) -> None:
    make_directories(context.root, path.rpartition(b"/")[0])
    descriptor = os.open(
        path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW, mode, dir_fd=context.root
    )
    os.write(descriptor, content)
    os.close(descriptor)


def step_seal(context: Context, path: bytes, attributes: int) -> None:
    """Make one mount of the new root read-only, now that everything in it has been put in place."""
    tree = os.open(path or b".", os.O_PATH | os.O_CLOEXEC | os.O_NOFOLLOW, dir_fd=context.root)
    set_attributes(tree, attributes, recursive=False)
    os.close(tree)


def step_pivot(context: Context) -> None:
    """pivot_root(2) with both arguments ".", as its NOTES describe; the old root is then detached."""
    os.fchdir(context.root)
    syscall(SYS_pivot_root, b".", b".")
    check(libc.umount2(b".", MNT_DETACH))
    os.chdir(b"/")
    os.close(context.root)


def step_hostname(_context: Context, name: bytes) -> None:
    check(libc.sethostname(name, ctypes.c_size_t(len(name))))


def step_loopback(_context: Context) -> None:
    """Bring ``lo`` up: struct ifreq is a 16 byte name and then a union that starts with short ifr_flags."""
    descriptor = _socket.socket(_socket.AF_INET, _socket.SOCK_DGRAM | _socket.SOCK_CLOEXEC, 0)
    request = b"lo".ljust(16, b"\0") + IFF_UP.to_bytes(2, "little") + bytes(22)
    check(libc.ioctl(descriptor.fileno(), c_ulong(SIOCSIFFLAGS), c_char_p(request)))
    descriptor.close()


def step_rlimit(_context: Context, resource: int, soft: int, hard: int) -> None:
    limits = soft.to_bytes(8, "little", signed=soft < 0) + hard.to_bytes(8, "little", signed=hard < 0)
    check(libc.setrlimit(resource, c_char_p(limits)))


def step_umask(_context: Context, mask: int) -> None:
    os.umask(mask)


def step_cwd(_context: Context, path: bytes) -> None:
    os.chdir(path)


def step_drop_capabilities(context: Context) -> None:
    """Empty every capability set, the bounding set included, and make sure of it (capabilities(7))."""
    highest = 0
    while highest < 64 and libc.prctl(PR_CAPBSET_READ, c_ulong(highest), 0, 0, 0) >= 0:
        if libc.prctl(PR_CAPBSET_DROP, c_ulong(highest), 0, 0, 0) < 0 and ctypes.get_errno() != EPERM:
            check(-1, "bounding set")
        highest += 1
    libc.prctl(PR_CAP_AMBIENT, c_ulong(PR_CAP_AMBIENT_CLEAR_ALL), 0, 0, 0)
    header = LINUX_CAPABILITY_VERSION_3.to_bytes(4, "little") + bytes(4)
    check(libc.capset(c_char_p(header), c_char_p(bytes(24))))
    held = ctypes.create_string_buffer(24)
    check(libc.capget(c_char_p(header), held))
    if held.raw != bytes(24):
        raise OSError(EPERM, "capabilities are left after dropping all of them")
    if context.namespaces & CLONE_NEWUSER:
        for capability in range(highest):
            if libc.prctl(PR_CAPBSET_READ, c_ulong(capability), 0, 0, 0) > 0:
                raise OSError(EPERM, f"capability {capability} is left in the bounding set")


def step_no_new_privs(_context: Context) -> None:
    prctl(PR_SET_NO_NEW_PRIVS, 1)


def step_landlock(
    _context: Context, handled_fs: int, handled_net: int, scoped: int, rules: tuple[tuple[bytes, int], ...]
) -> None:
    """Restrict this process for good (landlock(7)). ``rules`` are (path, access); a path that is gone is skipped,
    which only ever allows less."""
    attributes = b"".join(value.to_bytes(8, "little") for value in (handled_fs, handled_net, scoped))
    size = 24 if scoped else 16 if handled_net else 8
    ruleset = syscall(SYS_landlock_create_ruleset, attributes, size, 0)
    for path, access in rules:
        try:
            descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
        except OSError:
            continue
        rule = access.to_bytes(8, "little") + descriptor.to_bytes(4, "little")
        syscall(SYS_landlock_add_rule, ruleset, LANDLOCK_RULE_PATH_BENEATH, rule, 0)
        os.close(descriptor)
    syscall(SYS_landlock_restrict_self, ruleset, 0)
    os.close(ruleset)


def step_seccomp(_context: Context, program: bytes) -> None:
    """Install a filter: struct sock_fprog is a 16 bit count, padding and a pointer."""
    buffer = ctypes.create_string_buffer(program, len(program))
    header = (len(program) // 8).to_bytes(8, "little") + ctypes.addressof(buffer).to_bytes(8, "little")
    syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, header)


STEPS = {name[5:]: function for name, function in sorted(globals().items()) if name.startswith("step_")}


# --- one run ------------------------------------------------------------------------------------------------------


def clone(flags: int) -> int:
    """fork with namespaces: clone(2) with a null stack behaves as fork does."""
    return syscall(SYS_clone, flags | _signal.SIGCHLD, 0, 0, 0, 0)


def write_file(path: bytes, content: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(descriptor, content)
    finally:
        os.close(descriptor)


def map_ids(pid: int, uid_map: bytes, gid_map: bytes, deny_setgroups: bool) -> None:
    """Identity maps for a child's user namespace; an ordinary user may map only itself (user_namespaces(7))."""
    if deny_setgroups:
        write_file(b"/proc/%d/setgroups" % pid, b"deny")
    write_file(b"/proc/%d/uid_map" % pid, uid_map)
    write_file(b"/proc/%d/gid_map" % pid, gid_map)


class ReportedError(Exception):
    """The failure has been written to the report pipe; nothing is left to do but to end."""


def tell(report: int, record: tuple[Any, ...]) -> None:
    os.write(report, marshal.dumps(record))


def perform(plan: tuple[tuple[Any, ...], ...], report: int, namespaces: int) -> None:
    context = Context(namespaces)
    for index, step in enumerate(plan):
        try:
            STEPS[step[0]](context, *step[1:])
        except OSError as error:
            detail = str(error.filename or "")
            tell(report, ("failed", index, step[0], error.errno or 0, detail or error.strerror or ""))
            raise ReportedError from None


def execute(argv: list[bytes], env: dict[bytes, bytes], search: list[bytes]) -> None:
    """exec, looking through the directories of ``search`` as execvp(3) does, ENOEXEC through the shell included."""
    program = argv[0]
    candidates = [program] if b"/" in program else [d + b"/" + program for d in search]
    failure = OSError(ENOENT, "not found")
    for candidate in candidates:
        try:
            os.execve(candidate, argv, env)
        except OSError as error:
            if error.errno == ENOEXEC:
                os.execve(b"/bin/sh", [b"sh", candidate, *argv[1:]], env)
            if error.errno not in (ENOENT, ENOTDIR):
                failure = error
    raise failure


# The terminal sends these to the whole foreground group. They are meant for the command, so init lives through them.
TERMINAL_SIGNALS = (_signal.SIGINT, _signal.SIGQUIT, _signal.SIGTSTP, _signal.SIGTTIN, _signal.SIGTTOU)
FORWARDED_SIGNALS = (_signal.SIGTERM, _signal.SIGHUP, _signal.SIGUSR1, _signal.SIGUSR2)
# The interpreter ignores these at start; a command must not inherit that.
INHERITED_IGNORED = (_signal.SIGPIPE, _signal.SIGXFSZ)


def hand_over_listener(channel: _socket.socket, program: bytes) -> None:
    """In the command's process: route metadata calls to init, which is waiting for the listener."""
    from mediator import install  # type: ignore[import-not-found]

    listener = install(program)
    channel.sendmsg([b"l"], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, listener.to_bytes(4, "little"))])
    channel.close()
    os.close(listener)


def mediate(channel: _socket.socket, request: Request, command: int) -> list[bytes]:
    """In init: answer the command's metadata calls until it ends. Returns what was refused, the first few."""
    from mediator import Mediator

    _data, ancillary, _flags, _address = channel.recvmsg(1, _socket.CMSG_SPACE(4))
    channel.close()
    if not ancillary:
        return []  # the command ended before it could be started, and has said why
    listener = int.from_bytes(ancillary[0][2][:4], "little")
    os.set_inheritable(listener, False)
    _program, rows, roots = request["mediation"]
    mediator = Mediator(listener, rows, roots)
    mediator.attend(os.pidfd_open(command))
    return list(mediator.refused)


def run_command(request: Request, report: int, channel: _socket.socket | None) -> None:
    """In the child that becomes the command: fresh signals, then exec. Never returns."""
    try:
        for number in TERMINAL_SIGNALS + FORWARDED_SIGNALS + INHERITED_IGNORED:
            _signal.signal(number, _signal.SIG_DFL)
        if request["new_session"]:
            os.setsid()
        if channel is not None:
            hand_over_listener(channel, request["mediation"][0])
        execute(request["argv"], request["env"], request["search"])
    except OSError as error:
        tell(report, ("failed", -1, "exec", error.errno or 0, ""))
    finally:
        os._exit(127)


def reap(command: int, own_pid_namespace: bool) -> tuple[int, Any]:
    """Wait for the command, reaping every orphan meanwhile. Returns its wait status and resource use."""
    while True:
        pid, status, usage = os.wait4(-1, 0)
        if pid == command:
            break
    if not own_pid_namespace:
        end_children(())
    return status, usage


def end_children(spared: Sequence[int]) -> None:
    """Kill and reap all children but ``spared``; as a subreaper we inherit their children in turn."""
    while True:
        with_children = b"/proc/self/task/%d/children" % os.getpid()
        descriptor = os.open(with_children, os.O_RDONLY | os.O_CLOEXEC)
        children = [int(word) for word in os.read(descriptor, 65536).split()]
        os.close(descriptor)
        targets = [pid for pid in children if pid not in spared]
        if not targets:
            return
        for pid in targets:
            os.kill(pid, _signal.SIGKILL)
            os.waitpid(pid, 0)


def run_init(request: Request, descriptors: list[int], report: int, ready: int) -> None:
    """Pid 1 of a sandbox, from its first instruction to its end. Never returns."""
    code = 125
    try:
        prctl(PR_SET_PDEATHSIG, _signal.SIGKILL)
        for number in TERMINAL_SIGNALS:
            _signal.signal(number, _signal.SIG_IGN)
        if os.read(ready, 1) != b"g":
            os._exit(125)  # the launcher is gone, or could not write our id maps and has said so
        prctl(PR_SET_DUMPABLE, 0)  # not earlier: it makes our /proc files root's, the id maps included
        own_pid_namespace = bool(request["namespaces"] & CLONE_NEWPID)
        if not own_pid_namespace:
            prctl(PR_SET_CHILD_SUBREAPER, 1)
        for target, descriptor in enumerate(descriptors):
            os.dup2(descriptor, target)
        report = keep_only(report, 3)
        perform(request["plan"], report, request["namespaces"])
        ours = theirs = None
        if request["mediation"]:
            ours, theirs = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_STREAM)
        command = os.fork()
        if command == 0:
            run_command(request, report, theirs)
        for number in FORWARDED_SIGNALS:
            _signal.signal(number, lambda received, _frame: os.kill(command, received))
        for descriptor in (0, 1, 2):
            os.close(descriptor)  # a pipe of the command must end when the command does
        refused: list[bytes] = []
        if ours is not None and theirs is not None:
            theirs.close()
            refused = mediate(ours, request, command)
        status, usage = reap(command, own_pid_namespace)
        tell(report, ("exited", status, usage.ru_utime, usage.ru_stime, usage.ru_maxrss, tuple(refused)))
        code = 0
    except ReportedError:
        pass
    except BaseException as error:  # noqa: BLE001 - whatever it is, the host must hear of it and nothing may run on
        tell(report, ("failed", -1, "init", getattr(error, "errno", 0) or 0, repr(error)))
    finally:
        os._exit(code)


def keep_only(descriptor: int, at: int) -> int:
    """Move ``descriptor`` to number ``at`` (close-on-exec) and close all above it: no host descriptor gets in."""
    if descriptor != at:
        os.dup2(descriptor, at, inheritable=False)
    syscall(SYS_close_range, at + 1, 0xFFFFFFFF, 0)
    return at


class Run:
    def __init__(self, identity: int, pid: int, pidfd: int, report: int) -> None:
        self.identity, self.pid, self.pidfd, self.report = identity, pid, pidfd, report


def start(request: Request, descriptors: list[int]) -> Run | None:
    """Clone a sandbox's init. ``descriptors`` are stdin, stdout, stderr and the report pipe, all ours to close."""
    report = descriptors[3]
    ready_read, ready_write = os.pipe2(os.O_CLOEXEC)
    try:
        pid = clone(request["namespaces"])
    except OSError as error:
        tell(report, ("failed", -1, "clone", error.errno or 0, ""))
        for descriptor in (*descriptors, ready_read, ready_write):
            os.close(descriptor)
        return None
    if pid == 0:
        os.close(ready_write)
        run_init(request, descriptors[:3], report, ready_read)
    os.close(ready_read)
    for descriptor in descriptors[:3]:
        os.close(descriptor)
    go = b"g"
    if request["namespaces"] & CLONE_NEWUSER:
        try:
            map_ids(pid, *request["maps"])
        except OSError as error:
            tell(report, ("failed", -1, "map_ids", error.errno or 0, str(error.filename)))
            go = b"n"
    os.write(ready_write, go)
    os.close(ready_write)
    return Run(request["id"], pid, os.pidfd_open(pid), report)


# --- the loop -----------------------------------------------------------------------------------------------------


def receive(control: _socket.socket) -> tuple[Request | None, list[int]]:
    """One request and its descriptors, or None at the end."""
    head, ancillary, _flags, _address = control.recvmsg(4, _socket.CMSG_SPACE(64))
    if not head:
        return None, []
    descriptors: list[int] = []
    for _level, _kind, data in ancillary:
        descriptors += [int.from_bytes(data[i : i + 4], "little") for i in range(0, len(data) - 3, 4)]
    for descriptor in descriptors:
        os.set_inheritable(descriptor, False)
    length = int.from_bytes(head, "little")
    parts: list[bytes] = []
    while length:
        part = control.recv(min(length, 1 << 20))
        if not part:
            return None, []
        parts.append(part)
        length -= len(part)
    return marshal.loads(b"".join(parts)), descriptors


def finish(poller: select.poll, runs: dict[int, Run], pidfd: int) -> None:
    run = runs.pop(pidfd)
    poller.unregister(pidfd)
    os.waitpid(run.pid, 0)
    end_children([other.pid for other in runs.values()])  # orphans of a sandbox without a pid namespace
    os.close(pidfd)
    os.close(run.report)


def handle(request: Request, descriptors: list[int], poller: select.poll, runs: dict[int, Run]) -> None:
    if request["op"] == "run":
        run = start(request, descriptors)
        if run is not None:
            runs[run.pidfd] = run
            poller.register(run.pidfd, select.POLLIN)
    elif request["op"] == "signal":
        for run in runs.values():
            if run.identity == request["id"]:
                os.kill(run.pid, request["signal"])


def serve(control: _socket.socket) -> None:
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    for number in (*TERMINAL_SIGNALS, _signal.SIGHUP, _signal.SIGPIPE):
        _signal.signal(number, _signal.SIG_IGN)
    _signal.signal(_signal.SIGTSTP, _signal.SIG_DFL)  # Ctrl-Z stops the launcher with the rest of the group
    runs: dict[int, Run] = {}
    poller = select.poll()
    poller.register(control.fileno(), select.POLLIN)
    while True:
        for descriptor, _events in poller.poll():
            if descriptor in runs:
                finish(poller, runs, descriptor)
            elif descriptor == control.fileno():
                request, descriptors = receive(control)
                if request is None:
                    for run in runs.values():
                        os.kill(run.pid, _signal.SIGKILL)
                    for run in runs.values():
                        os.waitpid(run.pid, 0)
                    end_children(())
                    return
                handle(request, descriptors, poller, runs)


def main() -> None:
    sys.path[:] = [os.path.dirname(os.path.abspath(__file__)), *sys.path]  # for mediator.py, when it is wanted
    serve(_socket.socket(fileno=int(sys.argv[1])))


if __name__ == "__main__":
    main()
