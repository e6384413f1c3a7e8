# The file as a whole: missing, empty, cut off, in the wrong encoding, too long.

from __future__ import annotations

import pickle
from hashlib import sha256
from pathlib import Path

import pytest

from tests.config.written import EXAMPLES, GOOD, loaded, said
from tidegate.config import load
from tidegate.errors import ConfigError, Problem

EMPTY = "policy.yaml:1: the file is empty, and no rules would mean no limits; begin with version: 1"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", EMPTY),
        ("# no rules yet\n", EMPTY),
        ("---\n", EMPTY),
        ("null\n", EMPTY),
        ("[]\n", "policy.yaml:1: the file holds an empty list; it is a table that begins with version: 1"),
        ("\n- a\n", "policy.yaml:2: the file holds a list; it is a table that begins with version: 1"),
        ("rules\n", 'policy.yaml:1: the file holds "rules"; it is a table that begins with version: 1'),
        ("5\n", "policy.yaml:1: the file holds 5; it is a table that begins with version: 1"),
    ],
)
def test_a_file_that_says_nothing_is_an_error(tmp_path: Path, text: str, line: str):
    """C163: an empty file, and one of another shape, is never "no limits"."""
    assert said(tmp_path, text) == [line]


def test_a_missing_file_is_named(tmp_path: Path):
    """The path is shown as it was given."""
    with pytest.raises(ConfigError, match=r"^no/such\.yaml: there is no such file; check the path$"):
        load("no/such.yaml")
    with pytest.raises(ConfigError, match="there is no such file"):
        load(tmp_path / "no.yaml")


def test_a_directory_is_refused(tmp_path: Path):
    """C162: a directory of files is not offered; the message says so."""
    (tmp_path / "a.yaml").write_text(GOOD)

    with pytest.raises(ConfigError) as caught:
        load(tmp_path)
    assert str(caught.value) == (
        f"{tmp_path}: this is a directory; name one file. All rules of a policy stand in one file"
    )


def test_a_link_that_leads_round_is_a_config_error(tmp_path: Path):
    """Whatever the system says of a file is told as a ConfigError."""
    (tmp_path / "a.yaml").symlink_to(tmp_path / "a.yaml")

    with pytest.raises(ConfigError, match="the file cannot be read: "):
        load(tmp_path / "a.yaml")


def test_a_path_that_no_file_can_have_is_a_config_error():
    """A path with a null character names nothing."""
    with pytest.raises(ConfigError, match="the file cannot be read: "):
        load("a\0b.yaml")


def test_a_file_that_is_not_utf_8_is_told_with_its_line(tmp_path: Path):
    """Latin-1 and UTF-16 are refused at the first byte that cannot be."""
    path = tmp_path / "policy.yaml"
    path.write_bytes(GOOD.encode() + "# größer\n".encode("latin-1"))
    with pytest.raises(
        ConfigError, match=r"policy\.yaml:6: the byte 0xF6 is not UTF-8; save the file as UTF-8"
    ):
        load(path)

    path.write_bytes(GOOD.encode("utf-16"))
    with pytest.raises(
        ConfigError, match=r"policy\.yaml:1: the byte 0xFF is not UTF-8; save the file as UTF-8"
    ):
        load(path)


def test_a_mark_at_the_beginning_and_the_line_ends_of_windows_are_no_error(tmp_path: Path):
    """An editor's byte order mark and carriage returns change nothing."""
    path = tmp_path / "policy.yaml"
    path.write_bytes(b"\xef\xbb\xbf" + GOOD.replace("\n", "\r\n").encode())

    assert load(path).policy == loaded(tmp_path, GOOD).policy


def test_a_file_has_a_length_at_most(tmp_path: Path):
    """More than a megabyte is refused before it is parsed."""
    assert said(tmp_path, GOOD + "#" * (1 << 20)) == [
        "policy.yaml: the file is longer than 1048576 bytes, and no more are read; shorten it"
    ]


