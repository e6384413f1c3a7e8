"""What is in the database: the statements that are asked, and the scripts that make and upgrade the schema.

The tables change by steps, one for each version, which are carried out in order and never edited afterwards.
The functions are made anew by every `init`, in the same transaction.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from zlib import crc32

from tidegate.stores.postgres.driver import Statement
from tidegate.stores.postgres.wire import VERSION

STEPS = ("schema.sql",)
"""What brings the tables from version 0 (nothing) to 1, from 1 to 2, and so on."""
FUNCTIONS = (
    *("level.sql", "windows.sql", "log.sql", "law.sql", "carry.sql", "rows.sql", "decide.sql", "one.sql"),
    *("adjust.sql", "forget.sql", "sweep.sql", "browse.sql"),
)

assert len(STEPS) == VERSION

_BYTEAS, _BIGINTS, _TEXTS = 1001, 1016, 1009
_CALL = (_BYTEAS, _BYTEAS, _BIGINTS, _TEXTS, _BIGINTS)
_INT, _BIGINT, _BYTEA = 23, 20, 17


def quoted(name: str) -> str:
    """A name as it stands in SQL, whatever it is."""
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """A text as it stands in SQL, whatever it is."""
    return "E'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


@cache
def statements(schema: str) -> dict[str, Statement]:
    """The statements that call the functions of a schema, by their names."""
    inside = quoted(schema)

    def call(name: str, types: tuple[int, ...], *, select: str = "SELECT ") -> Statement:
        places = ", ".join(f"${number}" for number in range(1, len(types) + 1))
        text = f"{select}{inside}.{name}({places})".encode()
        return Statement(text, types, b"tidegate_%b_%08x" % (name.encode(), crc32(text)))

    return {
        "decide": call("decide", _CALL),
        "take_one": call("take_one", (_BIGINT, _BYTEA, _BYTEA, *[_BIGINT] * 5)),
        "decide_named": call("decide_named", (*_CALL, _BYTEAS)),
        "adjust": call("adjust", (*_CALL, _BYTEAS)),
        "forget": call("forget", (*_CALL[:3], _BYTEAS)),
        "sweep": call("sweep", (_INT,)),
        "listed": call("listed", (_BYTEA, _BYTEA, _BYTEA, _INT), select="SELECT * FROM "),
        "shown": call("shown", (_BYTEA, _BYTEA), select="SELECT * FROM "),
        "facts": call("facts", (), select="SELECT * FROM "),
    }


FOR_SERVICES = ("decide", "decide_named", "take_one", "adjust", "sweep", "facts")
"""The functions that whoever decides must be granted. None of them takes away what still counts."""

FACTS = (
    *("server_version", "server_version_num", "is_standby", "read_only", "isolation", "now_us", "version"),
    *("synchronous_commit", "fsync", "full_page_writes", "role", "may_execute", "may_write"),
)


def facts_statement(schema: str) -> Statement:
    """What can be told of a server whatever is in it, named as FACTS, all as text."""
    inside = f"JOIN pg_catalog.pg_namespace n ON n.nspname = {literal(schema)} AND n.oid ="
    functions = f"FROM pg_catalog.pg_proc p {inside} p.pronamespace AND p.proname"
    settings = [f"current_setting('{name}')" for name in ("server_version", "server_version_num")]
    commits = [f"current_setting('{name}')" for name in ("synchronous_commit", "fsync", "full_page_writes")]
    columns = [
        *settings,
        "pg_is_in_recovery()::text",
        "current_setting('transaction_read_only')",
        "current_setting('default_transaction_isolation')",
        "((extract(epoch FROM clock_timestamp()) * 1000000)::bigint)::text",
        f"(SELECT substring(p.prosrc FROM '[0-9]+') {functions} = 'version_number')",
        *commits,
        "current_user::text",
        "(SELECT bool_and(has_schema_privilege(n.oid, 'USAGE') "
        f"AND has_function_privilege(p.oid, 'EXECUTE'))::text {functions} "
        f"IN ({', '.join(literal(name) for name in FOR_SERVICES)}))",
        "(SELECT has_table_privilege(c.oid, 'UPDATE')::text "
        f"FROM pg_catalog.pg_class c {inside} c.relnamespace AND c.relname = 'state')",
    ]
    return Statement(f"SELECT {', '.join(columns)}".encode())


def version_script(schema: str) -> bytes:
    """Asks which version is present (no row: none) and whether the tables are logged."""
    inside, named = quoted(schema), literal(f"{quoted(schema)}.state")
    logged = f"(SELECT relpersistence = 'p' FROM pg_catalog.pg_class WHERE oid = {named}::regclass)"
    return f"SELECT max(number), {logged} FROM {inside}.version".encode()


def init_script(schema: str, present: int, *, logged: bool | None) -> bytes:
    """What brings a schema from the version that is present to ours, as one transaction.

    `logged` says what becomes of the tables: LOGGED, UNLOGGED, or as they are (None). Fails with CHANGED if
    another version is present by now.
    """
    inside = quoted(schema)
    parts = [
        "BEGIN;",
        "SELECT pg_advisory_xact_lock(7522536872811);",  # one at a time: "tidegate" has no better number
        _CHECK.format(table=literal(f"{inside}.version"), inside=inside.replace("'", "''"), present=present),
        f"CREATE SCHEMA IF NOT EXISTS {inside};",
        f"SET LOCAL search_path TO {inside}, pg_temp;",
        *(source(name) for name in STEPS[present:]),
        f"INSERT INTO version (number) SELECT generate_series({present + 1}, {len(STEPS)});",
        "CREATE OR REPLACE FUNCTION version_number() RETURNS int "
        f"LANGUAGE sql IMMUTABLE AS 'SELECT {len(STEPS)}';",
        *(source(name) for name in FUNCTIONS),
    ]
    if logged is not None:
        how = "LOGGED" if logged else "UNLOGGED"
        parts += [f"ALTER TABLE {table} SET {how};" for table in ("state", "entries", "epoch")]
    parts += [f"REVOKE ALL ON ALL FUNCTIONS IN SCHEMA {inside} FROM PUBLIC;", "COMMIT;"]
    return "\n".join(parts).encode()


CHANGED = "TG004"
_CHECK = """
DO $check$
DECLARE
  number int := 0;
BEGIN
  IF to_regclass({table}) IS NOT NULL THEN
    EXECUTE 'SELECT max(number) FROM {inside}.version' INTO number;
  END IF;
  IF number <> {present} THEN
    RAISE EXCEPTION 'the schema has version % by now', number USING ERRCODE = 'TG004';
  END IF;
END
$check$;
"""


@cache
def source(name: str) -> str:
    """One of the files beside this one."""
    return (files("tidegate.stores.postgres") / name).read_text(encoding="utf-8")
