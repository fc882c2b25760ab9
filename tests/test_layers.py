"""A file imports only what stands above it; methods cannot reach the truth."""

import ast
from pathlib import Path

import forestall

ROOT = Path(forestall.__file__).parent

ORDER = [
    "errors",
    "arrays",
    "threads",
    "processes",
    "files",
    "html",
    "cells",
    "constraint",
    "interior",
    "region",
    "dot",
    "drawing",
    "graph",
    "separation",
    "criteria",
    "identify",
    "spec",
    "problem",
    "table",
    "history",
    "encoding",
    "observations",
    "kernels",
    "hills",
    "ridge",
    "expansion",
    "ascent",
    "support",
    "overlap",
    "leaving",
    "tuning",
    "choice",
    "solution",
    "setting",
    "landmarks",
    "waves",
    "lowrank",
    "moments",
    "select",
    "polynomials",
    "woodbury",
    "likelihood",
    "likeliest",
    "posterior",
    "spanning",
    "mechanism",
    "coin",
    "influence",
    "draft",
    "loudness",
    "equation",
    "law",
    "fork",
    "rehearsal",
    "search",
    "decisions",
    "scale",
    "method",
    "simulate",
    "quality",
    "findings",
    "diagnostics",
    "thin",
    "systems",
    "reduced",
    "nested",
    "conditional",
    "pieces",
    "functions",
    "building",
    "staged",
    "baselines",
    "nuisance",
    "value",
    "hindsight",
    "standing",
    "bout",
    "comparison",
    "store",
    "",
    "ink",
    "data",
    "tasks",
    "bench",
    "views",
    "plots",
    "check",
    "init",
    "problem_file",
    "report",
    "serve",
    "demo",
    "screen",
    "data_cli",
    "reproduce",
    "cli",
    "__main__",
]


def layer_of(path):
    first = path.relative_to(ROOT).parts[0].removesuffix(".py")
    return "" if first == "__init__" else first


def imports_of(path):
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module]
            if node.module == "forestall":
                names = [f"forestall.{alias.name}" for alias in node.names]
        else:
            continue
        yield from (layer_named(name) for name in names if is_own(name))


def is_own(name):
    return name == "forestall" or name.startswith("forestall.")


def layer_named(name):
    layer = [*name.split("."), ""][1]
    exists = (ROOT / layer).is_dir() or (ROOT / f"{layer}.py").exists()
    return layer if exists else ""


def test_every_file_has_its_place():
    assert {layer_of(path) for path in ROOT.rglob("*.py")} <= set(ORDER)


def test_a_file_imports_only_what_stands_above_it():
    rank = {layer: k for k, layer in enumerate(ORDER)}
    for path in ROOT.rglob("*.py"):
        own = layer_of(path)
        for layer in imports_of(path):
            assert rank[layer] <= rank[own], f"{path.name} imports {layer}"


def test_no_method_can_reach_the_truth():
    for path in ROOT.rglob("*.py"):
        if layer_of(path) in ORDER[: ORDER.index("")]:
            assert not {"tasks", "bench"} & set(imports_of(path)), path.name
