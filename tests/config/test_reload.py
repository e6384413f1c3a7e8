# Taking a changed file while running: whole, or not at all.

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Any

import pytest

from tests.config.written import GOOD
from tidegate import Limiter, TokenBucket
from tidegate.config import Config, Reloader, load
from tidegate.errors import ConfigError
from tidegate.testing import ManualClock

if TYPE_CHECKING:
    from pathlib import Path

BAD_FILES = [
    (
        "an unknown key",
        GOOD.replace("capacity", "capasity"),
        "policy.yaml:4: rules.organization.limit: unknown key",
    ),
    ("bad YAML", GOOD + "  - {\n", "policy.yaml:6: the file ends inside a table {...}"),
    (
        "an unknown unit",
        GOOD.replace("5/s", "5/horu"),
        "policy.yaml:4: rules.organization.limit.rate: rate is",
    ),
    (
        "a rule written twice",
        GOOD + GOOD.partition("rules:\n")[2],
        "policy.yaml:6: rules[1]: the rule of line 3",
    ),
    ("nothing", "", "policy.yaml:1: the file is empty"),
    ("half a file", GOOD[: GOOD.index("20")], "policy.yaml:4: the file ends inside a table {...}"),
    ("a file without its last line break", GOOD.rstrip(), "policy.yaml: the file ends without a line break"),
    ("another store", GOOD + "store: memory://?max_keys=5\n", "policy.yaml: store: store has changed"),
    (
        "another outage rule",
        GOOD + "store: {url: memory://, on_outage: open}\n",
        "policy.yaml: store: store has changed",
    ),
    (
        "other workers",
        GOOD + "server: {workers: 2}\n",
        "policy.yaml: server.workers: server.workers has changed",
    ),
    ("another port", GOOD + "server: {port: 1}\n", "policy.yaml: server.port: server.port has changed"),
]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "policy.yaml"
    path.write_text(GOOD)
    return path


def test_a_good_file_is_applied_by_one_call(path: Path):
    """The first reload of a reloader with nothing in force loads and applies the file, once."""
    applied: list[Config] = []
    reloader = Reloader(path, applied.append)

    assert reloader.config is None
    assert reloader.reload() is None
    assert applied == [reloader.config]
    assert applied[0].policy["organization"].limit == TokenBucket(20, "5/s")


@pytest.mark.parametrize(
    ("text", "line"), [case[1:] for case in BAD_FILES], ids=[case[0] for case in BAD_FILES]
)
def test_a_bad_file_leaves_the_last_good_configuration_in_force(
    path: Path, text: str, line: str, caplog: pytest.LogCaptureFixture
):
    """C163: nothing is applied; the error names file and place, is returned, kept and logged once."""
    applied: list[Config] = []
    before = load(path)
    reloader = Reloader(path, applied.append, in_force=before)
    path.write_text(text)
    with caplog.at_level(logging.INFO, "tidegate.config"):
        error = reloader.reload()

    assert (applied, reloader.config) == ([], before)
    assert isinstance(error, ConfigError)
    assert reloader.last_error is error
    assert line in str(error)
    assert [(record.levelname, line in record.getMessage()) for record in caplog.records] == [("ERROR", True)]


@pytest.mark.parametrize("text", [case[1] for case in BAD_FILES[:6]], ids=[case[0] for case in BAD_FILES[:6]])
def test_a_bad_file_is_a_failure_to_start(path: Path, text: str):
    """C163: with nothing in force a bad file is an error too, and never "no limits"."""
    path.write_text(text)
    reloader = Reloader(path, lambda config: pytest.fail(f"applied {config}"))

    assert isinstance(reloader.reload(), ConfigError)
    assert reloader.config is None
    with pytest.raises(ConfigError):
        load(path)


def test_a_file_that_never_ended_with_a_line_break_may_go_on_so(path: Path):
    """The missing line break is a sign of a half-written file only where there was one before."""
    path.write_text(GOOD.rstrip())
    reloader = Reloader(path, lambda config: None, in_force=load(path))
    path.write_text(GOOD.replace("20", "30").rstrip())

    assert reloader.reload() is None
    assert reloader.config is not None
    assert reloader.config.policy["organization"].limit == TokenBucket(30, "5/s")


