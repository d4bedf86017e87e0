"""The declaration of an MCP extension, one value for both ends. Pure.

An extension has a name and settings, which both ends put into `capabilities.extensions`. It may add methods, results,
topics of subscriptions and options of entries (2026-07-28's basic/versioning, "Extension Negotiation"; basic/index,
"ResultType"). Its functions are given to the server and the client: see `server.extending` and `client.extending`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import msgspec
from msgspec import NODEFAULT, UNSET, Struct, UnsetType, field

from ...jsonrpc.errors import LocalError
from ...jsonrpc.options import FLAG, NONE, Rule, instance
from .encoding import members_of
from .methods import DEFINED_CODES, METHODS, RESERVED_CODES, Row
from .params import COMPLETE, INPUT_REQUIRED
from .revisions import R2025_06, R2025_11, REVISIONS, Revision
from .types import ServerCapabilities

if TYPE_CHECKING:
    from .admission import Admitted
else:
    Admitted = Any  # start-up: annotations resolve at run time, to no more than this

ResultStruct: TypeAlias = type[Struct]
Stage: TypeAlias = Literal["experimental", "beta", "stable"]
"""How settled the specification of an extension is (SEP-3392)."""
STAGES: Final = ("experimental", "beta", "stable")
OPTION_KINDS: Final = ("tool", "resource", "prompt")
"""The kinds of entries to which an extension may add options."""
_LABEL: Final = r"[A-Za-z](?:[A-Za-z0-9-]*[A-Za-z0-9])?"
_NAME: Final = rf"{_LABEL}(?:\.{_LABEL})*/[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?"
_OWN_CAPABILITIES: Final = members_of(ServerCapabilities).keys() - {"tasks"}
"""The members of a server's capabilities that no extension may return; one may return `tasks`, which no server here
declares itself."""
_FILTER_MEMBERS: Final = ("toolsListChanged", "promptsListChanged", "resourcesListChanged", "resourceSubscriptions")
"""The protocol's own members of the filter of `subscriptions/listen`."""


class StatefulForm(Struct, frozen=True, kw_only=True):
    """How a result of an extension is written in stateful revisions, which have no `resultType`."""

    type: ResultStruct
    """The Struct of this form."""
    member: str
    """The member, by its name in JSON, by which a client recognises this form; the method's usual result has no such
    member."""
    convert: Callable[[Any], Struct]
    """Returns a result of the extension in this form."""
    for_call: Callable[[Admitted], bool] | None = None
    """Returns whether the client of a call accepts this form; None: every client that has declared the extension
    does."""
    since: Revision = R2025_06
    """The first revision with this form."""
    until: Revision = R2025_11
    """The last revision with this form."""

    def within(self, revision: Revision) -> bool:
        """Return whether the result has this form in `revision`."""
        return revision.stateful and self.since.order <= revision.order <= self.until.order


class ResultType(Struct, frozen=True, kw_only=True):
    """A result that an extension adds; its key in `Extension.results` is its `resultType`."""

    type: ResultStruct
    """The Struct that functions return, as stateless revisions write it."""
    stateful: StatefulForm | None = None
    """Its form in stateful revisions; None: this result does not exist in them."""


class Topic(Struct, frozen=True, kw_only=True):
    """A kind of notifications to which clients subscribe by a member of the filter of `subscriptions/listen`.

    The server's `ServerExtension.grant` decides how much of the requested value a caller is granted, and under which
    keys. `ServerHome.notify(topic, key, params)` reaches the callers that were granted the key.
    """

    name: str
    """The name by which `grant` and `notify` know it."""
    method: str
    """The method of its notifications."""
    member: str
    """The member of the filter, and of the acknowledgment."""
    sessions: bool = False
    """Whether sessions of the stateful era, which have no filter, get these notifications too. `grant` is called once
    for each such session, when it is initialized, if its client has declared the extension."""


