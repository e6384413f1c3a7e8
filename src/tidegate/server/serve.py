"""`tidegate serve`: from a configuration file to a running server, and what it says meanwhile.

What cannot work is told before anything listens: a bad file (exit code 2, all its problems listed), a store
that refuses us (exit code 2), an address that is taken (exit code 1). A store that is merely away is a
warning, for what is decided without it is the rules' own choice. Once it runs, a bad file changes nothing:
what was in force stays. Results go to standard output, complaints to standard error.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import sys
import threading
from contextlib import closing
from errno import EACCES, EADDRINUSE, EADDRNOTAVAIL
from functools import partial
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tidegate.config import Config, Reloader, load
from tidegate.errors import ConfigError, StoreError, StoreUnavailable, TidegateError
from tidegate.limiter import AsyncLimiter, Limiter
from tidegate.server.app import App
from tidegate.server.listen import Hangups, listen
from tidegate.server.settings import Settings
from tidegate.server.tryout import command
from tidegate.stores.inspection import first_look
from tidegate.stores.opening import kind_of, open_store

if TYPE_CHECKING:
    from collections.abc import Collection

FAILED: Final = 1
BAD_CONFIGURATION: Final = 2
EXAMPLE: Final = Path(__file__).with_name("example.yaml")
"""The policy that is served when no file is named."""

_BACKLOG = 2048
_LOOK_US = 1_000_000


def run(config_path: str | None, *, host: str | None = None, port: int | None = None) -> int:
    """Serve the configuration in the file, or the example without one, until stopped; the exit code.

    `host` and `port` go before those of the file. 0 after a stop by SIGTERM or SIGINT, 1 if the address
    cannot be had, 2 if the file cannot be used.
    """
    _log_to_stderr()
    hangups = Hangups()
    hangups.listen()
    try:
        config = load(config_path if config_path is not None else EXAMPLE)
        settings = Settings.of(config)
        doubt = _looked_at(config)
        limiter = limiter_of(config)
    except ConfigError as error:
        _complain(f"the configuration cannot be used:\n{error}")
        return BAD_CONFIGURATION
    except TidegateError as error:
        _complain(f"{config_path} cannot be put in force: {error}")
        return BAD_CONFIGURATION
    for warning in (*config.warnings, *([doubt] if doubt else [])):
        _complain(str(warning))
    try:
        at = _bound(host or config.server.host, config.server.port if port is None else port)
    except (OSError, UnicodeError) as error:
        limiter.close()
        _complain(_why_not(error, host or config.server.host, config.server.port if port is None else port))
        return FAILED
    with at:
        serving = _Serving(config_path, config, limiter, settings)
        hangups.reload = serving.reload_on_signal
        listen(serving.app, at, on_started=partial(serving.say_started, at), hangups=hangups)
    limiter.close()
    _say("tidegate has stopped.")
    return 0


def limiter_of(config: Config) -> Limiter | AsyncLimiter:
    """What decides for a configuration: awaited over a store on the network, so that nobody waits for it."""
    kind = kind_of(config.store.address)
    face = Limiter if kind is None or kind.maker is None else AsyncLimiter
    return face(
        config.policy,
        store=config.store_url,
        on_outage=config.store.on_outage,
        workers=config.server.workers,
    )


def _looked_at(config: Config) -> str | None:
    """Look once whether the store can be used: what is to be said of it; None if all is well.

    Raises StoreError for what waiting does not mend. Blocks for a second or two at most.
    """
    kind = kind_of(config.store.address)
    if kind is None or kind.maker is None:
        return None
    strict = any(rule.strict and rule.limit is not None for rule in config.policy)
    log, here = logging.getLogger("tidegate.store"), threading.get_ident()

    def is_of_others(record: logging.LogRecord) -> bool:
        return record.thread != here  # what the log would say of an outage is said by us

    log.addFilter(is_of_others)
    try:
        with closing(open_store(config.store_url)) as store:
            said = first_look(store, strict=strict, within_us=_LOOK_US)
    except StoreUnavailable as error:
        said = f"{config.store.shown} gives no usable answer ({error.cause})"  # the words of others come last
        return f"{said}; serving begins, and outage rules decide until it is back: {error}"
    except StoreError as error:
        raise StoreError(f"the store {config.store.shown} cannot be used: {error}") from error
    finally:
        log.removeFilter(is_of_others)
    return said and f"{config.store.shown} {said}"


class _Serving:
    """A running server: the application, the file behind it, and what is said of them."""

    def __init__(
        self, path: str | None, config: Config, limiter: Limiter | AsyncLimiter, settings: Settings
    ) -> None:
        self._config = config
        self._settings = settings
        self._reloader = None if path is None else Reloader(path, self._apply, in_force=config)
        self.app = App(limiter, settings, reload=None if path is None else self._reload)

    def _apply(self, config: Config) -> None:
        """Called in a worker thread, with a configuration that is valid as a whole."""
        settings = Settings.of(config)
        doubt = _looked_at(config)
        if doubt:
            _complain(doubt)
        done = asyncio.run_coroutine_threadsafe(self._put_in_force(config, settings), self._loop)
        done.result()

    async def _put_in_force(self, config: Config, settings: Settings) -> None:
        self.app.put_in_force(config.policy, settings)

    async def _reload(self) -> Exception | None:
        assert self._reloader is not None
        self._loop = asyncio.get_running_loop()
        return await asyncio.to_thread(self._reloader.reload)

    async def reload_on_signal(self) -> None:
        """Read the file again; what comes of it is logged by the reloader."""
        if self._reloader is None:
            _complain("SIGHUP: the example is being served, and there is no file to read again.")
            return
        self.app.reloaded(await self._reload())

    def say_started(self, at: socket.socket) -> None:
        """Say where the server is, and how to see it refuse."""
        host, port = at.getsockname()[:2]
        base = f"http://{_in_url(host)}:{port}"
        reached = base if not _is_any(host) else f"http://127.0.0.1:{port}"
        warning = exposure(host, self._config.server.trusted_proxies)
        if warning:
            _complain(warning)
        rules = len(self._config.policy)
        source = "the built-in example" if self._reloader is None else self._reloader.path
        tryout = command(self._config.policy, self._settings, reached)
        _say(
            f"tidegate serves {source} ({rules} rule{'s' if rules != 1 else ''}) on {base}\n"
            f"  open     {reached}/" + (f"\n  try      {tryout}" if tryout else "")
        )


def exposure(host: str, trusted_proxies: Collection[str]) -> str | None:
    """What is risky about listening on this address; None for what only this machine reaches."""
    if _is_loopback(host) or trusted_proxies:
        return None
    return (
        f"{host} can be reached from other machines, and server.trusted_proxies is empty: anybody there can "
        "ask and use up budgets, and a gateway is taken for the client. List your gateways, or listen on "
        "127.0.0.1."
    )


def _bound(host: str, port: int) -> socket.socket:
    """A socket that has the address. Raises OSError."""
    family, kind, protocol, _, address = socket.getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    at = socket.socket(family, kind, protocol)
    try:
        if os.name == "posix":  # elsewhere this option lets two servers have one address
            at.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        at.bind(address)
        at.listen(_BACKLOG)
        at.setblocking(False)
    except BaseException:
        at.close()
        raise
    return at


def _why_not(error: OSError | UnicodeError, host: str, port: int) -> str:
    if isinstance(error, UnicodeError):
        return f"the host {host!r} is no name of a host"
    if isinstance(error, socket.gaierror):
        return f"the host {host!r} is not known here: {error.strerror}"
    other = port + 1 if port < 65_535 else port - 1
    reasons = {
        EADDRINUSE: f"port {port} on {host} is taken; stop what listens there, or choose: --port {other}",
        EACCES: f"port {port} needs more rights; choose one above 1023: --port 8080",
        EADDRNOTAVAIL: f"{host} is no address of this machine; listen on 127.0.0.1 or on one that it has",
    }
    return reasons.get(error.errno or 0, f"{host}:{port} cannot be had: {error.strerror or error}")


def _is_loopback(host: str) -> bool:
    return ip_address(host.partition("%")[0]).is_loopback


def _is_any(host: str) -> bool:
    return ip_address(host.partition("%")[0]).is_unspecified


def _in_url(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _log_to_stderr() -> None:
    """Show the log of tidegate where the command's complaints go, unless somebody has set it up otherwise."""
    root = logging.getLogger()
    if not root.handlers:
        logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="tidegate: %(message)s")
        logging.getLogger("tidegate").setLevel(logging.INFO)


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def _complain(text: str) -> None:
    sys.stderr.write(f"tidegate: {text}\n")
    sys.stderr.flush()
