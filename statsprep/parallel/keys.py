"""Keys of one run: who has none cannot talk to its scheduler or workers."""

import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from statsprep.errors import ConfigError
from statsprep.storage.atomic import write_text


def security_of(options: Mapping[str, Any]) -> Any:
    """What `security` and `protocol` among the options mean: fresh keys unless they turn encryption off.

    Raises:
        ConfigError: `security` is neither true nor false.
    """
    from distributed.security import Security

    given = options.get("security", not str(options.get("protocol") or "tls").startswith("tcp"))
    if given is None or given is False:
        return None
    if given is True:
        return Security.temporary()
    if isinstance(given, Security):
        return given
    raise ConfigError(f"parallel.options.security: got {given!r}; expected true or false")


class KeyFolder:
    """The keys as files that this user alone can read; they are removed with the cluster."""

    def __init__(self, security: Any, parent: str | Path) -> None:
        parent = os.path.expanduser(os.path.expandvars(parent))
        try:
            self._folder = Path(tempfile.mkdtemp(prefix=".tls-", dir=parent))
        except OSError as error:
            raise ConfigError(
                f"{parent}: no folder for the keys of this run can be made ({error.strerror}); expected "
                "one that this user can write to and all hosts see"
            ) from error
        self._security = security

    def files(self, role: str) -> dict[str, str]:
        """`ca_file`, `cert` and `key` of a role (scheduler, worker, client), each the path of a file."""
        found = {}
        for name, value in self._security.get_tls_config_for_role(role).items():
            if value and "\n" in value:
                path = self._folder / f"{role}-{name}.pem"
                write_text(path, value)
                found[name] = str(path)
            elif value and name != "ciphers":
                found[name] = value
        return found

    def remove(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)