class Extension(Struct, frozen=True, kw_only=True):
    """What an extension declares.

    Raises LocalError for a name without a prefix ("com.example/echo" has one), for methods, topics, capabilities and
    values of `resultType` that the protocol has itself, and for rows, results, topics and options that are not valid.
    """

    name: str
    """Its name, such as "com.example/echo": "Extension identifiers MUST follow the `_meta` key naming rules, with a
    mandatory prefix"."""
    stage: Stage = "stable"
    """How settled its specification is."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """The value for its name in `capabilities.extensions`, a JSON object."""
    capabilities: Callable[[Revision], Mapping[str, Any]] | None = None
    """Returns the members that it adds to a server's capabilities in a revision; None: it adds none."""
    methods: tuple[Row, ...] = ()
    """The methods that it adds, each in the revisions that its row names."""
    results: Mapping[str, ResultType | type[Struct]] = field(default_factory=dict)
    """The results that it adds, by `resultType`; a bare Struct has no stateful form."""
    topics: tuple[Topic, ...] = ()
    """The topics that it adds to subscriptions."""
    options: Mapping[str, Mapping[str, Rule | type]] = field(default_factory=dict)
    """The options that it adds to the decorators of "tool", "resource" and "prompt", each with the type of its values
    or a `Rule` for them. An option that is not given is None, so a `Rule` has to accept None."""
    codes: frozenset[int] = frozenset()
    """The codes, of those that the protocol reserves, which its specification defines for errors of its methods."""

    def __post_init__(self) -> None:
        if re.fullmatch(_NAME, self.name) is None:
            raise LocalError(f"{self.name!r} names no extension: it has a prefix and a name, as in com.example/echo")
        if self.stage not in STAGES:
            raise LocalError(f"{self.name}: stage is one of {', '.join(STAGES)}, and not {self.stage!r:.40}")
        for row in self.methods:
            self._check_row(row)
        for kind, result in self.result_types.items():
            if kind in (COMPLETE, INPUT_REQUIRED) or not _is_struct(result.type):
                raise LocalError(f"{self.name}: results are Structs by a resultType of their own, and not {kind!r}")
            if (wrong := _result_type_fault(result.type, kind)) is not None:
                raise LocalError(
                    f"{self.name}: {result.type.__name__} cannot be a result of the type {kind!r}: {wrong}"
                )
            if result.stateful is not None:
                where = f"{self.name}: clients recognise {kind!r} in stateful revisions"
                _check_member(result.stateful.type, where, result.stateful.member)
        for topic in self.topics:
            if not isinstance(topic, Topic):
                raise LocalError(f"{self.name}: topics are Topic(name, method, member), and not {topic!r:.100}")
            if topic.method in METHODS or topic.member in _FILTER_MEMBERS:
                raise LocalError(f"{self.name}: {topic.method} and {topic.member} are the protocol's own: name others")
        for where, rules in self.options.items():
            self._check_options(where, rules)
        if wrong_codes := sorted(self.codes - frozenset(RESERVED_CODES) | self.codes & DEFINED_CODES.keys()):
            raise LocalError(
                f"{self.name}: {wrong_codes[0]} is the protocol's own, or not reserved: leave it out of codes"
            )
        if self.capabilities is not None:
            for revision in REVISIONS.values():
                self._check_capabilities(revision)

    def _check_row(self, row: Row) -> None:
        if not isinstance(row, Row):
            raise LocalError(f"{self.name}: methods are rows, Row(name, params, result), and not {row!r:.100}")
        if row.name in METHODS:
            raise LocalError(f"{self.name}: {row.name} is a method of the protocol itself")
        if row.named is not None:
            _check_member(row.params, f"{self.name}: {row.name} repeats {row.named} in the header Mcp-Name", row.named)
        if row.ask:
            _check_fields(row.params, f"{self.name}: {row.name} may ask", "input_responses", "request_state")
        if row.cacheable:
            _check_fields(row.result, f"{self.name}: {row.name} is cacheable", "ttl_ms", "cache_scope")

    def _check_options(self, kind: str, rules: Mapping[str, Rule | type]) -> None:
        if kind not in OPTION_KINDS:
            raise LocalError(f"{self.name}: options are those of {', '.join(OPTION_KINDS)}, and not of {kind!r}")
        for name, rule in rules.items():
            named = isinstance(name, str) and name.isidentifier()
            if not named or not (isinstance(rule, type) or (isinstance(rule, Rule) and rule.fits(None))):
                raise LocalError(f"{self.name}: the option {name!r} of a {kind} has a type, or a Rule that None fits")

    def _check_capabilities(self, revision: Revision) -> None:
        assert self.capabilities is not None
        members = self.capabilities(revision)
        if not isinstance(members, Mapping) or not all(isinstance(name, str) for name in members):
            raise LocalError(
                f"{self.name}: capabilities({revision.date}) returns members by name, not {members!r:.100}"
            )
        if own := sorted(_OWN_CAPABILITIES & members.keys()):
            raise LocalError(
                f"{self.name}: capabilities({revision.date}) returns {', '.join(own)}, which the server declares itself"
            )

    @property
    def result_types(self) -> dict[str, ResultType]:
        """`results`, each as a `ResultType`."""
        return {
            kind: one if isinstance(one, ResultType) else ResultType(type=one) for kind, one in self.results.items()
        }


def _rule_for_type(kind: type) -> Rule:
    """Return the rule of an option whose values are of a type, or None; True and False do not pass as numbers."""
    if kind is bool:
        return FLAG | NONE
    fits = instance(kind, f"a value of the type {kind.__name__}").fits
    return Rule(lambda value: fits(value) and not isinstance(value, bool), f"of the type {kind.__name__}") | NONE


def overrides(extension: object, base: type, name: str) -> bool:
    """Return whether the class of an object has a method of its own, in place of that of `base`."""
    return getattr(type(extension), name) is not getattr(base, name)


