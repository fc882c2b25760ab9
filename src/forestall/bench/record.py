"""The record beside a results file: of which plan, by what code, on what machine."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from time import perf_counter
from typing import Any

from forestall.bench.plan import Plan
from forestall.errors import PlanError
from forestall.files import write_text

PACKAGES = ("numpy", "scipy", "threadpoolctl", "scikit-learn", "cvxpy", "torch", "zuko")


@dataclass
class Record:
    """What is written to ``results.json`` beside ``results.csv``.

    Args:
        path: The JSON file.
        plan: The plan that is run.
        jobs: Processes at once.
        earlier: The runs before this one, each as it was recorded.
    """

    path: Path
    plan: Plan
    jobs: int
    earlier: list[dict[str, Any]]
    units: int = 0
    origin: dict[str, Any] = field(default_factory=lambda: _origin())
    _start: float = field(default_factory=perf_counter)

    def write(self, *, complete: bool) -> None:
        """Write the record as it stands, all of it or nothing."""
        runs = [*self.earlier, self._run()]
        told = {
            "fingerprint": self.plan.fingerprint,
            "complete": complete,
            "seconds": round(sum(run["seconds"] for run in runs), 3),
            "plan": self.plan.to_dict(),
            "runs": runs,
        }
        write_text(self.path, json.dumps(told, indent=2, default=repr) + "\n")

    def _run(self) -> dict[str, Any]:
        seconds = round(perf_counter() - self._start, 3)
        done = {"seconds": seconds, "units": self.units, "jobs": self.jobs}
        return {**self.origin, **done}


def read_record(path: Path) -> dict[str, Any] | None:
    """Read a record; None when there is no file."""
    if not path.exists():
        return None
    try:
        told = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        told = None
    if not isinstance(told, dict) or not {"fingerprint", "runs"} <= told.keys():
        raise PlanError(
            f"Expected {str(path)!r} to be the record of a benchmark, because it "
            f"would be written there; it is something else. Name another --out."
        )
    return told


def check_same_plan(plan: Plan, told: dict[str, Any] | None, out: Path) -> None:
    """Raise unless the results at ``out`` were made by this plan."""
    if told is None:
        raise PlanError(
            f"Expected the record {str(out.with_suffix('.json'))!r} beside the results "
            f"{str(out)!r}, to see that they are of this plan; there is none. Use "
            f"--fresh to begin anew, or another --out."
        )
    if told["fingerprint"] != plan.fingerprint:
        raise PlanError(
            f"Expected results of the plan {plan.name!r} in {str(out)!r}; got those "
            f"of another plan{_difference(plan, told)}. Use --fresh to begin anew, "
            f"or another --out."
        )


def _difference(plan: Plan, told: dict[str, Any]) -> str:
    """Name the keys in which the plans differ, as far as the record tells."""
    then = told.get("plan", {})
    now = json.loads(json.dumps(plan.to_dict(), default=repr))
    keys = [key for key in now if key != "name" and then.get(key) != now[key]]
    return f", which differs in {', '.join(keys)}" if keys else ""


def _origin() -> dict[str, Any]:
    return {
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        **_commit(),
        "versions": _versions(),
        "machine": {
            "platform": platform.platform(),
            "processor": _processor(),
            "cpus": os.cpu_count(),
        },
    }


def _commit() -> dict[str, Any]:
    """The commit of the code, when it runs from its repository."""
    head = _git("rev-parse", "HEAD")
    # Installed inside somebody else's repository, that commit says nothing of us.
    if head is None or _git("ls-files", "--error-unmatch", "../__init__.py") is None:
        return {}
    return {"commit": head, "modified": bool(_git("status", "--porcelain", ".."))}


def _git(*arguments: str) -> str | None:
    here = Path(__file__).parent
    try:
        done = subprocess.run(
            ["git", *arguments], cwd=here, capture_output=True, text=True, timeout=10
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version(), "forestall": _version("forestall")}
    found |= {name: _version(name) for name in PACKAGES}
    return {name: number for name, number in found.items() if number}


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def _processor() -> str:
    if sys.platform == "linux":
        lines = Path("/proc/cpuinfo").read_text(errors="replace").splitlines()
        for line in lines:
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
