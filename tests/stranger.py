"""A made-up table of history, as a stranger would bring it."""

import csv
import random

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
