"""How the reference of the site shows what it finds in the sources: an extension of griffe, which reads them.

A default that is the name of a constant is shown as what it is, `30.0` and not `LEEWAY`. The value of an attribute is
shown where it is a default of a class that users fill in; what a constructor assigns is how it works inside.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import griffe


class Reference(griffe.Extension):
    """Leaves out what is inside."""

    def on_attribute_instance(self, *, attr: griffe.Attribute, **_: Any) -> None:
        """Called for each attribute that was read."""
        if "instance-attribute" in attr.labels and "class-attribute" not in attr.labels:
            attr.value = None

    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        """Called when everything was read."""
        for function in functions(pkg):
            for parameter in function.parameters:
                if isinstance(parameter.default, griffe.ExprName):
                    parameter.default = constant(function, str(parameter.default)) or parameter.default


def functions(within: griffe.Module | griffe.Class) -> Iterator[griffe.Function]:
    """Every function of a module or class, and of those in it."""
    for member in within.members.values():
        if isinstance(member, griffe.Function):
            yield member
        elif isinstance(member, griffe.Module | griffe.Class):
            yield from functions(member)


def constant(function: griffe.Function, name: str) -> str | griffe.Expr | None:
    """The value of a constant of the package, as it is written; None for anything else."""
    try:
        found = function.module[name]
        found = found.final_target if isinstance(found, griffe.Alias) else found
    except (KeyError, griffe.GriffeError):
        return None
    return found.value if isinstance(found, griffe.Attribute) and name.isupper() else None
