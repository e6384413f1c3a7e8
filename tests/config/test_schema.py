# The JSON Schema for editors, held against the loader.

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import jsonschema
import pytest
import yaml

from tests.config.test_limits import LIMITS, WINDOWS
from tests.config.test_settings import ATTRIBUTES
from tests.config.test_store_settings import NETWORK
from tests.config.written import EXAMPLES, GOOD, bucket, said, with_limit, with_rule, with_settings
from tidegate.config import json_schema
from tidegate.config.load import FileTable
from tidegate.config.tables import Table

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SCHEMA = json_schema()
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)


def accepts(text: str) -> bool:
    """Whether the schema accepts a file of this text, read as an editor reads it."""
    return bool(VALIDATOR.is_valid(yaml.safe_load(text)))


def test_the_schema_is_valid():
    """It is a schema of draft 2020-12, says so, and is plain JSON."""
    jsonschema.Draft202012Validator.check_schema(SCHEMA)

    assert SCHEMA["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert json.loads(json.dumps(SCHEMA)) == SCHEMA


def test_the_schema_does_not_change_by_itself():
    """Asked twice, the same is answered, and what a caller does to the first answer does not show."""
    first = json_schema()
    first["properties"].clear()

    assert json_schema() == SCHEMA


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.yaml")), ids=lambda path: path.stem)
def test_the_schema_accepts_the_examples(path: Path):
    """What is shipped as an example is valid to an editor."""
    VALIDATOR.validate(yaml.safe_load(path.read_text()))


@pytest.mark.parametrize(
    "text",
    [
        *(with_limit(written) for written, _ in LIMITS),
        *(with_settings(f"attributes: {{org: {written}}}") for written, _ in ATTRIBUTES),
        with_settings("store: {url: {env: STORE}, when_full: forget}"),
        with_settings("store: {env: STORE}"),
        *(with_settings(f"store: {store}") for store, _, _ in NETWORK if "env" not in store),
        with_settings("server: {workers: 4}"),
        with_rule("on_outage: reserve", "reserve: {share: 40%, nodes: 8, index: {env: NODE}}"),
        with_rule("on_outage: reserve", "reserve: {share: 0.4, nodes: 8, index: null}"),
        with_rule("on_outage: open", "outage_limit: {algorithm: token_bucket, capacity: 5, rate: 1/s}"),
        with_settings("server: {host: {env: HOST}, port: {env: PORT}, token: {env: TOKEN}}"),
        with_settings(
            "server: {trusted_proxies: [unix, 10.0.0.0/8], client_header: X-Real-IP, ipv4_prefix: 24}"
        ),
        with_settings("http: {fields: false, legacy: date}"),
        with_rule("match: {plan: [free, null], tier: 2}", "cost: 2.5", "mode: shadow", "carry: reset"),
        with_rule('cost: {"POST /exports": 5}', "max_debt: 0", "give_back: full", "strict: false"),
        GOOD.replace("[org]", "org"),
    ],
)
def test_the_schema_accepts_what_the_loader_accepts(tmp_path: Path, text: str):
    """An editor does not complain about a file that loads."""
    env = {"STORE": "memory://", "HOST": "localhost", "PORT": "1", "TOKEN": "t", "NODE": "1"}

    assert said(tmp_path, text, env) == []
    assert accepts(text)


@pytest.mark.parametrize(
    "text",
    [
        "{}",
        "version: 1\n",
        GOOD.replace("version: 1", "version: 2"),
        GOOD + "servers: {}\n",
        bucket(rate="5"),
        bucket(rate="[5/s]"),
        bucket(rate="10/"),
        bucket(rate="/minute"),
        bucket(capacity="0"),
        bucket(capacity="-1"),
        bucket(capacity='"20"'),
        with_limit("10/s"),
        with_limit("{algorithm: token_bucket, rate: 5/s}"),
        with_limit("{capacity: 20, rate: 5/s}"),
        with_limit("{algorithm: token_bucket, capasity: 20, rate: 5/s}"),
        with_limit("{algorithm: sliding_log, capacity: 20, rate: 5/s}"),
        *(with_limit(f"{{algorithm: fixed_window, limit: 5, {window}}}") for window, _ in WINDOWS[:4]),
        with_rule("mode: shadwo"),
        with_rule("cost: -1"),
        with_rule("cost: free"),
        with_rule("match: {plan: }"),
        with_rule("match: {plan: []}"),
        with_rule("capacity: 20"),
        with_rule("overrides: {acme: 5/s}"),
        with_rule("strict: maybe"),
        with_settings("store: 5"),
        with_settings("store: {max_keys: 5}"),
        with_settings("store: {url: redis://h, deadline: soon}"),
        with_settings("store: {url: redis://h, schema: 5}"),
        with_settings("store: {url: redis://h, on_outage: reserve}"),
        with_settings("server: {workers: 0}"),
        with_rule("on_outage: shut"),
        with_rule("on_outage: reserve", "reserve: {share: 40}"),
        with_rule("on_outage: reserve", "reserve: {share: 40, nodes: 8}"),
        with_rule("on_outage: open", "outage_limit: 5/s"),
        with_settings("server: {port: 80800}"),
        with_settings("server: {token: secret}"),
        with_settings("server: {port: {env: NAME, default: 5}}"),
        with_settings("http: {fields: draft-9}"),
        with_settings("attributes: {org: X-Org}"),
        with_settings("attributes: {org: {headr: X-Org}}"),
    ],
)
def test_the_schema_refuses_what_the_loader_refuses(tmp_path: Path, text: str):
    """Unknown keys, missing keys and values of the wrong form are marked in the editor already."""
    assert said(tmp_path, text) != []
    assert not accepts(text)


def tables(kind: type[Table] = Table) -> Iterator[type[Table]]:
    """Every table of the file."""
    for below in kind.__subclasses__():
        yield below
        yield from tables(below)


def test_every_key_is_described_with_an_example():
    """An editor shows what each key means, and a message can always say what to write."""
    bare = [
        f"{table.__name__}.{name}"
        for table in tables()
        for name, field in table.model_fields.items()
        if not field.description or not field.examples
    ]

    assert FileTable in tables()
    assert bare == []


def described(schema: Any) -> Iterator[dict[str, Any]]:
    """Every object of the schema that lists its properties."""
    if isinstance(schema, dict):
        if isinstance(schema.get("properties"), dict):
            yield schema
        for inner in schema.values():
            yield from described(inner)
    elif isinstance(schema, list):
        for inner in schema:
            yield from described(inner)


def test_every_table_is_closed():
    """No table of the schema lets an unknown key pass."""
    found = list(described(SCHEMA))

    assert len(found) > 10
    assert all(table["additionalProperties"] is False for table in found)
