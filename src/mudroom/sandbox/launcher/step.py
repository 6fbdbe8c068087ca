"""A plan's steps, one function each: ``step_bind`` performs ``("bind", …)``.

Launcher code: the rules in ``launcher.py`` hold here. A step runs in the sandbox's init, after the clone; an OSError in
it ends the sandbox before the command has run.
"""

from __future__ import annotations

import _socket
import ctypes
import os

from mudroom.sandbox.launcher.kernel import (
    AT_EMPTY_PATH,
    AT_FDCWD,
    AT_RECURSIVE,
    CLONE_NEWUSER,
    EACCES,
    EBUSY,
    EINVAL,
    ENOENT,
    ENOTDIR,
    EPERM,
    ESTALE,
    FSCONFIG_CMD_CREATE,
    FSCONFIG_SET_FLAG,
    FSCONFIG_SET_STRING,
    FSMOUNT_CLOEXEC,
    FSOPEN_CLOEXEC,
    IFF_UP,
    LANDLOCK_FILE_RIGHTS,
    LANDLOCK_RULE_NET_PORT,
    LANDLOCK_RULE_PATH_BENEATH,
    LINUX_CAPABILITY_VERSION_3,
    MNT_DETACH,
    MOUNT_ATTR_RDONLY_NODEV,
    MOVE_MOUNT_F_EMPTY_PATH,
    MOVE_MOUNT_T_EMPTY_PATH,
    MS_NODEV,
    MS_NOSUID,
    MS_PRIVATE,
    MS_REC,
    OPEN_TREE_CLOEXEC,
    OPEN_TREE_CLONE,
    PR_CAP_AMBIENT,
    PR_CAP_AMBIENT_CLEAR_ALL,
    PR_CAPBSET_DROP,
    PR_CAPBSET_READ,
    PR_SET_NO_NEW_PRIVS,
    RESOLVE_BENEATH,
    SECCOMP_FILTER_FLAG_NEW_LISTENER,
    SECCOMP_SET_MODE_FILTER,
    SIOCSIFFLAGS,
    TIOCGPTPEER,
    TIOCSPTLCK,
    SYS_fsconfig,
    SYS_fsmount,
    SYS_fsopen,
    SYS_landlock_add_rule,
    SYS_landlock_create_ruleset,
    SYS_landlock_restrict_self,
    SYS_move_mount,
    SYS_open_tree,
    SYS_openat2,
    SYS_pivot_root,
    SYS_seccomp,
    c_char_p,
    c_long,
    c_ulong,
    check,
    libc,
    prctl,
    set_attributes,
    syscall,
)
from mudroom.sandbox.launcher.link import require_no_link
from mudroom.sandbox.launcher.listener import LISTENER_STEPS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from mudroom.sandbox.launcher.refusal import Row
    from mudroom.sandbox.launcher.step_context import StepContext

    Options = Sequence[tuple[bytes, bytes | None]]


# ctypes types are slow to create, and every command has an init: these are created once, in the launcher.
_CAPABILITY_SETS = ctypes.c_char * 24


class _FilterProgram(ctypes.Structure):
    """struct sock_fprog, seccomp(2)."""

    _fields_ = (("length", ctypes.c_ushort), ("filter", c_char_p))


def open_in(context: StepContext, path: bytes, flags: int = os.O_PATH, at: int = -1) -> int:
    """Open what exists at ``path`` below the new root, or below the descriptor ``at``. Raise OSError with ELOOP for a
    symlink on the way: a command of the same fork may exchange a directory of the view for one at any time.

    An absolute path is the host's: a standing template mounts the view in the vault, and takes it from there."""
    if path.startswith(b"/"):
        return os.open(path, flags | os.O_CLOEXEC)
    # struct open_how of openat2(2): flags, mode, resolve.
    how = b"".join(value.to_bytes(8, "little") for value in (flags | os.O_CLOEXEC, 0, context.resolve))
    return syscall(SYS_openat2, context.root if at < 0 else at, path or b".", how, len(how))


def attach(context: StepContext, tree: int, path: bytes) -> None:
    place = open_in(context, path)
    syscall(SYS_move_mount, tree, b"", place, b"", MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH)
    os.close(place)
    os.close(tree)


