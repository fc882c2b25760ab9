"""What only some machines have: tests skip without it, unless it is required."""

import importlib
import os
import shutil

import pytest


def flows_or_skip():
    """Torch and zuko, the extra ``flows``."""
    return tuple(_loaded(name, "flows") for name in ("torch", "zuko"))


def chromium_or_skip():
    """The path of a Chromium, for playwright to drive."""
    _loaded("playwright", "browser")
    found = shutil.which("chromium") or shutil.which("chromium-browser")
    if found is None and is_required("browser"):
        pytest.fail("a Chromium is required here; `apt-get install chromium`")
    if found is None:
        pytest.skip("needs a Chromium: `apt-get install chromium`")
    return found


def is_required(what):
    return what in os.environ.get("FORESTALL_REQUIRE", "").split(",")


def _loaded(name, what):
    if is_required(what):
        return importlib.import_module(name)
    return pytest.importorskip(name, reason=f"needs {what!r}: {name}")