def test_every_problem_is_reported_at_once_in_the_order_of_lines(tmp_path: Path):
    """C163: one look lists YAML faults, unknown keys, bad values and clashes together."""
    text = (
        "version: 1\n"
        "rules:\n"
        "  - name: a\n"
        "    limit: {algorithm: token_bucket, capacity: 010, rate: 5}\n"
        "    by: org\n"
        "    by: user\n"
        "  - name: b\n"
        "    limit:\n"
        "      algorithm: fixed_window\n"
        "      limit: 0\n"
        "      windw: 1 h\n"
        "  - name: a\n"
        "    mode: deny\n"
        "servers: {port: 1}\n"
    )

    assert said(tmp_path, text) == [
        (
            "policy.yaml:4: rules[0].limit.capacity: 010 is counted in tens or in eights, by its first zero; "
            'write 10 or 8, or "010" if text is meant'
        ),
        (
            "policy.yaml:4: rules[0].limit.rate: rate is 5; a rate needs a period; write for "
            "instance rate: 5/s or 5/min"
        ),
        "policy.yaml:6: rules[0]: the key 'by' is written twice, first on line 5; keep one of them",
        (
            "policy.yaml:10: rules.b.limit.limit: limit is 0; a limit must allow something. "
            "To block, give the rule mode: deny; to allow all, mode: bypass"
        ),
        "policy.yaml:11: rules.b.limit: unknown key 'windw'; did you mean 'window'?",
        'policy.yaml:12: rules[2]: the rule of line 3 is called "a" too; rename one of them',
        "policy.yaml:14: unknown key 'servers'; did you mean 'server'?",
    ]


def test_problems_carry_file_line_path_and_message(tmp_path: Path):
    """A program can read what a person reads; the error survives pickling."""
    with pytest.raises(ConfigError) as caught:
        loaded(tmp_path, GOOD.replace("5/s", "5"))

    (problem,) = caught.value.problems
    message = "rate is 5; a rate needs a period; write for instance rate: 5/s or 5/min"
    assert problem == Problem(f"{tmp_path}/policy.yaml", 4, "rules.organization.limit.rate", message)
    assert pickle.loads(pickle.dumps(caught.value)).problems == caught.value.problems


def test_a_problem_in_an_aliased_value_is_reported_where_it_stands(tmp_path: Path):
    """Two rules that share a bad limit by an alias point to the one line that must change."""
    text = (
        "version: 1\nrules:\n"
        "  - name: a\n    limit: &limit {algorithm: token_bucket, capacity: 0, rate: 5/s}\n"
        "  - name: b\n    limit: *limit\n"
    )

    assert [line[:34] for line in said(tmp_path, text)] == [
        "policy.yaml:4: rules.a.limit.capac",
        "policy.yaml:4: rules.b.limit.capac",
    ]


def test_a_flood_of_problems_is_cut(tmp_path: Path):
    """At most a hundred problems are listed, and the rest is counted."""
    text = "version: 1\nrules:\n" + "  - {}\n" * 150
    lines = said(tmp_path, text)

    assert len(lines) == 101
    assert lines[-1] == "policy.yaml: 50 more problems; correct these first"


def test_names_in_paths_are_quoted_where_they_need_it(tmp_path: Path):
    """Rules go by their names, whatever these contain; by their number where a name is long or not unique."""
    rule = "  - name: {}\n    limit: 5/s\n"
    text = "version: 1\nrules:\n" + rule.format("per address") + rule.format("x" * 80) + rule.format("a-b")

    assert [line.split(": ")[1] for line in said(tmp_path, text)] == [
        'rules["per address"].limit',
        "rules[1].limit",
        "rules.a-b.limit",
    ]


def test_the_source_tells_which_file_it_was(tmp_path: Path):
    """Path as given and digest of the bytes, so that a running server can say what it runs."""
    config = loaded(tmp_path, GOOD)

    assert config.source.file == str(tmp_path / "policy.yaml")
    assert config.source.digest == sha256(GOOD.encode()).hexdigest()


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.yaml")), ids=lambda path: path.stem)
def test_a_file_cut_off_is_an_error_or_a_doubt(tmp_path: Path, path: Path):
    """C163: wherever a file ends too early inside a line, it is refused or at least doubted."""
    env = {"TIDEGATE_PORT": "1", "TIDEGATE_TOKEN": "t"}
    whole = path.read_text()
    wanting = []
    for end in range(1, len(whole), 11):
        part = whole[:end]
        if part.endswith("\n"):
            continue
        try:
            if not loaded(tmp_path, part, env).warnings:
                wanting.append(part[-40:])
        except ConfigError:
            pass

    assert wanting == []
