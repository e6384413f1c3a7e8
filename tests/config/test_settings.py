# The store, the server, the HTTP fields, the attributes, and what of it stands in the environment.

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.config.written import GOOD, fits, loaded, said, with_settings

if TYPE_CHECKING:
    from pathlib import Path

ENV = {
    "STORE": "memory://?max_keys=7",
    "PORT": "9000",
    "HOST": "::1",
    "TOKEN": "correct-horse",
    "EMPTY": "",
    "SECRET": "hunter2 is secret",
}


def test_what_is_left_out_has_a_default(tmp_path: Path):
    """A file of rules alone is served on loopback from memory, trusts no proxy and shows draft 10."""
    config = loaded(tmp_path, GOOD)

    assert (config.store_url, config.attributes) == ("memory://", {})
    assert (config.server.host, config.server.port, config.server.token) == ("127.0.0.1", 8080, None)
    assert (config.server.trusted_proxies, config.server.ipv4_prefix, config.server.ipv6_prefix) == (
        (),
        32,
        64,
    )
    assert (config.http.fields, config.http.legacy) == ("draft-10", "off")


def test_addresses_and_the_token_come_from_the_environment(tmp_path: Path):
    """`{env: NAME}` gives host, port and token; the token is in no repr."""
    text = with_settings("server: {host: {env: HOST}, port: {env: PORT}, token: {env: TOKEN}}")
    config = loaded(tmp_path, text, ENV)

    assert (config.server.host, config.server.port, config.server.token) == ("::1", 9000, "correct-horse")
    assert "correct-horse" not in repr(config)


def test_without_env_the_environment_of_the_process_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """`load(path)` looks at os.environ when it is called."""
    from tidegate.config import load

    path = tmp_path / "policy.yaml"
    path.write_text(with_settings("server: {port: {env: TIDEGATE_TEST_PORT}}"))
    monkeypatch.setenv("TIDEGATE_TEST_PORT", "1234")

    assert load(path).server.port == 1234


ATTRIBUTES = [
    ("{header: X-Org}", {"header": "X-Org"}),
    ("{cookie: session, digest: true}", {"cookie": "session", "digest": True}),
    ("{query: tenant, digest: false}", {"query": "tenant"}),
    ("{path_segment: 2}", {"path_segment": 2}),
    ("{host_label: 1}", {"host_label": 1}),
    ('{templates: ["GET /users/{id}", /files/*]}', {"templates": ("GET /users/{id}", "/files/*")}),
    ("{value: europe}", {"value": "europe"}),
]


@pytest.mark.parametrize(("written", "source"), ATTRIBUTES)
def test_an_attribute_has_one_source(tmp_path: Path, written: str, source: dict[str, object]):
    """Each source of an attribute is handed on as it is written."""
    config = loaded(tmp_path, with_settings(f"attributes: {{org: {written}}}"))

    assert config.attributes == {"org": source}


