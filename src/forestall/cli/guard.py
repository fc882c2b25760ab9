"""What a user can cause becomes a sentence and an exit code, never a traceback."""

from __future__ import annotations

import functools
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import ParamSpec, TextIO

import typer

from forestall import screen
from forestall.errors import ForestallError, ForestallWarning

BAD_INPUT = 2
INTERRUPTED = 130
# What a shell reports of a program that wrote to a closed pipe.
CLOSED = 141

P = ParamSpec("P")


def guarded(command: Callable[P, None]) -> Callable[P, None]:
    """Turn what a user can cause into a message and an exit code."""

    @functools.wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            with plain_warnings():
                command(*args, **kwargs)
            # Here, so that a pipe that nobody reads is noticed here too.
            sys.stdout.flush()
        except BrokenPipeError as error:
            _forget_output()
            raise typer.Exit(CLOSED) from error
        except (ForestallError, OSError, MemoryError) as error:
            screen.say("Error: ", "bold red", message(error))
            raise typer.Exit(BAD_INPUT) from error
        # A prompt that is broken off aborts.
        except (KeyboardInterrupt, typer.Abort) as stop:
            screen.say("Interrupted.", "bold")
            raise typer.Exit(INTERRUPTED) from stop

    return run


def message(error: Exception) -> str:
    """Say an error as the library does."""
    if isinstance(error, ForestallError):
        return str(error)
    if isinstance(error, MemoryError):
        return (
            "Expected the work to fit into memory; got more than there is. Take fewer "
            "records, or --approximation nystrom:500."
        )
    name = getattr(error, "filename", None)
    where = f" at {str(name)!r}" if name else ""
    what = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return (
        f"Expected a file or a connection that can be used{where}; got: {what}. Check "
        f"that it is there, and what you may do with it."
    )


@contextmanager
def plain_warnings() -> Iterator[None]:
    """Show the library's warnings as sentences, each once, not as lines of code."""
    told: set[str] = set()
    with warnings.catch_warnings():
        usual = warnings.showwarning

        def show(
            message: Warning | str,
            category: type[Warning],
            filename: str,
            lineno: int,
            file: TextIO | None = None,
            line: str | None = None,
        ) -> None:
            if not issubclass(category, ForestallWarning):
                usual(message, category, filename, lineno, file, line)
            elif str(message) not in told:
                told.add(str(message))
                screen.say("Warning: ", "yellow", str(message))

        warnings.simplefilter("always", ForestallWarning)
        warnings.showwarning = show
        yield


def _forget_output() -> None:
    """Write what is still buffered to nowhere: nobody reads it."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
