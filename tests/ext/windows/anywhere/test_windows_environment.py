"""The environment of Windows in the form of the other platforms: pure, so tried on any."""

from __future__ import annotations

import pytest

from mudroom.errors import UsageError
from mudroom.ext.windows.environment import translate
from tiers import each

ANN = {"USERPROFILE": "C:\\Users\\ann", "LOCALAPPDATA": "D:\\local", "APPDATA": "C:\\Users\\ann\\roaming", "X": "ä"}


def test_directories_become_paths_as_they_are_kept_inside() -> None:
    found = translate(ANN)
    assert found[b"HOME"] == b"C:/Users/ann"
    assert found[b"MUDROOM_STATE"] == b"D:/local/mudroom"
    assert found[b"XDG_CONFIG_HOME"] == b"C:/Users/ann/roaming"
    assert found[b"X"] == "ä".encode()
    assert translate({**ANN, "MUDROOM_STATE": "E:\\s"})[b"MUDROOM_STATE"] == b"E:/s"
    assert translate({**ANN, "HOME": "/c/Users/ann"})[b"HOME"] == b"C:/Users/ann"  # of a POSIX shell
    assert translate({"USERPROFILE": "C:\\u"})[b"MUDROOM_STATE"] == b"C:/u/AppData/Local/mudroom"


@each(
    ("variables", "says"),
    [
        ({}, "USERPROFILE is not set"),
        ({"USERPROFILE": "C:ann"}, "USERPROFILE: C:ann: relative to the current directory of drive C"),
        ({**ANN, "MUDROOM_STATE": "\\\\server\\s"}, "MUDROOM_STATE: .*: a server or device"),
        ({**ANN, "APPDATA": "C:\\nul\\x"}, "APPDATA: .*names a device"),
    ],
)
def test_a_directory_that_is_no_path_of_a_drive_is_refused(variables: dict[str, str], says: str) -> None:
    with pytest.raises(UsageError, match=says) as told:
        translate(variables)
    assert "\n" not in told.value.message