def new_filesystem(kind: bytes, options: Options, attributes: int) -> int:
    """Mount a new file system, detached. ``options``: (key, value), with None for flags. See fsopen(2)."""
    return create_mount(syscall(SYS_fsopen, kind, FSOPEN_CLOEXEC), options, attributes)


def create_mount(context_fd: int, options: Options, attributes: int) -> int:
    """Configure a file system context from fsopen(2) and return its mount. ``context_fd`` is closed."""
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


def step_private(_context: StepContext) -> None:
    """Separate this namespace's mount events from the host's, in both directions."""
    check(libc.mount(b"none", b"/", None, c_ulong(MS_REC | MS_PRIVATE), None))


def step_root(context: StepContext, mountpoint: bytes, options: Options) -> None:
    """Make an empty tmpfs the new root. Until the pivot it is mounted over ``mountpoint``, a directory in the vault."""
    tree = new_filesystem(b"tmpfs", options, 6)
    syscall(SYS_move_mount, tree, b"", AT_FDCWD, mountpoint, MOVE_MOUNT_F_EMPTY_PATH)
    os.close(tree)
    context.root = os.open(mountpoint, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)


def step_host(context: StepContext, mountpoint: bytes, attributes: int) -> None:
    """Make the host's root the new root, with everything mounted in it and with ``attributes`` on every mount. It is
    mounted over ``mountpoint``, as in ``step_root``. A nested user namespace can neither uncover these mounts nor make
    them writable: mount_namespaces(7), restrictions on mount namespaces."""
    tree = syscall(SYS_open_tree, AT_FDCWD, b"/", OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_RECURSIVE)
    set_attributes(tree, attributes, recursive=True)
    syscall(SYS_move_mount, tree, b"", AT_FDCWD, mountpoint, MOVE_MOUNT_F_EMPTY_PATH)
    os.close(tree)
    context.root = os.open(mountpoint, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)


def step_image(context: StepContext, mountpoint: bytes, attributes: int) -> None:
    """In a container: make the image's root the new root. An image has links of its own, such as ``/var/run``: those
    that stay below the root are followed."""
    context.resolve = RESOLVE_BENEATH
    step_host(context, mountpoint, attributes)


def step_take(context: StepContext, place: bytes, path: bytes) -> None:
    """Move the mount at a host path to its place in the new root. A template has made it, and keeps its own; this one
    is a copy that came with the mount namespace (clone(2), CLONE_NEWNS)."""
    make_directories(context, path)
    target = open_in(context, path)
    syscall(SYS_move_mount, AT_FDCWD, place, target, b"", MOVE_MOUNT_T_EMPTY_PATH)
    os.close(target)


def step_leave(context: StepContext) -> None:  # enter has opened the new root again after the pivot
    os.close(context.root)
    context.root = -1


def step_beneath(context: StepContext, path: bytes) -> None:
    require_no_link(context.root, path)


def step_enter(context: StepContext) -> None:
    """Take the working directory as the new root, as it is in a template's clone."""
    context.root = os.open(b".", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)


def step_bind(context: StepContext, source: bytes, path: bytes, attributes: int, optional: bool) -> None:
    """Show a host tree."""
    try:
        # Recursive: the kernel refuses to uncover a directory that a submount hides.
        tree = syscall(SYS_open_tree, AT_FDCWD, source, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_RECURSIVE)
    except OSError as error:
        if optional and error.errno in (ENOENT, EACCES, ENOTDIR):
            return
        raise
    if attributes:
        set_attributes(tree, attributes, recursive=True)
    make_place(context, path, tree)
    attach(context, tree, path)


def step_mounted(context: StepContext, source: bytes, path: bytes, attributes: int, identity: tuple[int, int]) -> None:
    """Show the directory ``source``; without ``path`` only check it. Raise OSError with ESTALE if it is not
    ``identity``. The kernel refuses (EINVAL) if the user has mounted inside."""
    tree = syscall(SYS_open_tree, AT_FDCWD, source, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC)
    if (os.fstat(tree).st_dev, os.fstat(tree).st_ino) != tuple(identity):
        raise OSError(ESTALE, "another directory is there")
    if not path:
        os.close(tree)
        return
    set_attributes(tree, attributes, recursive=False)
    make_directories(context, path)
    attach(context, tree, path)


