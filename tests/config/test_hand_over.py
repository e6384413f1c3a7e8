# What the file says is taken by the parts that it is meant for.

from __future__ import annotations

from pathlib import Path
from typing import get_args

import pytest

from tests.config.test_examples import ENV
from tests.config.test_settings import ATTRIBUTES
from tests.config.written import EXAMPLES, loaded, with_settings
from tidegate.config import load
from tidegate.config.load import BUILT_IN_ATTRIBUTES
from tidegate.config.settings import Draft, Legacy
from tidegate.http import fields
from tidegate.http.attributes import Attributes, Request
from tidegate.http.keys import ClientAddress

REQUEST = Request("GET", "/users/1", {"host": ["acme.example.org"]}, "203.0.113.7")


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.yaml")), ids=lambda path: path.stem)
def test_the_examples_read_requests(path: Path):
    """Attributes and server settings of each example make a reader of requests, and fields are written."""
    config = load(path, env=ENV)
    server = config.server
    client = ClientAddress(
        server.trusted_proxies, server.client_header, server.ipv4_prefix, server.ipv6_prefix
    )

    assert set(config.attributes) <= set(Attributes(config.attributes, client=client).of(REQUEST))
    assert fields.field_names(config.http.fields, config.http.legacy)


@pytest.mark.parametrize(("written", "source"), ATTRIBUTES)
def test_every_source_is_known_to_the_reader_of_requests(
    tmp_path: Path, written: str, source: dict[str, object]
):
    """No source passes the file's check and fails at a request."""
    config = loaded(tmp_path, with_settings(f"attributes: {{org: {written}}}"))

    assert "org" in Attributes(config.attributes).of(REQUEST)


def test_the_words_of_the_file_are_those_of_the_parts():
    """The forms of fields, and the attributes that every request has, are the same on both sides."""
    assert get_args(Draft) == get_args(fields.Draft)
    assert get_args(Legacy) == get_args(fields.Legacy)
    assert set(BUILT_IN_ATTRIBUTES) == set(Attributes().of(REQUEST))
