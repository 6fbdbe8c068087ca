"""Each test that ``dev/wine`` leaves out is one, and each other module can be imported on Windows."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from left_out import TESTS, read_table
from tiers import each


def test_each_name_is_one_of_a_test() -> None:
    for name in read_table():
        module, _colons, function = name.partition("::")
        tree = ast.parse((TESTS / module).read_text())
        found = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
        assert function in found if function else found, name


LACKING = {
    *("O_CLOEXEC", "O_DIRECTORY", "O_NOFOLLOW", "O_NONBLOCK", "O_PATH", "chown", "environb", "fork", "getegid"),
    *("geteuid", "getgid", "getgroups", "getuid", "getxattr", "lchown", "listxattr", "mkfifo", "mknod", "pidfd_open"),
    *("posix_spawn", "setxattr", "statvfs", "sysconf", "uname"),
}
"""Names of ``os`` that Windows lacks."""
MODULES = {"fcntl", "grp", "pty", "pwd", "resource", "termios"}


def at_import(node: ast.AST) -> Iterator[ast.AST]:
    """Return the nodes that are evaluated when the module is imported, but for those behind a condition."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)):
            for expression in (*child.decorator_list, *child.args.defaults):
                yield from (expression, *at_import(expression))
        elif not isinstance(child, (ast.If, ast.Lambda)):
            yield from (child, *at_import(child))


def lacking(source: str) -> list[str]:
    """Return what a module takes at its import from a system that is no Windows."""
    names = []
    for node in at_import(ast.parse(source)):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "os":
            names += [f"os.{node.attr}"] if node.attr in LACKING else []
        elif isinstance(node, ast.Import):
            names += [alias.name for alias in node.names if alias.name in MODULES]
        elif isinstance(node, ast.ImportFrom) and node.module in MODULES:
            names.append(node.module)
    return names


@each(
    ("source", "names"),
    [
        ("import os\nHERE = 'here' if os.geteuid() == 0 else '.'", ["os.geteuid"]),
        ("import os\n@mark(os.getuid())\ndef test(): os.fork()", ["os.getuid"]),
        ("import os, sys\nif sys.platform != 'win32':\n    os.fork()\nelse:\n    pass", []),
        ("import pwd\nfrom resource import setrlimit\nclass A:\n    pass", ["pwd", "resource"]),
    ],
)
def test_such_names_are_seen(source: str, names: list[str]) -> None:
    assert lacking(source) == names


def test_each_other_module_can_be_imported_on_windows() -> None:
    """One that cannot ends the whole run of ``dev/wine --all`` before its first test."""
    left = read_table()
    modules = {
        path.relative_to(TESTS).as_posix(): lacking(path.read_text())
        for room in ("stage", "vault", "ext/windows")
        for path in (TESTS / room).rglob("test_*.py")
    }
    assert {name: names for name, names in modules.items() if names and name not in left} == {}