def step_inside(context: StepContext, source: bytes, path: bytes, attributes: int) -> None:
    """Show a host tree inside a directory that commands have written to. The place is created if it is missing."""
    tree = syscall(SYS_open_tree, AT_FDCWD, source, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_RECURSIVE)
    set_attributes(tree, attributes, recursive=True)
    make_place(context, path, tree)
    attach(context, tree, path)


def step_spread(context: StepContext, path: bytes, places: tuple[tuple[bytes, bytes], ...]) -> None:
    """Bind directories in the mount at ``path`` to their own places. The last place may be ``path`` itself, which
    covers the whole mount: the kernel uncovers it for no command (mount_namespaces(7), locked mounts; no command has
    the capability)."""
    whole = open_in(context, path, os.O_PATH | os.O_DIRECTORY)
    for name, place in places:
        source = open_in(context, name, at=whole)
        tree = syscall(SYS_open_tree, source, b"", OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_EMPTY_PATH)
        os.close(source)
        make_directories(context, place)
        attach(context, tree, place)
    os.close(whole)


def step_tmpfs(context: StepContext, path: bytes, options: Options, attributes: int) -> None:
    tree = new_filesystem(b"tmpfs", options, attributes)
    make_directories(context, path)
    attach(context, tree, path)


def step_proc(context: StepContext, path: bytes) -> None:
    tree = new_filesystem(b"proc", (), 14)
    make_directories(context, path)
    attach(context, tree, path)


def step_devpts(context: StepContext, path: bytes) -> None:
    """Mount a separate devpts instance with its own limit: the kernel's limit is for all sandboxes and the host
    together."""
    options = ((b"ptmxmode", b"0666"), (b"mode", b"0620"), (b"max", b"256"), (b"newinstance", None))
    tree = new_filesystem(b"devpts", options, 10)
    make_directories(context, path)
    attach(context, tree, path)


def step_terminal(context: StepContext, path: bytes) -> None:
    """Open a pseudo-terminal for the command, if the host asked for it. The host gets the master, the command will get
    the other side. ``path`` is a ptmx device; the ioctls need no other path (ioctl_tty(2), TIOCGPTPEER: Linux 4.13)."""
    if context.channel < 0:
        return
    flags = os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC
    master = open_in(context, path, flags)
    check(libc.ioctl(master, c_ulong(TIOCSPTLCK), c_char_p(bytes(4))))
    context.terminal = check(libc.ioctl(master, c_ulong(TIOCGPTPEER), flags))
    channel = _socket.socket(fileno=context.channel)
    channel.sendmsg([b"t"], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, master.to_bytes(4, "little"))])
    channel.detach()
    os.close(master)


def step_overlay(
    context: StepContext, path: bytes, lowers: tuple[bytes, ...], upper: bytes, work: bytes, volatile: bool
) -> None:
    """Mount the staged view. Layers are named by descriptor, so no character in a path needs escaping on any kernel.

    ``userxattr`` always: without it the mount succeeds in a user namespace, but removing a lower directory fails with
    EIO. redirect_dir, metacopy, index and xino stay off: with them a lower that changes between two mounts is not
    supported (Documentation/filesystems/overlayfs.rst).
    """
    context.is_overlay = True
    make_directories(context, path)
    descriptors = [
        os.open(layer, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC) for layer in (*lowers, upper, work)
    ]
    names = [b"/proc/self/fd/%d" % descriptor for descriptor in descriptors]
    options: list[tuple[bytes, bytes | None]] = [
        (b"upperdir", names[-2]),
        (b"workdir", names[-1]),
        (b"userxattr", None),
    ]
    if volatile:
        options.append((b"volatile", None))
    if len(lowers) == 1:
        attach(context, new_filesystem(b"overlay", [(b"lowerdir", names[0]), *options], 6), path)
    elif not _overlay_one_by_one(context, path, names[:-2], options):
        _overlay_all_at_once(context, path, descriptors, volatile)
    for descriptor in descriptors:
        os.close(descriptor)


def _overlay_one_by_one(context: StepContext, path: bytes, lowers: list[bytes], options: Options) -> bool:
    """Mount many lowers, each as its own option: fsconfig(2) takes no string longer than 255 bytes. Return False before
    Linux 6.8, which has no such option."""
    try:
        tree = new_filesystem(b"overlay", [*((b"lowerdir+", lower) for lower in lowers), *options], 6)
    except OSError as error:
        # EINVAL comes when the option is set; before 6.5, where overlayfs still had the old mount interface behind the
        # new one, only when the file system is created (legacy_parse_param in fs/fs_context.c).
        if error.errno == EINVAL:
            return False
        raise
    attach(context, tree, path)
    return True


