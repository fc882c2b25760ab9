"""Everything that the tutorials show is run, in a folder of its own."""

import contextlib
import io
import json
import re
import shlex
import shutil
import warnings
from pathlib import Path

import pytest
from typer.testing import CliRunner

from forestall import cli
from forestall.errors import ForestallWarning
from stranger import run, serving

DOCS = Path(__file__).parent.parent / "docs"
TUTORIALS = ["quickstart.md", "bring-your-own-data.md"]
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
NUMBER = re.compile(r"\d+\.?\d*")


def commands(block):
    """Each command of a console block, with the message that it has to end with."""
    for line in block.splitlines():
        if line.startswith("$ "):
            command, message = line[2:], None
        else:
            assert line.startswith("! "), line
            message = line[2:]
        yield command, message


class Terminal:
    """Runs the console blocks of a page; what is served stays until the page ends."""

    def __init__(self, stack):
        """Begin a page."""
        self.stack, self.address = stack, None

    def run(self, block, printed):
        expected = dict(commands(block))
        assert expected
        for command, message in expected.items():
            words = shlex.split(command)
            if words[0] == "curl":
                self.ask(words[1:], printed)
            elif words[:2] == ["forestall", "serve"]:
                served = serving(*words[2:], cwd=Path.cwd())
                self.address = self.stack.enter_context(served)
            else:
                run_forestall(words, message)

    def ask(self, words, printed):
        """Ask with curl; the answer is the sentence that Python printed."""
        # Another page may be tested at the usual port meanwhile.
        words = [word.replace("http://127.0.0.1:8000", self.address) for word in words]
        if shutil.which("curl"):
            answer = run("curl", "-sS", "--fail", *words, cwd=Path.cwd())
            (decision,) = json.loads(answer)["decisions"]
            assert decision["explanation"] == printed.strip()


def run_forestall(words, message):
    assert words[0] == "forestall"
    result = CliRunner().invoke(cli.app, words[1:])
    if message is None:
        assert result.exit_code == 0, (words, result.output, result.exception)
    else:
        assert result.exit_code == 2, (words, result.output)
        assert message in result.stderr, (words, result.stderr)


def run_python(block, names):
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()) as out:
        warnings.simplefilter("ignore", ForestallWarning)
        exec(block, names)
    return out.getvalue()


def check_printed(real, shown):
    assert NUMBER.split(real.strip()) == NUMBER.split(shown.strip())
    for ours, theirs in zip(*map(NUMBER.findall, (real, shown)), strict=True):
        # Other processors round otherwise, and a search may then turn elsewhere.
        assert float(ours) == pytest.approx(float(theirs), rel=0.1)


@pytest.mark.parametrize("page", TUTORIALS)
def test_a_tutorial_runs_from_top_to_bottom(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    blocks = BLOCK.findall((DOCS / page).read_text(encoding="utf-8"))
    assert {kind for kind, _ in blocks} - {""} == {"python", "console"}
    names, printed = {}, ""
    with contextlib.ExitStack() as stack:
        terminal = Terminal(stack)
        for kind, block in blocks:
            if kind == "console":
                terminal.run(block, printed)
            elif kind == "python":
                printed = run_python(block, names)
            else:
                check_printed(printed, block)
    assert (tmp_path / next(iter(tmp_path.glob("decisions.*")))).stat().st_size > 0


def test_the_quickstart_ends_with_a_report_a_service_and_a_question_to_it():
    blocks = BLOCK.findall((DOCS / "quickstart.md").read_text(encoding="utf-8"))
    told = "".join(block for kind, block in blocks if kind == "console")
    found = re.findall(r"^\$ (?:forestall )?(\w+)", told, re.MULTILINE)
    path = ["init", "check", "fit", "recommend", "whatif", "report", "serve", "curl"]
    assert found == path


@pytest.mark.parametrize("page", [*TUTORIALS, "methods.md", "page.md"])
def test_every_link_to_a_file_leads_somewhere(page):
    text = (DOCS / page).read_text(encoding="utf-8")
    targets = re.findall(r"\]\(([^)#:]+)\)", text)
    assert targets
    for target in targets:
        assert (DOCS / target).exists(), target


@pytest.mark.parametrize("page", TUTORIALS)
def test_every_option_that_is_named_in_passing_exists(page):
    text = (DOCS / page).read_text(encoding="utf-8")
    known = "".join(
        CliRunner().invoke(cli.app, [name, "--help"]).output
        for name in ("init", "check", "fit", "recommend", "whatif", "report", "serve")
    )
    known += CliRunner().invoke(cli.app, ["--help"]).output
    for option in set(re.findall(r"`(?:forestall \w+ )?(--[\w-]+)", text)):
        assert option in known, option


@pytest.mark.parametrize("page", ["quickstart.md", "methods.md"])
def test_whoever_gets_advice_is_led_to_what_it_assumes(page):
    assert "(assumptions.md)" in (DOCS / page).read_text(encoding="utf-8")
