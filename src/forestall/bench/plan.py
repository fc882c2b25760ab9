"""Plans: what a benchmark runs, as a TOML file says it."""

from __future__ import annotations

import dataclasses
import hashlib
import inspect
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

from forestall import tasks
from forestall.bench.results import COLUMNS
from forestall.bench.score import Trial
from forestall.errors import ForestallError, PlanError, TaskError, nearest
from forestall.files import read_toml
from forestall.method import Method

REQUIRED = ("name", "tasks", "methods", "seeds", "n", "contexts", "draws")
OPTIONAL = ("problem", "seed", "wider", "quick")
# What a table ``quick`` may make smaller.
HASTENED = ("seeds", "n", "contexts", "draws", "methods")


@dataclass(frozen=True, eq=False, kw_only=True)
class Plan:
    """Every method on every task, for several seeds and contexts.

    Args:
        name: What the results are called.
        tasks: Names that :func:`forestall.tasks.get` knows; ``"random-0..19"`` stands
            for ``random-0`` to ``random-19``.
        methods: The methods, by the label that the tables print.
        seeds: One history and one set of contexts is drawn for each.
        n: Records in each history.
        contexts: Contexts for each seed.
        draws: Monte Carlo draws behind each true success.
        problem: ``"order"`` tells the methods the order of the variables only,
            ``"graph"`` the true graph as well.
        seed: What all random numbers come from.
        wider: How far more is feasible than the tasks say, at either end of each
            action's interval, as a share of its length.
        quick: What :meth:`quickened` replaces: fewer ``seeds``, ``contexts``, ``draws``
            or records ``n``, or ``methods`` as a list of labels.
        source: The file that the plan was read from.
    """

    name: str
    tasks: Sequence[str]
    methods: Mapping[str, Method]
    seeds: Sequence[int]
    n: int
    contexts: int
    draws: int
    problem: Literal["order", "graph"] = "order"
    seed: int = 0
    wider: float = 0.0
    quick: Mapping[str, Any] = field(default_factory=dict, repr=False)
    source: Path | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        """Check every field once."""
        _check_plain(vars(self))
        object.__setattr__(self, "tasks", _known_tasks(self.tasks))
        object.__setattr__(self, "methods", _labelled(self.methods))
        object.__setattr__(self, "seeds", _seeds(self.seeds))
        _check_quick(self.quick, self.methods)

    @classmethod
    def from_file(cls, path: str | Path) -> Plan:
        """Read a plan from a TOML file."""
        values = read_toml(path, "plan", PlanError)
        return replace(cls.from_dict(values), source=Path(path).absolute())

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Plan:
        """Make a plan from plain values, as a TOML file holds them."""
        known = (*REQUIRED, *OPTIONAL)
        for key in values:
            if key not in known:
                raise PlanError(
                    f"Expected the keys {', '.join(known)} in a plan; got {key!r}."
                    f"{nearest(key, known)}"
                )
        absent = [key for key in REQUIRED if key not in values]
        if absent:
            raise PlanError(
                f"Expected the keys {', '.join(REQUIRED)} in a plan; missing: "
                f"{', '.join(absent)}."
            )
        _check_plain(values)
        given = {**values, "methods": read_methods(values["methods"])}
        _check_quick(values.get("quick", {}), given["methods"])
        if _is_whole(given["seeds"]):
            given["seeds"] = range(given["seeds"])
        return cls(**given)

    def to_dict(self) -> dict[str, Any]:
        """Give the plan as plain values, every hyperparameter spelt out."""
        # What is not asked for is left out, so that results of older plans stand.
        wider = {"wider": self.wider} if self.wider else {}
        return {
            **wider,
            "name": self.name,
            "tasks": list(self.tasks),
            "seeds": list(self.seeds),
            "n": self.n,
            "contexts": self.contexts,
            "draws": self.draws,
            "problem": self.problem,
            "seed": self.seed,
            "methods": {k: _plain_method(m) for k, m in self.methods.items()},
        }

    def quickened(self) -> Plan:
        """Give the short version of this plan, with a name of its own."""
        changes = dict(self.quick)
        if "methods" in changes:
            labels = changes["methods"]
            changes["methods"] = {label: self.methods[label] for label in labels}
        if _is_whole(changes.get("seeds")):
            changes["seeds"] = range(changes["seeds"])
        return replace(self, name=f"{self.name}-quick", quick={}, **changes)

    @property
    def fingerprint(self) -> str:
        """What tells this plan's results from those of another, whatever its name."""
        told = {**self.to_dict(), "name": None, "columns": COLUMNS}
        text = json.dumps(told, sort_keys=True, default=repr)
        return hashlib.sha256(text.encode()).hexdigest()

    @property
    def default_out(self) -> Path:
        """Where the results go when nobody says."""
        file = f"{self.name}.csv"
        where = Path() if self.source is None else self.source.parent
        for folder in (where, *where.parents):
            if folder.name == "plans":
                return folder.parent / "results" / where.relative_to(folder) / file
        return Path(file)

    def trials(self) -> Iterator[Trial]:
        """Go through the tasks and seeds, in the order of the plan."""
        for task in self.tasks:
            for seed in self.seeds:
                yield Trial(
                    task=task,
                    seed=seed,
                    n=self.n,
                    contexts=self.contexts,
                    draws=self.draws,
                    problem=self.problem,
                    entropy=self.seed,
                    wider=self.wider,
                )