def _overlay_all_at_once(context: StepContext, path: bytes, layers: list[int], volatile: bool) -> None:
    """Mount many lowers by mount(2), whose options may fill a page. 500 lowers, an overlay's limit (OVL_MAX_STACK in
    fs/overlayfs/super.c), take 2000 bytes when named relative to the directory /proc/self/fd."""
    *lowers, upper, work = (b"%d" % layer for layer in layers)
    options = b"lowerdir=" + b":".join(lowers) + b",upperdir=" + upper + b",workdir=" + work + b",userxattr"
    if volatile:
        options += b",volatile"
    place = open_in(context, path, os.O_PATH | os.O_DIRECTORY)
    os.chdir(b"/proc/self/fd")
    check(libc.mount(b"overlay", b"%d" % place, b"overlay", c_ulong(MS_NOSUID | MS_NODEV), c_char_p(options)))
    os.chdir(b"/")
    os.close(place)


def step_view(context: StepContext, path: bytes) -> None:
    """Send the view's mount to the host, if it asked for it. A file opened below this descriptor (openat2(2)) is the
    file that the command sees, from any mount namespace. The descriptor is closed here before the command starts."""
    if context.door >= 0:
        from mudroom.sandbox.launcher.refresher import send_refresher  # ``holder.py`` has imported it

        send_refresher(context, path)
    if context.view < 0:
        return
    place = open_in(context, path, os.O_PATH | os.O_DIRECTORY)
    _send(context.view, b"v", [place])
    context.view = -1


def step_left(context: StepContext, paths: tuple[bytes, ...]) -> None:
    """Send the command's own directories to the host, if it asked for them: it tells what is left there. The data are
    three numbers of 64 bits for each: its mtime in nanoseconds, and the free inodes and blocks."""
    if context.left < 0:
        return
    places = [open_in(context, path, os.O_PATH | os.O_DIRECTORY) for path in paths]
    numbers: list[int] = []
    for place in places:
        room = os.fstatvfs(place)
        numbers += [os.fstat(place).st_mtime_ns, room.f_ffree, room.f_bfree]
    _send(context.left, b"".join(number.to_bytes(8, "little") for number in numbers), places)
    context.left = -1


def _send(socket: int, data: bytes, descriptors: list[int]) -> None:
    """Send data with descriptors, and close all."""
    rights = b"".join(descriptor.to_bytes(4, "little") for descriptor in descriptors)
    channel = _socket.socket(fileno=socket)
    try:
        channel.sendmsg([data], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, rights)])
    except BrokenPipeError:
        pass  # the host no longer waits for it
    channel.close()
    for descriptor in descriptors:
        os.close(descriptor)


def step_directory(context: StepContext, path: bytes, mode: int) -> None:
    make_directories(context, path, mode)
    place = open_in(context, path, os.O_RDONLY | os.O_DIRECTORY)
    os.fchmod(place, mode)
    os.close(place)


def step_symlink(context: StepContext, target: bytes, path: bytes) -> None:
    above, name = make_above(context, path)
    os.symlink(target, name, dir_fd=above)
    os.close(above)


def step_file(context: StepContext, path: bytes, content: bytes, mode: int) -> None:
    above, name = make_above(context, path)
    descriptor = os.open(name, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, mode, dir_fd=above)
    os.write(descriptor, content)
    os.close(descriptor)
    os.close(above)


def step_seal(context: StepContext, path: bytes, attributes: int) -> None:
    """Make a mount in the new root read-only, after everything in it has been put in place."""
    tree = open_in(context, path)
    set_attributes(tree, attributes, recursive=False)
    os.close(tree)


def step_cover(context: StepContext, path: bytes) -> None:
    """Hide a file in the new root, if it exists, under a device: on a mount without devices it cannot be opened, not
    even for reading (mount(2), MS_NODEV)."""
    try:
        place = open_in(context, path, os.O_PATH | os.O_NOFOLLOW)
    except FileNotFoundError:
        return  # this kernel has no such file
    tree = syscall(SYS_open_tree, AT_FDCWD, b"/dev/null", OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC)
    _lay_over(tree, place)


