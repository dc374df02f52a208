"""Check lines of code by package against scripts/budget.toml, and the two lists there that only shrink.

A line of code is neither blank, nor a comment, nor in a statement that is only a string (a docstring, the
sentence under a field). The lists count by file: every getattr with a constant name, every import of our own
modules within a function. '--write' lowers what became smaller; an editor alone raises a figure.
"""

import ast
import io
import sys
import tokenize
import tomllib
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[1]
BUDGET = ROOT / "scripts" / "budget.toml"
OURS = ("corag", "ircot", "retrieval", "eval", "training", "benchmarks")
LAYOUT = ("COMMENT", "NL", "NEWLINE", "INDENT", "DEDENT", "ENDMARKER")
HEAD = "# Lines of code by package, and two lists by file that only shrink; what counts: scripts/budget.py."


def code_lines(source: str, tree: ast.Module) -> int:
    """Lines of code of a module."""
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    spans = [(t.start[0], t.end[0]) for t in tokens if tokenize.tok_name[t.type] not in LAYOUT]
    strings = [
        (node.lineno, node.end_lineno or node.lineno)
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(getattr(node.value, "value", None), str)
    ]
    code, left_out = (
        {n for first, last in part for n in range(first, last + 1)} for part in (spans, strings)
    )
    return len(code - left_out)


def is_constant_getattr(node: ast.AST) -> bool:
    """Whether this reads an attribute by a name that is written down."""
    return (
        isinstance(node, ast.Call)
        and ast.unparse(node.func) == "getattr"
        and isinstance(node.args[1], ast.Constant)
    )


def late_imports(tree: ast.Module) -> set[ast.AST]:
    """Imports of our own modules within functions."""
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    imports = {n for f in functions for n in ast.walk(f) if isinstance(n, ast.Import | ast.ImportFrom)}
    return {n for n in imports if ast.unparse(n).split()[1].split(".")[0] in OURS}


def measure(packages: list[str]) -> dict[str, dict[str, int]]:
    """Lines by package, the longest path above a file; both lists by file."""
    found = {"lines": Counter(dict.fromkeys(packages, 0)), "getattr": Counter(), "late_imports": Counter()}
    for file in sorted(p for top in {n.split("/")[0] for n in packages} for p in (ROOT / top).rglob("*.py")):
        name, source = str(file.relative_to(ROOT)), file.read_text(encoding="utf-8")
        tree = ast.parse(source)
        package = max((p for p in packages if name.startswith((p + "/", p + ".py"))), key=len)
        found["lines"][package] += code_lines(source, tree)
        if name.startswith(OURS):
            found["getattr"][name] = sum(map(is_constant_getattr, ast.walk(tree)))
            found["late_imports"][name] = len(late_imports(tree))
    return {kind: dict(counts) for kind, counts in found.items()}


def main() -> int:
    """0 where nothing is above its figure."""
    budget = tomllib.loads(BUDGET.read_text(encoding="utf-8"))
    found = measure(list(budget["lines"]))
    above = [
        f"{kind}: {name} {count}, {budget[kind].get(name, 0)} in scripts/budget.toml"
        for kind, counts in found.items()
        for name, count in counts.items()
        if count > budget[kind].get(name, 0)
    ]
    if "--write" in sys.argv:
        parts = [HEAD]
        for kind, counts in budget.items():
            kept = {name: min(figure, found[kind].get(name, 0)) for name, figure in counts.items()}
            rows = [f'"{name}" = {figure}' for name, figure in kept.items() if figure or kind == "lines"]
            parts.append("\n".join([f"\n[{kind}]", *rows]))
        BUDGET.write_text("\n".join(parts) + "\n", encoding="utf-8")
    sys.stdout.write("".join(line + "\n" for line in above) or "lines of code: within their budgets\n")
    return 1 if above else 0


if __name__ == "__main__":
    raise SystemExit(main())
