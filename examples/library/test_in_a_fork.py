"""The pytest plugin of mudroom: ``mudroom`` is a fork of the project at pytest's root, and each test has its own.

pip install mudroom pytest && pytest test_in_a_fork.py
"""

from mudroom import ForkHandle


def test_a_script_removes_only_what_it_should(mudroom: ForkHandle) -> None:
    mudroom.write("build/out.o", b"\0")
    result = mudroom.run("rm -rf build && ls", check=True)
    assert "build" not in result.stdout
    assert result.changes.paths == []


def test_another_test_does_not_see_it(mudroom: ForkHandle) -> None:
    assert not mudroom.exists("build")
    mudroom.run("echo x > left-behind")
