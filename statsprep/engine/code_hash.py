"""What code a run's results depend on, as hashes of syntax trees: comments, layout and docstrings do not
count.

Of the module that holds the runner only what the runner refers to is hashed, directly or through other names
of the module, so that a script may change its number of workers. Modules of the recipe that it imports are
hashed whole. Installed packages, the standard library and statsprep are left out; statsprep's own classes
carry a `results_version` instead.
"""

import ast
import hashlib
import importlib.util
import inspect
import sys
import sysconfig
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

_PACKAGE = Path(__file__).resolve().parents[1]
_OWN_FOLDERS = [_PACKAGE, *((_PACKAGE / name).resolve() for name in ("providers", "runners"))]
_FOREIGN_FOLDERS = [
    Path(sysconfig.get_path(name)).resolve() for name in ("stdlib", "platstdlib", "purelib", "platlib")
]


def hash_code(targets: Iterable[object]) -> dict[str, str]:
    """`{name: hash or version}` for classes and functions and for the recipe modules that they import.

    Args:
        targets: the runner's and provider's classes, and whatever else the config builds.
    """
    parts: dict[str, str] = {}
    modules: set[str] = set()
    for target in targets:
        for each in inspect.getmro(target)[:-1] if inspect.isclass(target) else (target,):
            name = f"{each.__module__}.{each.__qualname__}"  # type: ignore[attr-defined]
            module = sys.modules.get(each.__module__)
            if "results_version" in vars(each):
                parts[name] = f"results_version {vars(each)['results_version']}"
            elif module is None or _is_recipe(module):
                parts[name] = _hash_name(each, module, modules)
    for module_name in sorted(modules):
        parts[module_name] = _hash_module(module_name)
    return dict(sorted(parts.items()))


def _hash_name(target: object, module: ModuleType | None, modules: set[str]) -> str:
    tree = _tree_of(module) if module is not None else None
    if tree is None:
        return _hash_bytecode(target)
    definitions = _definitions(tree)
    wanted, queue = {}, [target.__qualname__.partition(".")[0]]  # type: ignore[attr-defined]
    if queue[0] not in definitions:
        return _hash_bytecode(target)
    while queue:
        name = queue.pop()
        if name in wanted or name not in definitions:
            continue
        wanted[name] = definitions[name]
        for node in wanted[name]:
            if isinstance(node, ast.Import | ast.ImportFrom):
                _follow_import(node, module, modules)
            queue += [each.id for each in ast.walk(node) if isinstance(each, ast.Name)]
            for each in ast.walk(node):
                if isinstance(each, ast.Import | ast.ImportFrom):
                    _follow_import(each, module, modules)
    text = "\n".join(_canonical(node) for name in sorted(wanted) for node in wanted[name])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _definitions(tree: ast.Module) -> dict[str, list[ast.stmt]]:
    """Top-level names and the statements that bind them, also those inside a top-level if or try."""
    bound: dict[str, list[ast.stmt]] = {}
    for statement in tree.body:
        names: list[str] = []
        for node in (
            ast.walk(statement) if isinstance(statement, ast.If | ast.Try | ast.With) else (statement,)
        ):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                names.append(node.name)
            elif isinstance(node, ast.Import | ast.ImportFrom):
                names += [alias.asname or alias.name.partition(".")[0] for alias in node.names]
            elif isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign):
                names += [each.id for each in ast.walk(node) if isinstance(each, ast.Name)]
        if _is_main_guard(statement):
            continue
        for name in names:
            bound.setdefault(name, []).append(statement)
    return bound


def _is_main_guard(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.If) and "__name__" in ast.unparse(statement.test)


def _follow_import(node: ast.Import | ast.ImportFrom, module: ModuleType | None, modules: set[str]) -> None:
    if isinstance(node, ast.Import):
        candidates = [alias.name for alias in node.names]
    else:
        base = node.module or ""
        if node.level:
            package = getattr(module, "__package__", "") or ""
            try:
                base = importlib.util.resolve_name("." * node.level + base, package)
            except ImportError:
                return
        candidates = [base, *(f"{base}.{alias.name}" for alias in node.names)]
    for name in candidates:
        found = _recipe_module(name)
        if found is None or name in modules:
            continue
        modules.add(name)
        for each in ast.walk(_tree_of(found) or ast.Module([], [])):
            if isinstance(each, ast.Import | ast.ImportFrom):
                _follow_import(each, found, modules)


def _recipe_module(name: str) -> ModuleType | None:
    """The imported recipe module of that name; one that a function imports later is imported now."""
    if name not in sys.modules:
        # find_spec imports the parent, so that either may raise anything; where the user's code needs it, it
        # shows itself.
        try:
            spec = importlib.util.find_spec(name)
            if spec is None or not spec.origin or not _is_recipe_file(Path(spec.origin)):
                return None
            importlib.import_module(name)
        except Exception:
            return None
    module = sys.modules.get(name)
    return module if module is not None and _is_recipe(module) else None


def _is_recipe(module: ModuleType) -> bool:
    source = getattr(module, "__file__", None)
    return (source is None and module.__name__ == "__main__") or (
        source is not None and _is_recipe_file(Path(source))
    )


@cache
def _is_recipe_file(path: Path) -> bool:
    resolved = path.resolve()
    # By name as well: packages of the system and of the user's home are on other paths than this
    # environment's.
    is_installed = not {"site-packages", "dist-packages"}.isdisjoint(resolved.parts)
    is_foreign = any(resolved.is_relative_to(folder) for folder in (*_FOREIGN_FOLDERS, *_OWN_FOLDERS))
    return resolved.suffix == ".py" and not is_installed and not is_foreign


def _tree_of(module: ModuleType) -> ast.Module | None:
    source = getattr(module, "__file__", None)
    try:
        return ast.parse(Path(source).read_bytes()) if source else None
    except (OSError, SyntaxError, ValueError):
        return None


def _hash_module(name: str) -> str:
    tree = _tree_of(sys.modules[name])
    text = _canonical(tree) if tree else ""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _canonical(node: ast.AST) -> str:
    """Source text of a node without comments, docstrings and layout."""
    for each in ast.walk(node):
        if isinstance(each, ast.Module | ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and each.body:
            first = each.body[0]
            if (
                isinstance(first, ast.Expr)
                and isinstance(first.value, ast.Constant)
                and isinstance(first.value.value, str)
            ):
                each.body = each.body[1:] or [ast.Pass()]
    return ast.unparse(node)


def _hash_bytecode(target: object) -> str:
    """For a class typed into a console, whose source is nowhere."""
    digest = hashlib.sha256()
    members = sorted(vars(target).items()) if inspect.isclass(target) else [("", target)]
    for name, member in members:
        function: Any = getattr(member, "__func__", member)
        code = getattr(function, "__code__", None)
        if code is not None:
            digest.update(f"{name}{code.co_names}{code.co_consts!r}".encode() + code.co_code)
    return "bytecode " + digest.hexdigest()[:16]
