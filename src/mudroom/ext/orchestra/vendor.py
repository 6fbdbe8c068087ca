"""Imports of a vendor's package, which the user has."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from mudroom.api import NotInstalled


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