def step_freeze(context: StepContext, path: bytes) -> None:
    """Make a directory in the new root read-only although its file system stays writable."""
    place = open_in(context, path, os.O_PATH | os.O_DIRECTORY)
    tree = syscall(SYS_open_tree, place, b"", OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_EMPTY_PATH)
    _lay_over(tree, place)


def _lay_over(tree: int, place: int) -> None:
    """Mount ``tree``, read-only and without devices, on the file that ``place`` refers to; both are closed."""
    set_attributes(tree, MOUNT_ATTR_RDONLY_NODEV, recursive=False)
    syscall(SYS_move_mount, tree, b"", place, b"", MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH)
    os.close(tree)
    os.close(place)


def step_pivot(context: StepContext) -> None:
    """Make the new root this process's root: pivot_root(2) with both arguments ".", as its NOTES describe; detach the
    old root."""
    os.fchdir(context.root)
    syscall(SYS_pivot_root, b".", b".")
    check(libc.umount2(b".", MNT_DETACH))
    os.chdir(b"/")
    os.close(context.root)


def step_hostname(_context: StepContext, name: bytes) -> None:
    check(libc.sethostname(name, ctypes.c_size_t(len(name))))


def step_loopback(_context: StepContext) -> None:
    """Bring ``lo`` up. struct ifreq: a 16 byte name, then a union that starts with short ifr_flags."""
    descriptor = _socket.socket(_socket.AF_INET, _socket.SOCK_DGRAM | _socket.SOCK_CLOEXEC, 0)
    request = b"lo".ljust(16, b"\0") + IFF_UP.to_bytes(2, "little") + bytes(22)
    check(libc.ioctl(descriptor.fileno(), c_ulong(SIOCSIFFLAGS), c_char_p(request)))
    descriptor.close()


def step_rlimit(_context: StepContext, resource: int, soft: int, hard: int) -> None:
    limits = soft.to_bytes(8, "little", signed=soft < 0) + hard.to_bytes(8, "little", signed=hard < 0)
    check(libc.setrlimit(resource, c_char_p(limits)))


def step_counters(_context: StepContext, limits: tuple[tuple[bytes, int, bool], ...]) -> None:
    """Set limits of this user namespace: (file in /proc/sys/user, number, whether to go on without it). /proc is the
    host's: these files show the namespace of the process that opens them, and its CAP_SYS_RESOURCE opens them for
    writing (set_permissions in kernel/ucount.c). In a container /proc/sys may be read-only."""
    for name, number, optional in limits:
        try:
            descriptor = os.open(b"/proc/sys/user/" + name, os.O_WRONLY | os.O_CLOEXEC)
        except OSError:
            if optional:
                continue
            raise
        os.write(descriptor, b"%d" % number)
        os.close(descriptor)


def step_umask(_context: StepContext, mask: int) -> None:
    os.umask(mask)


def step_cwd(_context: StepContext, path: bytes) -> None:
    os.chdir(path)


def step_drop_bounding_set(context: StepContext) -> None:
    """Empty the bounding set and check it. From then on no exec gives this process or its descendants a capability
    (capabilities(7)). Capabilities already held stay until they are dropped."""
    capability = 0
    while capability < 64 and libc.prctl(PR_CAPBSET_READ, c_ulong(capability), 0, 0, 0) >= 0:
        if libc.prctl(PR_CAPBSET_DROP, c_ulong(capability), 0, 0, 0) < 0 and context.namespaces & CLONE_NEWUSER:
            check(-1, "bounding set")
        capability += 1


def step_drop_capabilities(_context: StepContext) -> None:
    """Empty the permitted, effective, inheritable and ambient sets. Raise OSError if any capability is left."""
    libc.prctl(PR_CAP_AMBIENT, c_ulong(PR_CAP_AMBIENT_CLEAR_ALL), 0, 0, 0)
    header = LINUX_CAPABILITY_VERSION_3.to_bytes(4, "little") + bytes(4)
    check(libc.capset(c_char_p(header), c_char_p(bytes(24))))
    held = _CAPABILITY_SETS.from_buffer(bytearray(b"\xff" * 24))
    check(libc.capget(c_char_p(header), held))
    if bytes(held) != bytes(24):
        raise OSError(EPERM, "capabilities are left after dropping all of them")