def _is_struct(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Struct)


def _result_type_fault(result: type[Struct], kind: str) -> str | None:
    """Return why results of the type `result` cannot be sent with the `resultType` `kind`; None if they can. A result
    without a member `resultType` gets it when it is sent."""
    config = result.__struct_config__
    if config.array_like:
        return "it is an array in JSON"
    if config.tag is not None and config.tag_field == "resultType":
        return None if config.tag == kind else f"its tag is {config.tag!r}"
    tag = next((one for one in msgspec.structs.fields(result) if one.encode_name == "resultType"), None)
    if tag is None:
        return None
    if tag.default not in (NODEFAULT, kind):
        return f"its {tag.name} is {tag.default!r}"
    return "omit_defaults leaves it out" if config.omit_defaults and tag.default == kind else None


def _check_fields(kind: type[Struct] | None, what: str, *names: str) -> None:
    """Raise LocalError unless a type has these fields. `what`: the declaration that needs them, for the error."""
    if not all(hasattr(kind, name) for name in names):
        raise LocalError(f"{what}: then {kind!r} has the fields {' and '.join(names)}")


def _check_member(kind: type[Struct], where: str, member: str) -> None:
    """Raise LocalError unless a type has this member in JSON. `where`: the declaration that needs it, for the error."""
    if member not in members_of(kind):
        raise LocalError(f"{where}: then {kind.__name__} has a member of that name in JSON, {member!r}")


class Extensions:
    """The extensions of one server or client. Raises LocalError if two have the same name, method, `resultType`, topic,
    option, or capability."""

    def __init__(self, given: Iterable[Extension] = ()) -> None:
        self.all: tuple[Extension, ...] = tuple(given)
        self.methods: dict[str, Row] = dict(METHODS)
        """The methods of the protocol and of all extensions, by name."""
        self.results: dict[str, ResultType] = {}
        """The results that the extensions add, by `resultType`."""
        self.topics: dict[str, Topic] = {}
        """The topics that the extensions add, by name."""
        self.options: dict[str, dict[str, Rule]] = {kind: {} for kind in OPTION_KINDS}
        """The rules of the options that the extensions add, by kind of entry and name."""
        self._by_method: dict[str, Extension] = {}
        self._by_topic: dict[str, Extension] = {}
        names: set[str] = set()
        for one in self.all:
            if one.name in names:
                raise LocalError(f"the extension {one.name} is given twice")
            names.add(one.name)
            self._add(one)
        for revision in REVISIONS.values():
            declared = [name for one in self.all if one.capabilities for name in one.capabilities(revision)]
            if twice := {name for name in declared if declared.count(name) > 1}:
                raise LocalError(f"two extensions declare the capability {', '.join(sorted(twice))}")

    def _add(self, one: Extension) -> None:
        """Add what an extension declares to that of the others. Raises LocalError for what another one has already."""
        for row in one.methods:
            if row.name in self._by_method:
                raise LocalError(f"{one.name} and {self._by_method[row.name].name} both have the method {row.name}")
            self.methods[row.name] = row
            self._by_method[row.name] = one
        for kind, result in one.result_types.items():
            if kind in self.results:
                raise LocalError(f"{one.name}: another extension has the resultType {kind!r} already")
            self.results[kind] = result
        for topic in one.topics:
            same = [each for each in self.topics.values() if topic.name == each.name or topic.member == each.member]
            if same:
                raise LocalError(
                    f"{one.name}: another topic is called {same[0].name!r}, by {same[0].member!r}, already"
                )
            self.topics[topic.name] = topic
            self._by_topic[topic.name] = one
        for where, rules in one.options.items():
            for name, rule in rules.items():
                if name in self.options[where]:
                    raise LocalError(f"{one.name}: another extension has the option {name!r} of a {where} already")
                self.options[where][name] = _rule_for_type(rule) if isinstance(rule, type) else rule

    def of_method(self, name: str) -> Extension | None:
        """Return the extension that adds a method; None: the method is the protocol's own, or unknown."""
        return self._by_method.get(name)

    def of_topic(self, name: str) -> Extension:
        """Return the extension that adds a topic. Raises KeyError for an unknown topic."""
        return self._by_topic[name]

    @property
    def declared(self) -> dict[str, Any] | UnsetType:
        """The value of `capabilities.extensions`: the settings of each, by name; UNSET without extensions."""
        return {one.name: dict(one.settings) for one in self.all} if self.all else UNSET

    def capabilities(self, revision: Revision) -> dict[str, Any]:
        """Return the members that the extensions add to a server's capabilities in a revision, beside `extensions`."""
        found: dict[str, Any] = {}
        for one in self.all:
            found |= {} if one.capabilities is None else one.capabilities(revision)
        return found


NO_EXTENSIONS: Final = Extensions()
"""No extensions: only the protocol's own methods."""
