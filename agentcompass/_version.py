"""The version of this package, and those of packages that components wrap."""

from __future__ import annotations

__version__ = "0.1.0"


class InstalledVersion:
    """
    The ``version`` of a component that is as good as the package it wraps: results of another are not mixed.

    Args:
        package: Name of the distribution; an absent one has the version "none".
        revision: Counts the changes of the component itself.
    """

    def __init__(self, package: str, *, revision: int = 1) -> None:
        self._package = package
        self._revision = revision

    def __get__(self, instance: object, owner: type) -> str:
        from importlib.metadata import PackageNotFoundError, version

        try:
            found = version(self._package)
        except PackageNotFoundError:
            found = "none"
        return f"{self._revision}+{self._package}-{found}"
