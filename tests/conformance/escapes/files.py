"""Files: what lies beside the project, what is made in it to run outside later, and every other way to a path."""

from __future__ import annotations

import ctypes
import errno
import os
import re
import stat
import struct

from . import deed
from .attempt import PID_1, World, attempt, register
from .call import AT_EMPTY_PATH, AT_FDCWD, AT_SYMLINK_FOLLOW, O_PATH, buffer, call, ioctl
from .deed import UP, get, put

SYSTEM = ("/etc", "/usr/local/bin", "/usr/lib", "/opt", "/")
S_IFCHR, S_IFBLK = 0o020000, 0o060000


def plant(path: str, world: World) -> None:
    """A file that runs by itself later, in a place where there may be no directory yet."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w") as stream:
        stream.write(f"#!/bin/sh\n# {world.mark}\n")
    os.chmod(path, 0o755)


def processes() -> list[str]:
    return [name for name in os.listdir("/proc") if name.isdigit() and int(name) != os.getpid()]


def is_plain(path: str) -> bool:
    try:
        return stat.S_ISREG(os.stat(path).st_mode)
    except OSError:
        return False


def any_of(paths: list[str]) -> str | None:
    """The content of those that can be opened."""
    found = ""
    for path in paths:
        try:
            found += get(path)
        except OSError:
            continue  # one closed door among many: the next
    return found or None


register("plain_write", "files", "a file beside the project is written by its path", deed.plain_write)
register("plain_read", "files", "a file beside the project is read by its path", deed.plain_read, proof="secret")
register("plain_create", "files", "a file is made beside the project", deed.plain_create)
register(
    "truncate",
    "files",
    "a file beside the project is emptied by truncate(2)",
    deed.truncate,
    source="landlock(7): not handled before ABI 3",
)
register("unlink", "files", "a file beside the project is removed", deed.unlink)
register("rmdir", "files", "a directory beside the project is removed", deed.rmdir)
register("mkdir", "files", "a directory is made beside the project", deed.mkdir)
register("symlink", "files", "a symbolic link is made beside the project", deed.symlink)
register("mkfifo", "files", "a FIFO is made beside the project", deed.mkfifo)
register(
    "symlink_write",
    "files",
    "a symbolic link in the project leads out; it is written through",
    deed.symlink_write,
    source="CVE-2026-39861",
)
register(
    "symlink_read",
    "files",
    "a symbolic link in the project leads out; it is read through",
    deed.symlink_read,
    proof="secret",
)
register("symlink_chain", "files", "a link to a directory outside, by way of two others", deed.symlink_chain)
register(
    "ancestor_replaced",
    "files",
    "a directory of the project is replaced by a link after it was opened",
    deed.ancestor_replaced,
    source="CVE-2026-39861",
)
register(
    "hard_link",
    "files",
    "a file outside is linked into the project and written there",
    deed.hard_link,
    source="link(2)",
)
register(
    "hard_link_read",
    "files",
    "a secret is linked into the project and read there",
    deed.hard_link_read,
    source="link(2)",
    proof="secret",
)


@attempt("files", "an O_PATH descriptor of a file outside is linked into the project", "linkat(2), AT_EMPTY_PATH")
def link_descriptor(world: World) -> None:
    descriptor = os.open(f"{world.outside}/target", O_PATH)
    try:
        call("linkat", descriptor, "", AT_FDCWD, "linked", AT_EMPTY_PATH)
    except OSError:
        call("linkat", AT_FDCWD, f"/proc/self/fd/{descriptor}", AT_FDCWD, "linked", AT_SYMLINK_FOLLOW)
    put("linked", world)


@attempt("files", "an O_PATH descriptor is opened again through /proc", "proc_pid_fd(5)")
def path_descriptor(world: World) -> None:
    put(f"/proc/self/fd/{os.open(f'{world.outside}/target', O_PATH)}", world)


@attempt("files", "an unnamed file is linked to a name outside", "open(2), O_TMPFILE")
def tmpfile(world: World) -> None:
    descriptor = os.open(".", os.O_TMPFILE | os.O_WRONLY)
    call("linkat", AT_FDCWD, f"/proc/self/fd/{descriptor}", AT_FDCWD, f"{world.outside}/new", AT_SYMLINK_FOLLOW)


register("rename_out", "files", "a file of the project is renamed to a place outside", deed.rename_out)
register("rename_in", "files", "a file outside is renamed into the project", deed.rename_in)


@attempt("files", "a file of the project and one outside change places", "renameat2(2), RENAME_EXCHANGE")
def rename_exchange(world: World) -> None:
    put("exchanged", world)
    call("renameat2", AT_FDCWD, "exchanged", AT_FDCWD, f"{world.outside}/target", 2)


register(
    "rename_parent",
    "files",
    "a directory above what is protected is renamed",
    deed.rename_parent,
    source="rename of parents",
)


@attempt("files", "the project itself is renamed, and back", "rename of parents", proof="claim")
def rename_project(world: World) -> str:
    where = os.path.abspath("../..")
    os.rename(where, where + "-away")
    os.rename(where + "-away", where)
    return "renamed"


register("dots", "files", "up from the project by .. more often than there are directories", deed.dots)
for _name, _root in {
    "proc_self_root": "/proc/self/root",
    "proc_thread_root": "/proc/thread-self/root",
    "proc_self_cwd": f"/proc/self/cwd/{UP}",
    "proc_1_root": "/proc/1/root",
    "proc_1_cwd": f"/proc/1/cwd/{UP}",
}.items():
    register(
        _name,
        "files",
        f"a secret is read by way of {_root[:15].rstrip('/.')}",
        lambda world, root=_root: get(f"{root}/{world.outside}/secret"),  # type: ignore[misc]
        source="magic links, proc_pid_root(5)",
        proof="secret",
        control="never" if "1" in _name else "anybody",
        why=PID_1 if "1" in _name else "",
    )


@attempt("files", "the root of the host's own process is walked into", "proc_pid_root(5)", proof="secret")
def proc_victim_root(world: World) -> str:
    return get(f"/proc/{world.victim}/root{world.outside}/secret")


@attempt("files", "roots and working directories of all processes in sight", "proc_pid_root(5)", proof="secret")
def proc_all_roots(world: World) -> str | None:
    ways = [f"/proc/{pid}/{how}" for pid in processes() for how in ("root/", f"cwd/{UP}")]
    return any_of([f"{way}{world.outside}/secret" for way in ways])


@attempt("files", "open files of all processes in sight", "proc_pid_fd(5)", proof="secret")
def proc_all_descriptors(world: World) -> str | None:
    """Pipes and terminals are left alone: what is read from one is gone for its own reader, which may wait for ever."""
    found: list[str] = []
    for pid in processes():
        try:
            found += [f"/proc/{pid}/fd/{number}" for number in os.listdir(f"/proc/{pid}/fd")]
        except OSError:
            continue
    plain = [path for path in found if is_plain(path)]
    return any_of([*plain, *(f"{path}/{UP}{world.outside}/secret" for path in found)])


@attempt("files", "what init has open", "proc_pid_fd(5)", proof="claim", control="never", why=PID_1)
def init_descriptors(world: World) -> str | None:
    return any_of([f"/proc/1/fd/{number}" for number in os.listdir("/proc/1/fd")]) or None


@attempt("files", "the program of init, through its magic link, for writing", "CVE-2019-5736", proof="claim",
         control="never", why=PID_1)  # fmt: skip
def init_program(world: World) -> str:
    try:
        return f"opened {os.open('/proc/1/exe', os.O_WRONLY)}"
    except OSError as error:
        if error.errno == errno.ETXTBSY:
            return "refused only because it runs"
        raise


@attempt("files", "a mapped library of the host, through map_files, for writing", "proc_pid_map_files(5)",
         proof="claim", control="root")  # fmt: skip
def map_files(world: World) -> str | None:
    for name in os.listdir("/proc/self/map_files"):
        path = f"/proc/self/map_files/{name}"
        if os.readlink(path).startswith("/usr/lib/"):
            return f"opened {os.open(path, os.O_WRONLY)}"
    return None


@attempt("files", "descriptors that were inherited are read", "CVE-2024-21626", proof="secret")
def inherited_files(world: World) -> str | None:
    return any_of([f"/proc/self/fd/{number}" for number in os.listdir("/proc/self/fd") if int(number) > 2])


@attempt("files", "a directory that was inherited leads out", "CVE-2024-21626", proof="secret")
def inherited_directories(world: World) -> str | None:
    numbers = [number for number in os.listdir("/proc/self/fd") if int(number) > 2]
    return any_of([f"/proc/self/fd/{number}/{UP}{world.outside}/secret" for number in numbers])


@attempt("files", "the layers of the view, as the mount table names them, are written")
def layers(world: World) -> None:
    with open("/proc/self/mountinfo") as stream:
        paths = re.findall(r"(?:lowerdir\+?|upperdir)=([^,\s]+)", stream.read())
    refused: OSError | None = None
    for path in [world.project, *paths]:  # mounts of others come and go
        try:
            put(f"{path}/layers", world)
        except OSError as error:
            refused = error
    if refused is not None:
        raise refused


@attempt("files", "an overlay attribute that leads elsewhere is set", "CVE-2023-0386", proof="claim", control="root")
def overlay_redirect(world: World) -> str:
    os.mkdir("redirected")
    os.setxattr("redirected", "trusted.overlay.redirect", world.outside.encode())
    return "set"


@attempt("files", "a whiteout is forged", "mknod(2)", proof="claim")
def whiteout(world: World) -> str:
    os.mknod("whiteout", S_IFCHR | 0o600, 0)
    return "made"


@attempt("files", "a device node of the disk is made", "mknod(2)", proof="claim", control="root")
def device_node(world: World) -> str:
    os.mknod("disk", S_IFBLK | 0o600, os.makedev(7, 0))
    return "made"


@attempt("files", "the same with a bit that the kernel does not look at", "CVE-2019-10063", proof="claim",
         control="root")  # fmt: skip
def device_node_high(world: World) -> str:
    return f"made {call('mknodat', AT_FDCWD, 'disk-high', (1 << 32) | S_IFCHR | 0o600, os.makedev(1, 3))}"


@attempt("files", "a file is opened by its inode, past any root", "the shocker escape; open_by_handle_at(2)",
         proof="claim", control="root")  # fmt: skip
def file_handle(world: World) -> str:
    handle, mount = buffer(struct.pack("<Ii", 128, 0) + bytes(128)), ctypes.c_int()
    call("name_to_handle_at", AT_FDCWD, "/", handle, ctypes.byref(mount), 0)
    return f"opened {call('open_by_handle_at', os.open('/', os.O_RDONLY), handle, os.O_RDONLY)}"


@attempt("files", "a file in the project is given capabilities", "capabilities(7)", proof="claim", control="root")
def file_capabilities(world: World) -> str:
    put("capable", world)
    os.setxattr("capable", "security.capability", struct.pack("<5I", 0x02000001, 0xFFFFFFFF, 0, 0xFF, 0))
    return "set"


@attempt("files", "a file is made immutable: nobody could remove it", "ioctl_iflags(2)", proof="claim", control="root")
def immutable(world: World) -> str:
    put("immutable", world)
    descriptor = os.open("immutable", os.O_RDONLY)
    ioctl(descriptor, 0x40086602, struct.pack("<Q", 0x10))
    ioctl(descriptor, 0x40086602, struct.pack("<Q", 0))
    return "set"


@attempt("files", "files outside are watched", "inotify(7)", proof="claim")
def watch(world: World) -> str:
    return f"watched {call('inotify_add_watch', call('inotify_init1', 0), world.outside, 0xFFF)}"


@attempt("files", "the size and time of a file outside are found out", "landlock(7)", proof="claim")
def look(world: World) -> str:
    return f"{os.stat(f'{world.outside}/secret').st_size} bytes"


@attempt("files", "a private key in the home is read", proof="secret")
def ssh_key(world: World) -> str:
    return get(f"{world.home}/.ssh/id_ed25519")


@attempt("files", "another project is read", proof="secret")
def other_project(world: World) -> str:
    return get(f"{world.home}/other/.env")


@attempt("files", "a file of the host's /tmp is read", proof="secret")
def host_tmp(world: World) -> str:
    return get(f"{world.tmp}/secret")


@attempt("files", "a file is left in the host's /tmp")
def host_tmp_write(world: World) -> None:
    put(f"/tmp/{world.mark}", world)


@attempt("files", "a file is left in the host's /var/tmp")
def host_var_tmp(world: World) -> None:
    put(f"/var/tmp/{world.mark}", world)


@attempt("files", "a file is left in the host's /dev/shm", "shm_overview(7)")
def host_dev_shm(world: World) -> None:
    put(f"/dev/shm/{world.mark}", world)


@attempt("files", "a file is left in the host's /run", control="root")
def host_run(world: World) -> None:
    put(f"/run/{world.mark}", world)


@attempt("files", "the passwords of the machine are read", "shadow(5)", proof="claim", control="root")
def shadow(world: World) -> str:
    return get("/etc/shadow")[:20]


@attempt("files", "a directory of the system is written", control="root")
def system_directory(world: World) -> None:
    failure: OSError | None = None
    for directory in SYSTEM:
        try:
            put(f"{directory}/{world.mark}", world)
        except OSError as error:
            failure = error
    if failure is not None:
        raise failure


# What is made now and runs later, outside: in the project, where it may not have existed, and in the home.
for _name, _path, _source in (
    ("git_hook", ".git/hooks/post-checkout", "CVE-2026-25725; CVE-2024-32002"),
    ("git_config", ".git/config", "core.fsmonitor runs what it names"),
    ("git_nested_hook", "vendor/x/.git/hooks/post-checkout", "a repository in the repository"),
    ("git_file", "sub/.git", "gitrepository-layout(5): it names a directory with hooks of its own"),
    ("claude_settings", ".claude/settings.json", "CVE-2026-25725: hooks of the agent itself"),
    ("editor_tasks", ".vscode/tasks.json", "tasks that run when the folder is opened"),
    ("mcp_servers", ".mcp.json", "CVE-2025-59536: servers that start with the agent"),
    ("direnv", ".envrc", "direnv(1)"),
    ("test_settings", "conftest.py", "pytest imports it"),
    ("node_hooks", "package.json", "npm-scripts(7): postinstall"),
    ("own_policy", ".mudroom/policy.yaml", "the sandbox's own policy"),
):
    register(
        f"create_{_name}",
        "files: first creation",
        f"{_path} is made in the project, to run outside later",
        lambda world, path=_path: plant(f"{os.getcwd()}/planted/{path}", world),  # type: ignore[misc]
        source=_source,
    )
for _name, _path, _source in (
    ("startup", ".bashrc", "bash(1)"),
    ("profile", ".profile", "sh(1)"),
    ("keys", ".ssh/authorized_keys", "sshd(8)"),
    ("program", ".local/bin/ls", "first on many a PATH"),
    ("autostart", ".config/autostart/x.desktop", "desktop sessions"),
    ("unit", ".config/systemd/user/x.service", "systemd(1)"),
    ("git_settings", ".gitconfig", "git-config(1): core.pager, aliases"),
):
    register(
        f"home_{_name}",
        "files: first creation",
        f"~/{_path} is made, to run outside later",
        lambda world, path=_path: plant(f"{world.home}/{path}", world),  # type: ignore[misc]
        source=_source,
    )
