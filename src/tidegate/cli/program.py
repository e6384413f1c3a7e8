"""From arguments to an exit code: run the command, and say what went wrong in a line instead of a traceback.

0 the command did what was asked; 1 the answer is no (refused, differences, out of bounds); 2 the arguments,
a file or a store cannot be used. Results go to standard output, complaints to standard error.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Sequence

from tidegate.cli.arguments import parsed
from tidegate.errors import ConfigError, StoreUnavailable, TidegateError
from tidegate.stores.opening import shown

OK, NO, UNUSABLE = 0, 1, 2
_INTERRUPTED = 130
_NOBODY_READS = 141


def main(argv: Sequence[str] | None = None) -> int:
    """Run `tidegate` with these arguments, by default those of the process; the exit code."""
    try:
        arguments = parsed(sys.argv[1:] if argv is None else argv)
    except SystemExit as stop:  # after --help or --version, or a line about what is wrong
        return stop.code if isinstance(stop.code, int) else UNUSABLE
    _keep_the_log_silent()
    try:
        code: int = arguments.run(arguments)
        sys.stdout.flush()
        return code
    except ConfigError as error:
        print(error, file=sys.stderr)
    except StoreUnavailable as error:
        where = shown(str(getattr(arguments, "store", "") or "the store"))
        said = f"{where} gives no usable answer ({error.cause}): {error}"
        print(f"tidegate {arguments.command}: {said}", file=sys.stderr)
    except TidegateError as error:
        print(f"tidegate {arguments.command}: {error}", file=sys.stderr)
    except KeyboardInterrupt:
        print(f"tidegate {arguments.command}: interrupted", file=sys.stderr)
        return _INTERRUPTED
    except BrokenPipeError:  # `| head` has seen enough; what is still buffered has nowhere to go
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _NOBODY_READS
    return UNUSABLE


def _keep_the_log_silent() -> None:
    """What a command has to say it says itself, once. `serve` shows the log, by a handler of its own."""
    log = logging.getLogger("tidegate")
    if not log.handlers:
        log.addHandler(logging.NullHandler())
