"""A made-up table of history, as a stranger would bring it, and what they type."""

import csv
import json
import random
import shutil
import signal
import subprocess
import sys
import threading
from contextlib import contextmanager

import pytest

FORESTALL = [sys.executable, "-m", "forestall"]
COMMANDS = ("init", "check", "fit", "recommend", "report")
COLUMNS = ("id", "age", "sector", "stability", "rate", "roi", "visits")
ROLES = (
    "--context=age,sector",
    "--covariate=stability",
    "--action=rate",
    "--outcome=roi",
    "--order=stability < rate",
    "--interval=rate=0..1",
    "--desired=roi >= 0.4",
)


def write_history(path, n=150, seed=1):
    """Loans whose rate went along with the stability of their trade."""
    rng = random.Random(seed)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(COLUMNS)
        for i in range(n):
            age, stability = rng.uniform(20, 70), rng.random()
            rate = 0.5 * stability + 0.005 * age + rng.gauss(0, 0.15)
            roi = 0.8 * rate - rate**2 + 0.5 * stability + rng.gauss(0, 0.1)
            sector = rng.choice(["farm", "shop", "mill"])
            row = (age, stability, rate, roi)
            a, s, r, y = (round(v, 4) for v in row)
            writer.writerow([f"c{i}", a, sector, s, r, y, rng.randint(0, 4)])
    return path


def write_contexts(path, n=5):
    """The first so many cases again, without what is not known beforehand."""
    whole = write_history(path.with_name("whole.csv"), n=150)
    with whole.open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))[:n]
    whole.unlink()
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, ["id", "age", "sector"], extrasaction="ignore")
        writer.writeheader()
        writer.writerows(rows)
    return path


def run(*words, cwd):
    """Run a command as a stranger does; gives what it printed."""
    command = [*FORESTALL, *words] if words[0] in COMMANDS else words
    done = subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, (words, done.stdout, done.stderr)
    return done.stdout


def curl_or_skip():
    """The path of curl."""
    found = shutil.which("curl")
    if found is None:
        pytest.skip("needs curl: `apt-get install curl`")
    return found


@contextmanager
def serving(*words, cwd):
    """``forestall serve`` in a process of its own, on any port; gives the address."""
    command = [*FORESTALL, "serve", *map(str, words), "--port", "0"]
    with subprocess.Popen(
        command, cwd=cwd, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            url = _address(process.stderr)
            # A pipe that nobody reads fills, and then nothing can be logged.
            reader = threading.Thread(target=process.stderr.read)
            reader.start()
            yield url
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(60)
        reader.join()
    assert process.returncode == 0


def _address(lines):
    for line in lines:
        if line.startswith("{") and json.loads(line)["event"] == "serving":
            return json.loads(line)["url"]
    raise AssertionError("the service did not start")