def _check_plain(values: Mapping[str, Any]) -> None:
    """Check the values that are plain text and numbers."""
    name, problem = values["name"], values.get("problem", "order")
    if not isinstance(name, str) or not re.fullmatch(r"[\w.-]+", name):
        raise PlanError(
            f"Expected a name of letters, digits, '.', '_' and '-', because the "
            f"results are called by it; got {name!r}."
        )
    for key in ("n", "contexts", "draws"):
        _whole(key, values[key], least=1)
    _whole("seed", values.get("seed", 0), least=0)
    wider = values.get("wider", 0.0)
    if isinstance(wider, bool) or not (isinstance(wider, int | float) and wider >= 0):
        raise PlanError(f"Expected wider as a number of 0 or more; got {wider!r}.")
    if problem not in ("order", "graph"):
        raise PlanError(f"Expected problem = 'order' or 'graph'; got {problem!r}.")


def _check_quick(quick: Any, methods: Mapping[str, Method]) -> None:
    """Check that a short version names what the plan has."""
    if not isinstance(quick, Mapping):
        raise PlanError(
            f"Expected quick as a table of what is smaller in a hurry; got {quick!r}."
        )
    for key in quick:
        if key not in HASTENED:
            raise PlanError(
                f"Expected the keys {', '.join(HASTENED)} in [quick]; got {key!r}."
                f"{nearest(key, HASTENED)}"
            )
    for label in quick.get("methods", ()):
        if label not in methods:
            raise PlanError(
                f"Expected methods of [quick] among the plan's, {', '.join(methods)}; "
                f"got {label!r}.{nearest(str(label), methods)}"
            )


def read_methods(tables: Any) -> dict[str, Method]:
    """Make the methods that ``[methods.label]`` tables describe."""
    if not isinstance(tables, Mapping) or not tables:
        raise PlanError(
            f"Expected at least one table [methods.label] with method = "
            f"'NestedRehearsal' or another; got {tables!r}."
        )
    return {label: read_method(label, table) for label, table in tables.items()}


def read_method(label: str, table: Any) -> Method:
    """Make one method from its class's name and its hyperparameters."""
    if not isinstance(table, Mapping) or not isinstance(table.get("method"), str):
        raise PlanError(
            f"Expected method = '...' in [methods.{label}], naming one of "
            f"{', '.join(known_methods())}; got {table!r}."
        )
    known = known_methods()
    if table["method"] not in known:
        raise PlanError(
            f"Expected one of the methods {', '.join(known)} in [methods.{label}]; "
            f"got {table['method']!r}.{nearest(table['method'], known)}"
        )
    given = {key: value for key, value in table.items() if key != "method"}
    method: Method = _build(known[table["method"]], given, f"[methods.{label}]")
    return method


def known_methods() -> dict[str, type[Method]]:
    """The methods that a plan can name, from forestall and forestall.baselines."""
    modules = (import_module("forestall"), import_module("forestall.baselines"))
    found = {k: getattr(module, k) for module in modules for k in module.__all__}
    return {
        name: value
        for name, value in found.items()
        if inspect.isclass(value)
        and issubclass(value, Method)
        and not inspect.isabstract(value)
    }