PROBLEMS = [
    ("server: {workers: 0}", "server.workers: workers is 0; write a whole number from 1 to 10000"),
    (
        "server: {host: 127.0.0.1:8080}",
        (
            'server.host: host is "127.0.0.1:8080"; write a host name or an address, '
            "and the port under port: host: 127.0.0.1"
        ),
    ),
    (
        "server: {host: {env: SECRET}}",
        (
            "server.host: host is read from the environment variable SECRET, which holds no host name "
            "and no address"
        ),
    ),
    (
        "server: {token: {env: yes}}",
        'server.token.env: yes means true to some YAML readers and is text to others; write true, or "yes"',
    ),
    (
        "server: {token: 010}",
        (
            "server.token: 010 is counted in tens or in eights, by its first zero; write 10 or 8, "
            'or "010" if text is meant'
        ),
    ),
    (
        "attributes: {org: {templates: /users}}",
        (
            'attributes.org.templates: templates is "/users"; write a list of route templates, '
            'for instance ["GET /users/{id}"]'
        ),
    ),
    (
        "server: {port: 80800}",
        (
            "server.port: port is 80800; write a whole number from 0 to 65535, for instance port: "
            "8080, or {env: PORT}"
        ),
    ),
    (
        'server: {port: "8080"}',
        (
            'server.port: port is "8080"; write a whole number from 0 to 65535, for instance port: '
            "8080, or {env: PORT}"
        ),
    ),
    (
        "server: {port: {env: SECRET}}",
        "server.port: port is read from the environment variable SECRET, which holds no port from 0 to 65535",
    ),
    (
        "server: {token: hunter2}",
        "server.token: token is a secret and does not belong into a file; write token: {env: TIDEGATE_TOKEN}",
    ),
    (
        "server: {token: {env: NOPE}}",
        (
            "server.token: token is read from the environment variable NOPE, which is not set; set "
            "it and start again"
        ),
    ),
    (
        "server: {token: {env: SECRET}}",
        (
            "server.token: token is read from the environment variable SECRET, which holds characters that "
            "no header can carry; use letters, digits and signs"
        ),
    ),
    (
        "server: {trusted_proxies: 10.0.0.0/8}",
        (
            'server.trusted_proxies: trusted_proxies is "10.0.0.0/8"; write a list, for instance '
            "trusted_proxies: [10.0.0.0/8]"
        ),
    ),
    (
        "server: {trusted_proxies: [10.0.0.1/8]}",
        (
            'server.trusted_proxies[0]: an entry of trusted_proxies is "10.0.0.1/8"; '
            "its address has bits beyond the prefix; write 10.0.0.0/8"
        ),
    ),
    (
        "server: {trusted_proxies: [unix, 10.0.0/8]}",
        (
            'server.trusted_proxies[1]: an entry of trusted_proxies is "10.0.0/8"; '
            "write an address or a range of addresses, for instance 10.0.0.0/8, or unix"
        ),
    ),
    (
        "server: {trusted_proxies: [0.0.0.0/0]}",
        (
            'server.trusted_proxies[0]: an entry of trusted_proxies is "0.0.0.0/0"; '
            "who trusts everybody lets every client choose its address; write your proxies' addresses"
        ),
    ),
    (
        "server: {ipv6_prefix: 129}",
        "server.ipv6_prefix: ipv6_prefix is 129; write a whole number from 1 to 128",
    ),
    (
        "server: {client_header: X Y}",
        (
            'server.client_header: client_header is "X Y"; that is no name of a header; '
            "write it without colon and spaces, for instance X-Org"
        ),
    ),
    ("server: {address: 127.0.0.1}", "server: unknown key 'address'; did you mean 'host'?"),
    ("server: 8080", "server: server is 8080; write for instance server: {port: 8080}"),
    ("server:", "server: server is empty; write for instance server: {port: 8080}"),
    ("http: {fields: draft-9}", 'http.fields: fields is "draft-9"; did you mean draft-10?'),
    ("http: {legacy: true}", "http.legacy: legacy is true; write off, seconds or date"),
    (
        "http: {fields: draft-03, legacy: date}",
        "http.legacy: draft-03 writes X-RateLimit-* itself; remove legacy, or take another draft",
    ),
    (
        "attributes: [org]",
        "attributes: attributes is a list; write for instance attributes: {org: {header: X-Org}}",
    ),
    (
        "attributes: {org: X-Org}",
        'attributes.org: org is "X-Org"; write where the attribute comes from, for instance {header: X-Org}',
    ),
    ("attributes: {org: {headr: X-Org}}", "attributes.org: unknown key 'headr'; did you mean 'header'?"),
    (
        "attributes: {org: {header: X-Org, cookie: a}}",
        (
            "attributes.org: the attribute has 2 sources (header, cookie); write exactly one of header, "
            "cookie, query, path_segment, host_label, templates or value: {header: X-Org}"
        ),
    ),
    (
        "attributes: {org: {digest: true}}",
        (
            "attributes.org: the attribute has no source; write exactly one of header, "
            "cookie, query, path_segment, host_label, templates or value: {header: X-Org}"
        ),
    ),
    (
        "attributes: {org: {path_segment: 0}}",
        "attributes.org.path_segment: path_segment is 0; write a whole number from 1 to 32",
    ),
    (
        'attributes: {org: {templates: [/ok, "/x{"]}}',
        "attributes.org.templates[1]: route '/x{' has a brace that is no placeholder…",
    ),
    (
        "attributes: {org: {header: {env: X}}}",
        (
            "attributes.org.header: header is {env: X}; the environment is read for addresses and "
            "secrets only. Here text is wanted"
        ),
    ),
]


@pytest.mark.parametrize(("line", "problem"), PROBLEMS)
def test_a_bad_setting_says_what_to_write(tmp_path: Path, line: str, problem: str):
    """C163: a setting that cannot be used is an error with its line; secrets are never shown."""
    (message,) = said(tmp_path, with_settings(line), ENV)

    assert fits(message, f"policy.yaml:6: {problem}")
    assert "hunter2" not in message


@pytest.mark.parametrize(
    ("version", "problem"),
    [
        ("", "1: version is missing; write for instance version: 1"),
        ("version: 2\n", "1: version: version is 2; this release reads version: 1, so install a newer one"),
        ('version: "1"\n', '1: version: version is "1"; write version: 1'),
        ("version: 1.0\n", "1: version: version is 1.0; write version: 1"),
        ("version: true\n", "1: version: version is true; write version: 1"),
    ],
)
def test_the_version_is_stated(tmp_path: Path, version: str, problem: str):
    """A file without its version, or of another one, is refused."""
    assert said(tmp_path, GOOD.replace("version: 1\n", version)) == [f"policy.yaml:{problem}"]


def test_an_undeclared_attribute_is_a_warning(tmp_path: Path):
    """Where attributes are declared, a rule that names another is doubted, and the nearest is named."""
    text = GOOD.replace("[org]", "[ogr, address]") + "attributes: {org: {header: X-Org}}\n"

    (warning,) = loaded(tmp_path, text).warnings
    assert str(warning) == (
        f"{tmp_path}/policy.yaml:5: rules.organization.by: "
        "the attribute 'ogr' is not declared under attributes; did you mean 'org'?"
    )


def test_a_missing_line_break_at_the_end_is_a_warning(tmp_path: Path):
    """C163: a file that may be half written is used at a first start, with a doubt."""
    (warning,) = loaded(tmp_path, GOOD.rstrip("\n")).warnings

    assert (warning.line, warning.message) == (
        5,
        "the file does not end with a line break; a half-written file may look so",
    )
