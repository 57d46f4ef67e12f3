"""Writes a program from a seed: helper classes, a function `f` of a few arguments, and `ARGUMENTS`, makers of each call's arguments."""

from __future__ import annotations

import ast
import functools
import random
import re
from dataclasses import dataclass, field

from .grammar import ARGUMENTS, CLASSES, EXPRESSIONS, LITERALS, LOOP_ENDS, PRELUDE, RAISES, RESULTS, STATEMENTS, TYPES

HOLE = re.compile(r"<(global|nonlocal|raise|[A-Z]+)([=!@]?)(\w*)>")
CALLS = 3
WEIGHTS = [weight for weight, _ in STATEMENTS]


@dataclass
class Scope:
    """Names that can be read here, as (name, type, own): `own` ones belong to the function being written and may be assigned."""

    names: list[tuple[str, str, bool]] = field(default_factory=list)

    def inner(self, own: bool = True) -> Scope:
        return Scope([(name, kind, mine and own) for name, kind, mine in self.names])

    def of(self, kind: str, own: bool = False) -> list[str]:
        return [name for name, k, mine in self.names if k == kind and (mine or not own)]


class Writer:
    def __init__(self, seed: int):
        self.random = random.Random(seed)
        self.count = 0
        self.left = self.random.choice((4, 8, 14, 24))      # statements still to write
        self.lines: list[str] = []

    def program(self) -> str:
        kinds = self.random.choices(TYPES, k=self.random.randint(2, 5))
        kinds = ["T", *[kind if kind in ARGUMENTS else "I" for kind in kinds]]
        parameters = [self.new_name(kind) for kind in kinds]
        scope = Scope([(name, kind, True) for name, kind in zip(parameters, kinds)])
        self.lines += ["def f(" + ", ".join(parameters) + "):"]
        if self.random.random() < 0.3:
            self.lines.append("    global COUNT")
            self.lines.append("    COUNT += 1")
        self.block(scope, "    ", 0, self.left)
        self.lines.append("    return " + self.fill(self.random.choice(RESULTS), scope, {}))
        tree = ast.parse("\n".join(self.lines) + "\n" + self.arguments(kinds))
        compile(tree, "<fuzz>", "exec")
        return _before() + ast.unparse(tree) + "\n"

    def arguments(self, kinds: list[str]) -> str:
        makers = [self.random.choice(ARGUMENTS[kind]) for kind in kinds]
        changed = [list(makers) for _ in range(CALLS)]
        grad = self.random.random() < 0.2
        rows = []
        for call, row in enumerate(changed):
            at = call if self.random.random() < 0.7 else 0
            texts = [maker.format(i=at if self.random.random() < 0.8 else call) for maker in row]
            if grad and kinds[0] == "T":
                texts[0] += ".requires_grad_()"
            rows.append(f"lambda: [{', '.join(texts)}]")
        return "ARGUMENTS = [" + ", ".join(rows) + "]\n"

    # -- statements ------------------------------------------------------------------------------------------------------------------

    def block(self, scope: Scope, indent: str, depth: int, count: int, loop: bool = False) -> None:
        for _ in range(max(count, 1)):
            self.statement(scope, indent, depth)
        if loop and self.random.random() < 0.3:
            self.template(self.random.choice(LOOP_ENDS), scope, indent, depth)

    def statement(self, scope: Scope, indent: str, depth: int) -> None:
        self.left -= 1
        while True:
            template = self.random.choices(STATEMENTS, WEIGHTS)[0][1]
            compound = "\n" in template
            if compound and (depth > 3 or self.left < 0):
                continue
            if "global" in template or template.startswith("return") and depth == 0:
                continue
            if all(scope.of(kind, own=True) for kind, mark, _ in HOLE.findall(template) if mark == "!"):
                break
        self.template(template, scope, indent, depth)

    def template(self, template: str, scope: Scope, indent: str, depth: int) -> None:
        """Writes the lines; variables of a header are seen in its block, those of plain lines also afterwards."""
        labels: dict[str, str] = {}
        scopes = {0: scope}
        for line in template.split("\n"):
            level = (len(line) - len(line.lstrip())) // 4
            here = scopes.setdefault(level, scopes[max(k for k in scopes if k < level)].inner()) if level not in scopes else scopes[level]
            for deeper in [k for k in scopes if k > level]:
                del scopes[deeper]
            inside, text = indent + "    " * level, line.strip()
            if text in ("<block>", "<loop>"):
                self.block(here.inner(), inside, depth + 1, self.random.randint(1, 3), loop=text == "<loop>")
            elif text == "<function>":
                self.function_body(here, inside, depth)
            elif text == "<raise>":
                self.template(self.random.choice(RAISES), here, inside, depth)
            else:
                inner = here.inner(own=not text.startswith("def ")) if text.endswith(":") else here
                self.lines.append(inside + self.fill(text, here, labels, inner))
                if text.endswith(":"):
                    scopes[level + 1] = inner
                    if text.startswith("def "):
                        self.publish(text, labels, here)

    def publish(self, text: str, labels: dict[str, str], scope: Scope) -> None:
        """The function's own name stands in the scope around it."""
        found = re.match(r"def <(FN|FI)=(\w+)>", text)
        if found:
            scope.names.append((labels[found[2]], found[1], False))

    def function_body(self, scope: Scope, indent: str, depth: int) -> None:
        outer = [(name, kind) for name, kind, own in scope.names if not own and kind in ("I", "T", "L") and name[0] != "p"]
        if outer and self.random.random() < 0.3:
            name, kind = self.random.choice(outer)
            self.lines.append(f"{indent}nonlocal {name}")
            scope.names.append((name, kind, True))
        elif self.random.random() < 0.2:
            self.lines.append(f"{indent}global COUNT")
            self.lines.append(f"{indent}COUNT = COUNT + 1")
        self.block(scope, indent, depth + 1, self.random.randint(1, 2))

    # -- expressions -----------------------------------------------------------------------------------------------------------------

    def fill(self, text: str, scope: Scope, labels: dict[str, str], into: Scope | None = None, depth: int = 0) -> str:
        """`text` with its holes filled; new variables are added to `into` at the end."""
        made: list[tuple[str, str, bool]] = []

        def hole(found: re.Match[str]) -> str:
            kind, mark, label = found.groups()
            match mark:
                case "=":
                    labels[label] = self.new_name(kind)
                    made.append((labels[label], kind, True))
                    return labels[label]
                case "@":
                    return labels[label]
                case "!":
                    return self.random.choice(scope.of(kind, own=True))
                case _:
                    return self.expression(kind, scope, depth)
        filled = HOLE.sub(hole, text)
        (into or scope).names.extend(made)
        return filled

    def expression(self, kind: str, scope: Scope, depth: int) -> str:
        known = scope.of(kind)
        if known and self.random.random() < (0.75 if depth else 0.25):
            return self.random.choice(known[-6:])
        if depth > 2 or self.random.random() < (0.5 if depth else 0.1):
            return self.random.choice(LITERALS[kind])
        return "(" + self.fill(self.random.choice(EXPRESSIONS[kind]), scope, {}, Scope(), depth + 1) + ")"

    def new_name(self, kind: str) -> str:
        self.count += 1
        return f"{kind.lower()}{self.count}"


@functools.cache
def _before() -> str:
    """What every program starts with."""
    return ast.unparse(ast.parse(PRELUDE + "\n".join(CLASSES.values()))) + "\n\n"


def write_program(seed: int) -> str:
    """The program of that seed; seeds whose text Python refuses (a name both read and declared global, say) give their successor's."""
    while True:
        try:
            return Writer(seed).program()
        except SyntaxError:
            seed += 1_000_000_007
