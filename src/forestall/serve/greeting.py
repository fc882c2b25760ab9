"""What a person at a terminal is told first; machines read the log instead."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any


def greet(text: str) -> None:
    """Say what is served and where, on a terminal only."""
    if sys.stderr.isatty():
        print(text, file=sys.stderr)


def greeting(
    name: str, told: Mapping[str, Any], address: str, token: str | None
) -> str:
    """Write the greeting.

    Args:
        name: The name of the policy's file.
        told: What the file says of it.
        address: Where the service listens.
        token: What clients have to send.
    """
    records = f"{told['history']['records']:,} records"
    actions = ", ".join(told["problem"]["actions"])
    asked = ["Whoever asks needs the token; the page prompts for it."] * bool(token)
    lines = [
        f"Serving {name}: advice on {actions}, learned from {records} by "
        f"{told['method']}.",
        f"  Page for people:    {address}/",
        f"  API for programs:   {address}/v1/...",
        f"  Its documentation:  {address}/openapi.json",
        *asked,
        "Press Ctrl+C to stop. What follows is the log.",
    ]
    return "\n".join(lines)
