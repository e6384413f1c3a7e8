"""Takes a changed file while running: whole, or not at all.

A reload reads and checks the whole file first. Only a good one is handed on, by one call of `apply`; a bad
one leaves the configuration in force as it is, and says why. Nothing here knows of signals: a server
calls `reload` from an ordinary thread or task when one has come.
"""

from __future__ import annotations

import logging
import os
import threading
from typing import TYPE_CHECKING, Final

from tidegate.config.load import Config, load
from tidegate.errors import ConfigError, Problem, TidegateError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_log: Final = logging.getLogger("tidegate.config")


class Reloader:
    """Keeps a configuration in force and replaces it by what the file says, when asked to.

    `apply(config)` puts a configuration in force for everybody at once, or raises and changes nothing;
    calls of it never overlap. `in_force` is what has been applied already, None if nothing has.
    `env` stands in for the environment.

    Safe to use from several threads. `config` and `last_error` may be read at any time, without waiting.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        apply: Callable[[Config], object],
        *,
        in_force: Config | None = None,
        env: Mapping[str, str] | None = None,
    ) -> None:
        self.path = os.fspath(path)
        self._apply = apply
        self._env = env
        self._lock = threading.Lock()
        self._held_by: int | None = None
        self._state: tuple[Config | None, Exception | None] = (in_force, None)

    @property
    def config(self) -> Config | None:
        """The configuration in force; None before the first that was good."""
        return self._state[0]

    @property
    def last_error(self) -> Exception | None:
        """Why the last reload changed nothing; None if it succeeded."""
        return self._state[1]

    def reload(self) -> Exception | None:
        """Put the file's configuration in force, or leave everything as it is and return the reason.

        A bad file is a ConfigError; whatever `apply` raises is returned as it is. The reason is logged once
        and kept as `last_error`. Calls from several threads take turns, so that the file's newest content
        wins.

        Raises:
            RuntimeError: called from within `apply`, or from a signal handler that interrupted a reload.
        """
        if self._held_by == threading.get_ident():
            raise RuntimeError("a reload cannot begin inside another; let a signal handler only ask for one")
        with self._lock:
            self._held_by = threading.get_ident()
            try:
                return self._reload()
            finally:
                self._held_by = None

    def _reload(self) -> Exception | None:
        before = self.config
        try:
            config = load(self.path, env=self._env)
            if before is not None:
                _refuse_half_written(before, config)
                _refuse_restart(before, config)
            self._apply(config)
        except TidegateError as error:
            self._state = (before, error)
            _log.error("%s is not taken, the configuration before it stays in force:\n%s", self.path, error)
            return error
        except Exception as error:  # noqa: BLE001  # whatever it is, what was in force stays in force
            self._state = (before, error)
            _log.exception("%s could not be put in force, the configuration before it stays", self.path)
            return error
        self._state = (config, None)
        for warning in config.warnings:
            _log.warning("%s", warning)
        _log.info("%s is in force: %d rules", self.path, len(config.policy))
        return None


def _refuse_half_written(before: Config, after: Config) -> None:
    """A file that lost its final line break was probably cut while it was being written."""
    if before.source.ends_with_newline and not after.source.ends_with_newline:
        message = "the file ends without a line break and may be half written; end it with one"
        raise ConfigError([Problem(after.source.file, None, "", message)])


def _refuse_restart(before: Config, after: Config) -> None:
    """What is opened at the start cannot change later, and a file is not applied in part."""
    changed = {
        "store": (before.store, after.store),
        "server.host": (before.server.host, after.server.host),
        "server.port": (before.server.port, after.server.port),
        "server.workers": (before.server.workers, after.server.workers),
    }
    problems = [
        Problem(
            after.source.file,
            None,
            path,
            f"{path} has changed, which needs a restart; nothing of the file is applied",
        )
        for path, (old, new) in changed.items()
        if old != new
    ]
    if problems:
        raise ConfigError(problems)
