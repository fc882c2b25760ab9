"""What is loaded when: help and the bare import wait for nothing heavy."""

import json
import subprocess
import sys
import time

import pytest

import forestall

HEAVY = {
    "matplotlib",
    "narwhals",
    "networkx",
    "numpy",
    "pandas",
    "polars",
    "pyarrow",
    "rich",
    "scipy",
    "sklearn",
    "torch",
    "uvicorn",
}
RUNS = 5


def loaded_by(code):
    """Which packages a fresh process has loaded after running some code."""
    code += "\nimport json, sys; print(json.dumps(sorted(sys.modules)))"
    command = [sys.executable, "-c", code]
    said = subprocess.run(
        command, capture_output=True, text=True, check=True, timeout=60
    )
    return set(json.loads(said.stdout.splitlines()[-1]))


def packages(modules):
    return {name.partition(".")[0] for name in modules}


def helped(*words):
    """The code of a process that shows help and then goes on."""
    return (
        "import sys\n"
        f"sys.argv = ['forestall', *{list(words)}, '--help']\n"
        "from forestall.cli import main\n"
        "try:\n    main()\nexcept SystemExit as stop:\n    assert stop.code == 0"
    )


def test_a_bare_import_loads_nothing_but_itself():
    modules = loaded_by("import forestall")
    assert not HEAVY & packages(modules)
    assert not packages(modules) & {"typer", "click", "jaxtyping", "tomli_w"}
    assert [name for name in modules if name.startswith("forestall.")] == []


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("init",),
        ("check",),
        ("fit",),
        ("recommend",),
        ("whatif",),
        ("report",),
        ("serve",),
        ("compare",),
        ("demo",),
        ("tasks",),
        ("bench",),
        ("reproduce",),
        ("data",),
        ("data", "check"),
    ],
    ids=lambda words: " ".join(words) or "forestall",
)
def test_help_loads_nothing_heavy(words):
    assert not HEAVY & packages(loaded_by(helped(*words)))


def test_asking_for_an_error_does_not_load_the_methods():
    modules = loaded_by("import forestall; forestall.SpecError")
    assert not HEAVY & packages(modules)
    assert "forestall.staged" not in modules


def test_a_problem_needs_no_method_and_no_table():
    modules = loaded_by(
        "import forestall\n"
        "forestall.Problem(context=['x'], actions={'a': (0, 1)}, outcomes=['y'],"
        " desired=['y >= 0'])"
    )
    assert not {"pyarrow", "sklearn", "typer", "rich"} & packages(modules)
    assert not {"forestall.staged", "forestall.nested", "forestall.tasks"} & modules


def seconds(code):
    """The time of the quickest of some runs in processes of their own."""
    taken = []
    for _ in range(RUNS):
        start = time.perf_counter()
        subprocess.run(
            [sys.executable, "-c", code],
            check=True,
            timeout=60,
            stdout=subprocess.DEVNULL,
        )
        taken.append(time.perf_counter() - start)
    return min(taken)


def test_importing_costs_less_than_numpy_and_help_little_more_than_typer():
    # Ratios within one run: seconds depend on who else uses the machine.
    numpy, typer = seconds("import numpy"), seconds("import typer")
    assert seconds("import forestall") < numpy
    assert seconds(helped()) < 3.0 * typer


def test_a_star_import_gives_every_public_name():
    names = {}
    exec("from forestall import *", names)
    assert set(forestall.__all__) <= set(names)


def test_dir_lists_what_is_not_loaded_yet():
    code = (
        "import forestall\n"
        "missing = set(forestall.__all__) - set(dir(forestall))\n"
        "assert not missing, missing\n"
        "assert 'scale' in dir(forestall)"
    )
    assert "forestall.staged" not in loaded_by(code)


def test_the_table_of_names_is_that_of_the_public_ones():
    named = {*forestall.WHERE, *forestall.MODULES, "fit"}
    assert set(forestall.__all__) <= named
    assert set(forestall.WHERE) <= set(forestall.__all__)
