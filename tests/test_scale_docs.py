"""Everything that the page on scale shows is run."""

import contextlib
import io
import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parent.parent / "docs" / "scale.md"
BLOCKS = re.findall(r"^```python\n(.*?)^```", PAGE.read_text("utf-8"), re.M | re.S)


@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.filterwarnings("ignore::forestall.ExtrapolationWarning")
def test_the_blocks_run_one_after_the_other(tmp_path, monkeypatch):
    pytest.importorskip("distributed")
    monkeypatch.chdir(tmp_path)
    names, out = {}, io.StringIO()
    with contextlib.redirect_stdout(out):
        for code in BLOCKS:
            exec(code, names)
    verdicts, first, resumed, same = out.getvalue().splitlines()
    assert "act" in verdicts
    assert (first, resumed, same) == ("3000 0", "3000 2000", "True")


def test_every_link_to_a_file_leads_somewhere():
    for target in re.findall(r"\]\(([^)#:]+)\)", PAGE.read_text("utf-8")):
        assert (PAGE.parent / target).exists(), target