def step_no_new_privs(_context: StepContext) -> None:
    prctl(PR_SET_NO_NEW_PRIVS, 1)


def step_landlock(
    _context: StepContext,
    handled_fs: int,
    handled_net: int,
    scoped: int,
    rules: tuple[tuple[bytes, int], ...],
    flags: int,
    ports: tuple[tuple[int, int], ...] = (),
) -> None:
    """Restrict this process for good (landlock(7)). ``rules``: (path, access); a missing path is skipped, which only
    ever allows less. ``flags``: for landlock_restrict_self(2). ``ports``: (TCP port, access)."""
    attributes = b"".join(value.to_bytes(8, "little") for value in (handled_fs, handled_net, scoped))
    size = 24 if scoped else 16 if handled_net else 8
    ruleset = syscall(SYS_landlock_create_ruleset, attributes, size, 0)
    for path, access in rules:
        try:
            descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
        except OSError:
            continue
        if os.fstat(descriptor).st_mode & 0o170000 != 0o040000:
            access &= LANDLOCK_FILE_RIGHTS  # a directory right in a rule on a file is EINVAL
        rule = access.to_bytes(8, "little") + descriptor.to_bytes(4, "little")
        syscall(SYS_landlock_add_rule, ruleset, LANDLOCK_RULE_PATH_BENEATH, rule, 0)
        os.close(descriptor)
    for port, access in ports:
        net_port = access.to_bytes(8, "little") + port.to_bytes(8, "little")
        syscall(SYS_landlock_add_rule, ruleset, LANDLOCK_RULE_NET_PORT, net_port, 0)
    syscall(SYS_landlock_restrict_self, ruleset, flags)
    os.close(ruleset)


def step_seccomp(
    context: StepContext, program: bytes, notifying: bytes = b"", rows: tuple[tuple[int, tuple[Row, ...]], ...] = ()
) -> None:
    """Install a system call filter. ``notifying`` is the same filter with its refusals sent to init, which has ``rows``
    (``refusal.py``). It is used where possible. Otherwise ``program`` is installed: before Linux 5.0 (EINVAL), and
    where another listener exists already because mudroom runs in a container (EBUSY)."""
    if notifying:
        try:
            context.listener = _install(notifying, SECCOMP_FILTER_FLAG_NEW_LISTENER)
            context.rows = dict(rows)
            return
        except OSError as error:
            if error.errno not in (EBUSY, EINVAL):
                raise
    _install(program, 0)


def _install(program: bytes, flags: int) -> int:
    return check(
        libc.syscall(
            c_long(SYS_seccomp),
            c_long(SECCOMP_SET_MODE_FILTER),
            c_long(flags),
            ctypes.byref(_FilterProgram(len(program) // 8, program)),
        )
    )


STEPS = {
    name[5:]: function for name, function in sorted(globals().items()) if name.startswith("step_")
} | LISTENER_STEPS


# --- directories in a new root ---


def make_directories(context: StepContext, path: bytes, mode: int = 0o755) -> None:
    """Create the directories in ``path`` (relative) below the new root; existing ones are kept. The last one gets
    ``mode``."""
    if path:
        above, name = make_above(context, path)
        make_directory(above, name, mode)
        os.close(above)


def make_above(context: StepContext, path: bytes) -> tuple[int, bytes]:
    """Create the directories above ``path``. Return the last one, open, and the name in it."""
    above, _slash, name = path.rpartition(b"/")
    try:
        return open_in(context, above, os.O_PATH | os.O_DIRECTORY), name
    except FileNotFoundError:
        make_directories(context, above)
        return open_in(context, above, os.O_PATH | os.O_DIRECTORY), name


def make_place(context: StepContext, path: bytes, tree: int) -> None:
    """Create what ``tree`` can be mounted on: a directory or an empty file."""
    if os.fstat(tree).st_mode & 0o170000 == 0o040000:
        make_directories(context, path)
        return
    above, name = make_above(context, path)
    try:
        os.close(os.open(name, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o644, dir_fd=above))
    except FileExistsError:
        pass
    os.close(above)


def make_directory(at: int, name: bytes, mode: int) -> None:
    try:
        os.mkdir(name, mode, dir_fd=at)
    except FileExistsError:
        pass
