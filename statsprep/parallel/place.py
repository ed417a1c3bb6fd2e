"""Workers on other hosts stand where the driver stands: same working folder, same recipe to import."""

import logging
import os
import sys
import sysconfig
from typing import Any

from distributed import WorkerPlugin

logger = logging.getLogger(__name__)

_INSTALLED = ("site-packages", "dist-packages", ".zip")


class SamePlace(WorkerPlugin):  # type: ignore[misc]
    """Gives each worker the driver's working folder and, first in its search path, the recipe's folders.

    Installed packages stay the worker's own, for its Python may be another one.
    """

    name = "statsprep-same-place"

    def __init__(self) -> None:
        own = {sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib")}
        entries = [os.path.abspath(entry) for entry in sys.path]
        self._folder = os.getcwd()
        self._path = [
            entry
            for entry in entries
            if not any(mark in entry for mark in _INSTALLED) and not entry.startswith(tuple(own))
        ]

    def setup(self, worker: Any) -> None:
        try:
            os.chdir(self._folder)
        except OSError as error:
            logger.warning("%s: %s; relative paths will not be found", self._folder, error.strerror)
        sys.path[:] = [*self._path, *(entry for entry in sys.path if entry not in self._path)]