def test_a_file_that_vanished_is_an_error_like_any_other(path: Path):
    """A deleted file does not lift the limits."""
    reloader = Reloader(path, lambda config: None, in_force=load(path))
    path.unlink()

    assert "there is no such file" in str(reloader.reload())
    assert reloader.config is not None


def test_a_corrected_file_is_taken_and_the_error_forgotten(path: Path, caplog: pytest.LogCaptureFixture):
    """After a mistake the next good file is in force, and `last_error` is None again."""
    applied: list[Config] = []
    reloader = Reloader(path, applied.append, in_force=load(path))
    path.write_text(GOOD.replace("5/s", "5"))
    assert reloader.reload() is not None
    caplog.clear()
    path.write_text(GOOD.replace("5/s", "7/s"))
    with caplog.at_level(logging.INFO, "tidegate.config"):
        assert reloader.reload() is None

    assert reloader.last_error is None
    assert [config.policy["organization"].limit for config in applied] == [TokenBucket(20, "7/s")]
    assert [record.getMessage() for record in caplog.records] == [f"{path} is in force: 1 rules"]


def test_what_cannot_be_applied_is_not_in_force(path: Path, caplog: pytest.LogCaptureFixture):
    """An exception of `apply` is returned and kept, and the configuration before it stays."""
    refusal = RuntimeError("the limiter is closed")

    def apply(config: Config) -> None:
        raise refusal

    before = load(path)
    reloader = Reloader(path, apply, in_force=before)
    with caplog.at_level(logging.INFO, "tidegate.config"):
        assert reloader.reload() is refusal

    assert (reloader.config, reloader.last_error) == (before, refusal)
    assert [record.levelname for record in caplog.records] == ["ERROR"]


def test_a_reload_inside_a_reload_is_refused_and_not_a_deadlock(path: Path):
    """A signal handler that interrupts a reload must not begin another in the same thread."""
    inside: list[object] = []

    def apply(config: Config) -> None:
        with pytest.raises(RuntimeError, match="a reload cannot begin inside another"):
            reloader.reload()
        inside.append(config)

    reloader = Reloader(path, apply)

    assert reloader.reload() is None
    assert len(inside) == 1


def test_a_limiter_takes_the_new_policy_and_keeps_its_state(path: Path):
    """C165: a raised limit is in force at once, and the change itself refills nothing."""
    limiter = Limiter(load(path).policy, clock=ManualClock())
    reloader = Reloader(path, lambda config: limiter.replace_policy(config.policy), in_force=load(path))
    assert sum(limiter.hit({"org": "acme"}).allowed for _ in range(30)) == 20
    path.write_text(GOOD.replace("20", "25"))

    assert reloader.reload() is None
    assert not limiter.hit({"org": "acme"})
    assert sum(limiter.hit({"org": "other"}).allowed for _ in range(30)) == 25


def test_threads_that_reload_at_once_take_turns(path: Path):
    """Calls of `apply` never overlap, every reload ends well, and what was applied last is in force."""
    running, overlaps, applied = 0, 0, []

    def apply(config: Config) -> None:
        nonlocal running, overlaps
        running += 1
        overlaps += running > 1
        applied.append(config)
        running -= 1

    reloader = Reloader(path, apply)
    results: list[Any] = []
    start = threading.Barrier(8)

    def reload_often() -> None:
        start.wait()
        results.extend([reloader.reload() for _ in range(10)])

    threads = [threading.Thread(target=reload_often) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert (overlaps, results) == (0, [None] * 80)
    assert reloader.config is applied[-1]


def test_readers_never_see_half_a_configuration(path: Path):
    """While the file changes back and forth, a reader sees capacity and rate of one file only."""
    texts = [GOOD, GOOD.replace("20", "30").replace("5/s", "7/s")]
    whole = {(20, "5/s"), (30, "7/s")}
    reloader = Reloader(path, lambda config: None, in_force=load(path))
    seen: set[tuple[object, str]] = set()
    done = threading.Event()

    def read() -> None:
        while not done.is_set():
            config = reloader.config
            assert config is not None
            limit = config.policy["organization"].limit
            seen.add((limit.capacity, str(limit.rate)))  # type: ignore[union-attr]  # the rule has a limit

    reader = threading.Thread(target=read)
    reader.start()
    for turn in range(60):
        path.write_text(texts[turn % 2])
        assert reloader.reload() is None
    done.set()
    reader.join()

    assert seen <= whole
    assert seen
