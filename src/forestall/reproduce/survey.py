"""NHANES: who was selected, and how like them the generated records are."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from forestall.reproduce.plans import data_are_here
from forestall.reproduce.sheet import write_sheet

ATTRITION, LIKENESS, PICTURE = "nhanes-attrition", "nhanes-likeness", "nhanes.png"
SMALL = 75


def files(folder: Path, images: Path) -> list[Path]:
    """What is written, and where."""
    sheets = [folder / f"{name}.csv" for name in (ATTRITION, LIKENESS)]
    return [*sheets, images / PICTURE]


def validate(
    folder: Path, images: Path, say: Callable[[str], object] = lambda _: None
) -> list[Path]:
    """Select, generate and compare; leave it where the data are not here.

    Args:
        folder: Where the figures go.
        images: Where the picture goes.
        say: Told what is being done.
    """
    if not data_are_here():
        say(
            "The validation of nhanes is left out: its data are not here. Get them "
            "with `forestall data fetch nhanes`."
        )
        return []
    from forestall.data.nhanes import read_cohort
    from forestall.data_cli import describe

    say("Reading the survey, and fitting the generator")
    cohort = read_cohort()
    cohort.require_the_benchmarks()
    rules, single, picture = files(folder, images)
    told = describe(cohort, picture)
    shrink(picture)
    return [
        write_sheet(rules, told["attrition"]),
        write_sheet(single, figures_of(told)),
        picture,
    ]


def figures_of(told: dict[str, Any]) -> list[dict[str, Any]]:
    """Take the single figures, cycles among them."""
    names = (
        "rows",
        "fingerprint",
        "correlation_mae",
        "told_apart",
        "told_apart_when_shuffled",
        "desired",
        "desired_generated",
    )
    single = [{"name": name, "value": told[name]} for name in names]
    cycles = [{"name": f"cycle {k}", "value": n} for k, n in told["by_cycle"].items()]
    return [*single, *cycles]


def shrink(picture: Path) -> None:
    """Make a picture for print one for a page."""
    from PIL import Image

    with Image.open(picture) as image:
        size = (image.width * SMALL // 160, image.height * SMALL // 160)
        small = image.convert("RGB").resize(size, Image.Resampling.LANCZOS)
    small.save(picture, optimize=True)
