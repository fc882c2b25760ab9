import subprocess
import sys

import pytest

import forestall


def test_every_public_name_is_reachable_and_documented():
    for name in forestall.__all__:
        assert getattr(forestall, name).__doc__, name


def test_baselines_and_tasks_come_with_a_bare_import():
    code = "import forestall; forestall.baselines.NoAction; forestall.tasks.get('bank')"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = forestall.nonsense


def test_every_error_has_the_one_base():
    for name in forestall.__all__:
        value = getattr(forestall, name)
        if isinstance(value, type) and issubclass(value, Exception):
            warning = issubclass(value, Warning)
            assert issubclass(value, forestall.ForestallError) or warning


def test_import_alone_loads_nothing_heavy():
    code = (
        "import sys, forestall;"
        "heavy = {'matplotlib', 'numpy', 'pandas', 'sklearn', 'torch', 'typer'};"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_missing_extra_says_how_to_install_it():
    error = forestall.MissingExtraError("matplotlib", "plots")
    assert "pip install 'forestall[plots]'" in str(error)
    assert isinstance(error, ImportError)
