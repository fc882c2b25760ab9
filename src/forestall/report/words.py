"""What a report says in words, whatever the numbers are."""

from __future__ import annotations

from forestall import ink
from forestall.identify import Criterion, Identification
from forestall.problem import Problem

# Names that a sentence lists; those beyond are counted.
NAMED = 6
MEANING = {
    "act": "The action credibly raises the chance of a good outcome.",
    "leave": "Nothing is credibly better than leaving things as they are.",
    "abstain": "History says too little; ask somebody who knows the case.",
}
CAUTION = (
    "By the estimates of the method that chose the actions, so rather too good than "
    "too bad; and only as true as the assumptions below."
)
SMOOTH = "Chances change smoothly with contexts and actions."
LINEAR = (
    "Every variable is linear in what precedes it, with Gaussian noise. Where the "
    "world bends, the chances are wrong."
)
ALIKE = "Contexts are all that confounds: no covariate is adjusted for."
# What each method takes for granted beside the rest.
METHODS = {
    "StagedRehearsal": "Each variable follows from those before it by a smooth law.",
    "NestedRehearsal": f"{SMOOTH} No covariate between two actions matters.",
    "ConditionalRehearsal": f"{SMOOTH} {ALIKE}",
    "LinearOptimal": LINEAR,
    "CARE": LINEAR,
    "QWZ23": LINEAR,
    "MICNS": LINEAR,
    "GradRehearsal": "Each variable follows a law that a normalising flow can learn.",
    "NoAction": "Nothing is altered: chances are those of the natural course.",
}
ALWAYS = (
    "The world goes on as it was when the records were made. Advice grows old.",
    "Actions can be set as advised, and setting them changes nothing else.",
    "Contexts are measured as they were in the records.",
    "Cases do not influence each other: what helps one helps as much when many get it.",
    "An interval is about the chance, not about what becomes of one case: it covers "
    "what so many records leave unknown, and no failure of what is assumed above.",
)


def question(problem: Problem) -> str:
    """Ask it in one sentence.

    Example:
        >>> question(Problem(context=["age"], actions={"dose": (0, 2)},
        ...     outcomes=["pain"], desired=["pain <= 3"]))
        'Which dose makes pain ≤ 3 most likely, given age?'
    """
    actions = _joined([ink.words(name) for name in problem.actions])
    verb = "makes" if len(problem.actions) == 1 else "make"
    wanted = ink.words(str(problem.region)).replace(">=", "≥").replace("<=", "≤")
    known = _joined([ink.words(name) for name in problem.context])
    given = f", given {known}" if known else ""
    return f"Which {actions} {verb} {wanted.replace('`', '')} most likely{given}?"


def grounds(
    found: Identification, criterion: Criterion | None = None
) -> list[tuple[str, str]]:
    """Say what is compared with what, and what has to be believed.

    Args:
        found: What is adjusted for.
        criterion: Whether that is enough for the method that is used; ``None`` where
            none is chosen yet.

    Example:
        >>> found = Problem(context=["age"], actions={"dose": (0, 2)},
        ...     outcomes=["pain"], desired=["pain <= 3"]).identification()
        >>> grounds(found)[0]
        ('Compared', 'records that are alike in the context.')
    """
    free = [name for name in found.integrated_out if name not in found.ignored]
    parts = {
        "Allowed for between two actions": found.staged,
        "Left free, as the actions may change it": free,
        "Recorded, but not needed": found.ignored,
    }
    alike = _joined(["the context", *found.adjusted])
    verdicts = _by_method(found) if criterion is None else [("", criterion)]
    lines = [
        ("Compared", f"records that are alike in {alike}."),
        *((name, f"{', '.join(held)}.") for name, held in parts.items() if held),
        *((f"Cause and effect{who}", verdict(each)) for who, each in verdicts),
        ("Taken for granted", found.assumes),
        ("Beware", found.remark),
    ]
    return [(name, text) for name, text in lines if text]


def _by_method(found: Identification) -> list[tuple[str, Criterion]]:
    if found.sequential == found.nested:
        return [("", found.sequential)]
    names = " by the default method, staged", " by the method nested"
    return list(zip(names, (found.sequential, found.nested), strict=True))


def verdict(criterion: Criterion) -> str:
    """Say whether the chances are effects of the actions, and why."""
    return f"{identified(criterion.valid)[0]} {criterion.explanation}"


def identified(valid: bool | None) -> tuple[str, str]:
    """Say the verdict on identification, and of which kind it is."""
    if valid is None:
        return "Assumed; it cannot be checked.", "assumed"
    return ("By the graph, yes.", "valid") if valid else ("No: biased.", "biased")


def assumptions(found: Identification, method: str) -> list[str]:
    """List what has to be believed."""
    told = [found.assumes, METHODS.get(method, ""), *ALWAYS]
    return [text[:1].upper() + text[1:] for text in told if text]


def _joined(names: list[str]) -> str:
    if len(names) > NAMED:
        names = [*names[: NAMED - 1], f"{len(names) - NAMED + 1} more"]
    if len(names) < 2:
        return "".join(names)
    return f"{', '.join(names[:-1])} and {names[-1]}"