def _build(cls: type[Any], given: Mapping[str, Any], where: str) -> Any:
    """Make a dataclass from plain values; what is wrong with them is a PlanError."""
    names = [f.name for f in fields(cls) if f.init]
    for key in given:
        if key not in names:
            raise PlanError(
                f"Expected {cls.__name__} in {where} to get hyperparameters from "
                f"{', '.join(names) or 'none at all'}; got {key!r}."
                f"{nearest(key, names)}"
            )
    hints = get_type_hints(cls)
    values = {
        key: _fitting(hints[key], value, f"{key!r} of {where}")
        for key, value in given.items()
    }
    try:
        return cls(**values)
    except (ForestallError, TypeError, ValueError) as error:
        raise PlanError(f"In {where}: {error}") from error


def _fitting(hint: Any, value: Any, where: str) -> Any:
    """Turn a TOML value into what the hint asks for, where TOML cannot say it."""
    options = get_args(hint) if get_origin(hint) not in (None, Mapping) else (hint,)
    if _is_whole(value) and float in options and int not in options:
        return float(value)
    if isinstance(value, dict):
        records = {k.__name__: k for option in options for k in _kinds(option)}
        if records:
            return _record(records, value, where)
        for option in options:
            if get_origin(option) is not None and len(get_args(option)) == 2:
                inner = get_args(option)[1]
                return {k: _fitting(inner, v, where) for k, v in value.items()}
    return value


def _kinds(option: Any) -> list[type[Any]]:
    """The dataclasses that a hint allows: itself, or those of an abstract class."""
    if not isinstance(option, type):
        return []
    if is_dataclass(option):
        return [option]
    if not inspect.isabstract(option):
        return []
    below: list[type[Any]] = option.__subclasses__()
    return [kind for kind in below if is_dataclass(kind)]


def _record(
    records: Mapping[str, type[Any]], value: Mapping[str, Any], where: str
) -> Any:
    if len(records) == 1:
        return _build(next(iter(records.values())), value, where)
    kind = str(value.get("type"))
    if kind not in records:
        raise PlanError(
            f"Expected type = one of {', '.join(records)} in {where}; got {kind!r}."
        )
    rest = {k: v for k, v in value.items() if k != "type"}
    return _build(records[kind], rest, where)


def _plain_method(method: Method) -> dict[str, Any]:
    plain = {"method": type(method).__name__}
    return {**plain, **dataclasses.asdict(method)} if is_dataclass(method) else plain


def _known_tasks(names: Any) -> tuple[str, ...]:
    if isinstance(names, str) or not isinstance(names, Sequence) or not names:
        raise PlanError(
            f"Expected tasks as a list of names, from {', '.join(tasks.names())}; "
            f"got {names!r}."
        )
    spelt_out = [each for name in names for each in _spelt_out(name)]
    for name in spelt_out:
        try:
            tasks.check(name)
        except TaskError as error:
            raise PlanError(str(error)) from error
    return _distinct("tasks", spelt_out)


def _spelt_out(name: Any) -> list[Any]:
    """Write a range such as ``random-0..19`` out."""
    ends = (
        re.fullmatch(r"random-(\d+)\.\.(\d+)", name) if isinstance(name, str) else None
    )
    if ends is None:
        return [name]
    first, last = int(ends[1]), int(ends[2])
    if last < first:
        raise PlanError(
            f"Expected a range of random tasks from a lower to a higher seed; got "
            f"{name!r}. Write it like 'random-0..19'."
        )
    return [f"random-{seed}" for seed in range(first, last + 1)]


def _labelled(methods: Any) -> dict[str, Method]:
    if not isinstance(methods, Mapping) or not methods:
        raise PlanError(f"Expected at least one method, by its label; got {methods!r}.")
    for label, method in methods.items():
        if not isinstance(method, Method):
            raise PlanError(
                f"Expected a method for the label {label!r}; got {method!r}."
            )
    return dict(methods)


def _seeds(seeds: Any) -> tuple[int, ...]:
    if isinstance(seeds, str) or not isinstance(seeds, Sequence) or not len(seeds):
        raise PlanError(
            f"Expected seeds as a number of them or as a list; got {seeds!r}."
        )
    return _distinct("seeds", [_whole("seeds", seed, least=0) for seed in seeds])


def _distinct(name: str, values: Sequence[Any]) -> tuple[Any, ...]:
    twice = [v for i, v in enumerate(values) if v in values[:i]]
    if twice:
        raise PlanError(f"Expected every one of {name} once; got {twice[0]!r} again.")
    return tuple(values)


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _whole(name: str, value: Any, *, least: int) -> int:
    if not _is_whole(value) or value < least:
        raise PlanError(
            f"Expected {name} as a whole number of {least} or more; got {value!r}."
        )
    return int(value)
