"""Imports of a vendor's package, which the user has."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from mudroom.api import NotInstalled
from mudroom.errors import FileError


class VendorMissing(NotInstalled, ImportError):
    """The vendor's package is absent, or too old or too new for the module."""


@contextmanager
def vendor(package: str) -> Iterator[None]:
    """Raise VendorMissing if an import in the block fails."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise VendorMissing(
            f"this module of mudroom needs the package {package}, which is not installed ({error})",
            f"pip install {package}",
        ) from error
    except ImportError as error:
        raise VendorMissing(
            f"this module of mudroom does not fit the installed {package}: {error}", f"pip install --upgrade {package}"
        ) from error


@contextmanager
def translated(kinds: tuple[tuple[type[OSError], Callable[[str], Exception]], ...]) -> Iterator[None]:
    """Raise an error of a file as the first of the vendor's exceptions whose kind it is."""
    try:
        yield
    except FileError as error:
        raise next(vendors for kind, vendors in kinds if isinstance(error, kind))(str(error)) from error
