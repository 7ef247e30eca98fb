"""Lower layers never import higher ones: the architecture of docs/architecture.md, held by a test."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import ubp2

ROOT = Path(ubp2.__file__).parent

# From the bottom up. A name covers what lies below it unless a longer one does. Modules of one layer may import
# each other.
LAYERS = (
    ("_version", "errors", "types", "config.schema", "config.sections"),
    (
        "config",
        "system",
        "signals",
        "storage.database",
        "storage.locks",
        "terminal.colour",
        "terminal.flags",
        "terminal.progress",
    ),
    ("storage", "replay", "models.networks", "models.kernels", "envs"),
    ("models", "planning.optimizers", "preference", "vision"),
    ("planning",),
    ("agents",),
    ("evaluation",),
    ("training",),
    (
        "trained",
        "trainer",
        "run_names",
        "api",
        "bench",
        "lab",
        "labelling",
        "experiments",
        "theory",
        "sharing",
        "doctor",
    ),
    ("terminal",),
    ("__main__",),
)


def test_imports_point_downwards() -> None:
    upward = [
        f"{module} (layer {layer(module)}) imports {imported} (layer {layer(imported)})"
        for module, imported in imports()
        if layer(imported) > layer(module)
    ]
    assert not upward, "\n".join(upward)


def test_the_architecture_page_has_these_layers() -> None:
    page = (ROOT.parents[1] / "docs" / "architecture.md").read_text(encoding="utf-8")
    table = page.partition("| layer | modules |")[2].partition("\n\n")[0]
    told = [set(re.findall(r"`([\w.]+)`", row.split("|")[2])) for row in table.splitlines()[2:]]
    held = [{name for name in names if not name.startswith("_")} for names in LAYERS]
    assert told == [names for names in held if names], "docs/architecture.md and LAYERS differ"


def test_modules_that_start_fast_import_nothing_heavy_at_the_top() -> None:
    """`ubp2 --help` and environment workers load these; what they need of jax is imported inside functions."""
    light = {
        "errors",
        "types",
        "config/schema",
        "config/sections",
        "config/files",
        "config/presets",
        "system",
        "storage/runs",
        "storage/population",
        "terminal/colour",
        "terminal/completion",
        "terminal/arguments",
        "terminal/flags",
        "terminal/progress",
        "terminal/usage",
        "terminal/commands",
        "terminal/descriptions",
        "terminal/cli",
        "bench/options",
        "doctor/options",
        "evaluation/options",
        "experiments/options",
        "experiments/tuning/options",
        "lab/options",
        "lab/settings",
        "lab/subject",
        "labelling/labels_options",
        "labelling/options",
        "sharing/answers",
        "sharing/options",
        "theory/options",
        "vision/options",
    }
    heavy = {"jax", "equinox", "optax", "scipy", "matplotlib", "gymnasium", "metaworld", "mujoco", "dm_control", "rich"}
    for name in light:
        tree = ast.parse((ROOT / f"{name}.py").read_text(encoding="utf-8"))
        top = {target.split(".")[0] for node in tree.body for target in targets(node)}
        assert not top & heavy, f"{name} imports {top & heavy} at the top"


def imports() -> list[tuple[str, str]]:
    """Every (module, module of ubp2 that it imports), inside functions too; names without 'ubp2.'."""
    found = []
    for path in sorted(ROOT.rglob("*.py")):
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        if module == "__init__":  # the public names, from any layer
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            for target in targets(node):
                if target.startswith("ubp2."):
                    found.append((module, target.removeprefix("ubp2.")))
    return found


def targets(node: ast.AST) -> list[str]:
    """Modules that an import statement names; `from ubp2.x import y` may name ubp2.x.y, and either has its layer."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom) and node.module and not node.level:
        return [f"{node.module}.{alias.name}" if is_package(node.module) else node.module for alias in node.names]
    return []


def is_package(module: str) -> bool:
    return (ROOT.parent / module.replace(".", "/")).is_dir()


def layer(module: str) -> int:
    """The layer of the longest name in `LAYERS` that covers `module`."""
    parts = module.split(".")
    for length in range(len(parts), 0, -1):
        name = ".".join(parts[:length])
        for number, names in enumerate(LAYERS):
            if name in names:
                return number
    raise AssertionError(f"ubp2.{module} stands in no layer: add it to LAYERS in {Path(__file__).name}")
