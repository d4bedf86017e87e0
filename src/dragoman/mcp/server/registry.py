"""The tools, resources, templates and prompts of a server: registered, found by name, and listed in pages.

Entries can be added, removed, enabled and disabled at any time, from any thread; `changed` is called for each change.
`listing` describes lists and cursors.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, Final, Unpack

import msgspec
from msgspec import UNSET, Raw, UnsetType

from ...channel import Caller
from ...jsonrpc.errors import InvalidParams, LocalError, Refusal, RpcError
from ...jsonrpc.options import nearest, nearest_name
from ...repeats import Repeats
from ...rpc.binding.signature import defined_again
from ...rpc.including import Commit, guarded, joined
from ...rpc.method import Method, RunOptions
from ...rpc.middleware import Middleware
from ...rpc.service import Service
from ...rpc.switching import Switches
from ..protocol.admission import NOTHING, Admitted
from ..protocol.encoding import decode
from ..protocol.headers import HTTP, check_arguments
from ..protocol.methods import HEADER_MISMATCH
from ..protocol.params import PromptReference, ResourceTemplateReference
from ..protocol.revisions import NEWEST, REVISIONS, Revision
from ..protocol.types import ClientCapabilities
from ..protocol.uri import normal, plain, unescaped, without_query
from ..protocol.uri_template import Template, normal_reference
from ..session.changes import EntryId, Visible, sees
from .entries import arguments_of, completion_for, method_entry, name_for, prompt_entry, resource_entry, tool_entry
from .errors import missing_resource
from .extending.extension import ServerExtensions
from .extending.foreign import ForeignFunction, ForeignOptions, foreign_entry
from .including import included_entry, joined_uri, marked_entries
from .listing import LISTED, LISTINGS, Adding, Entries, Listing, check_distinct, demands_more, subscription_method
from .listing import Entry as Entry
from .options import PromptOptions, ResourceOptions, ToolOptions
from .surroundings import Surroundings
from .table import Lookup

logger: logging.Logger = logging.getLogger("dragoman.mcp")
repeats: Repeats = Repeats(logger)

MOST_TOOLS: Final = 128
"""Tools beyond which the log warns, once: VS Code and OpenAI's models take 128, other hosts fewer."""
MOST_URIS: Final = 1_000
"""Resources of one subscription whose demands are checked: a subscription with more is refused."""
GONE: Final = 1_000
"""Removed entries whose visibility is remembered: if another replica removes them later, the right callers are
notified."""
TO_ALL: Final = 256
"""Characters of a name or URI that is looked up for strangers: requests cost them nothing, and to compare one of 16 KB
with templates takes 28 ms."""
PROPOSED: Final = 100
"""Entries among which an error looks for the name nearest to an unknown one."""
_SHORT: Final = 128
"""Characters of a name that an error repeats whole, and for which it looks for a near one."""
_CALLED: Final = {"tool": "tools/call", "prompt": "prompts/get", "resource": "resources/read"}
"""The method by which each kind of entry is called."""
SWITCHED: Final = ("tool", "resource", "prompt")
"""The kinds that `turn` accepts: a template counts as a resource."""


class Registry:
    """All entries of a server. `changed("tools" | "resources" | "prompts", entry)` is called after each change of a
    list."""

    def __init__(
        self, surroundings: Surroundings, extending: ServerExtensions, *, changed: Callable[[str, Entry], None]
    ) -> None:
        self.surroundings = surroundings
        self._extending = extending
        self._adding = {one.declares.name: one.listed for one in extending.listing}
        options = surroundings.options
        self._service = surroundings.service
        self.includers: list[IncludedServer] = []
        self._changed = changed
        self._lists = {name: Entries(name, options.page_size, self._adding) for name in LISTINGS.values()}
        self._tools, self._resources = self._lists["tools"], self._lists["resources"]
        self._templates, self._prompts = self._lists["templates"], self._lists["prompts"]
        self._switches = Switches()
        self._crowded = False
        self.contextual: bool = False
        """Whether a function takes, or took, a `Context`, with which it may log."""
        self._functions: dict[EntryId, dict[str, Callable[..., Any]]] = {}
        """The functions that were registered one by one: that of an entry under "", its completions by argument."""
        self._gone: dict[EntryId, Visible | None] = {}
        """The function that decided who could see a removed entry, the latest last."""
        self._ranked: list[tuple[Entry, Template, Template]] = []
        """Templates, the most specific first, each with the template that matches a URI, and the one that matches its
        plain form."""
        self._escaping: dict[str, tuple[str, ...]] = {}
        """The URIs with percent-encoded delimiters, by the form in which these are decoded."""
        self._escapes = False
        """Whether there are such URIs or templates."""
        hints = f'"resultType":"complete","ttlMs":{int(options.ttl * 1000)},"cacheScope":'
        begins = surroundings.stamp.prefix + hints.encode()
        self._begins = begins + f'"{options.cache_scope}",'.encode(), begins + b'"private",'

    def add_tool(
        self, function: Callable[..., Any], *, name: str | None = None, **options: Unpack[ToolOptions]
    ) -> Entry:
        """Register a tool; it replaces an earlier definition of the same function. Raises LocalError for a name that is
        taken, and for a function that cannot be a tool."""
        return self._add(tool_entry(self.surroundings, name_for(name, function), function, **options), function)

    def _add(self, entry: Entry, function: Callable[..., Any]) -> Entry:
        for extension in self._extending.adapting:
            entry = extension.adapt(entry)
        known = self._functions.get(entry.id, {})
        if defined_again(known.get(""), function):
            self._define_again(entry)
        else:
            self._commit(self.planned([entry]))
        self._functions[entry.id] = known | {"": function}
        return entry

    def _define_again(self, entry: Entry) -> None:
        """Register an entry in place of the earlier one of its key, with the completions of arguments that it still
        has."""
        _check_listing(entry, self._adding)
        [before] = self._lists[LISTINGS[entry.kind]].of(entry.key, entry.version)
        self.remove(entry.kind, entry.key, entry.version, back=True)
        self._commit(self.planned([entry]))
        for argument, method in before.completions.items():
            if argument in arguments_of(entry):
                self._complete(entry, argument, method)
        logger.info("the %s %s is defined again, and replaced", entry.kind, entry.key)

    def _commit(self, commits: Iterable[Commit]) -> None:
        for commit in commits:
            commit()

    def include(self, other: object, namespace: str, prefix: str, tags: frozenset[str]) -> None:
        """Register each JSON-RPC method of a service as a tool, or the functions that the class of an instance marks.

        Raises LocalError, without registering any of them, for a name that is taken and for arguments without names.
        """
        if not isinstance(other, Service):
            self._commit(self.planned(marked_entries(other, self.surroundings, namespace, prefix, tags)))
            return
        guarded(self._service._guarded, other._guarded)
        includer = IncludedMethods(self, other, joined("Server", namespace, prefix, "_"), tags)
        commits = includer.planned(other._registered.values())
        self._service._dependencies.include(other._dependencies)
        self._commit(commits)
        other._includers.append(includer)

    def include_registry(self, other: Registry, namespace: str, prefix: str, tags: frozenset[str]) -> None:
        """Register all entries of another server, now and later. Raises LocalError for a name that is taken."""
        guarded(self._service._guarded, other._service._guarded)
        includer = IncludedServer(self, other, namespace, joined("Server", namespace, prefix, "_"), tags)
        commits = includer.planned(other.everything())
        self._service._dependencies.include(other._service._dependencies)
        self._commit(commits)
        other.includers.append(includer)

    def add_resource(self, function: Callable[..., Any], uri: str, **options: Unpack[ResourceOptions]) -> Entry:
        """Register a resource, or a template if the URI has `{...}`.

        Raises LocalError for a URI that is invalid or taken, and for variables that the function does not take.
        """
        return self._add(resource_entry(self.surroundings, uri, function, **options), function)

    def add_prompt(
        self, function: Callable[..., Any], *, name: str | None = None, **options: Unpack[PromptOptions]
    ) -> Entry:
        """Register a prompt. Raises LocalError for a name that is taken, and for arguments without names."""
        return self._add(prompt_entry(self.surroundings, name_for(name, function), function, **options), function)

    def add_foreign(
        self, kind: str, listed: Raw, function: ForeignFunction, **options: Unpack[ForeignOptions]
    ) -> Entry:
        """Register a "tool", "resource", "template" or "prompt" of another server, described by its JSON text.

        `function(params, context)`, plain or async, gets the params of each request as they came, and returns the whole
        result as JSON text, both as `msgspec.Raw`. Raises LocalError for text that describes no such entry, and for a
        name or URI that is taken.
        """
        return self._add(foreign_entry(self.surroundings, kind, listed, function, **options), function)

    def add_completion(
        self, function: Callable[..., Any], ref: str, argument: str, **options: Unpack[RunOptions]
    ) -> None:
        """Register the completion of an argument of a prompt (`ref`: its name) or of a template (its text), for each
        version that has such an argument.

        Raises LocalError if there is no such prompt, template or argument, or it already has a completion.
        """
        entries = self._prompts.of(ref) or self._templates.of(normal_reference(ref))
        if not entries:
            raise LocalError(f"there is no prompt and no template {ref!r}: register it before its completions")
        having = [one for one in entries if argument in arguments_of(one)]
        if not having:
            names = dict.fromkeys(name for one in entries for name in arguments_of(one))
            raise LocalError(f"{ref} has no argument {argument!r}; it has {', '.join(names) or 'none'}")
        free = [
            one
            for one in having
            if argument not in one.completions or defined_again(self._functions.get(one.id, {}).get(argument), function)
        ]
        if not free:
            raise LocalError(f"{ref}: {argument!r} is completed by a function already")
        for one in free:
            method = completion_for(self.surroundings, f"{ref}, {argument!r}", function, **options)
            if argument in one.completions:
                logger.info("the completion of %s of %s is defined again, and replaced", argument, ref)
            self._complete(one, argument, method)
            self._functions.setdefault(one.id, {})[argument] = function

    def _complete(self, entry: Entry, argument: str, method: Method) -> None:
        """Set the method that completes an argument of this entry, here and where the server is included."""
        self._link(method)
        entry.completions = entry.completions | {argument: method}
        for includer in self.includers:
            includer.relink([entry])

    def remove(self, kind: str, key: str, version: str | None = None, *, back: bool = False) -> None:
        """Remove an entry in all versions or in this one. `kind`: "tool", "resource" (also for a template) or "prompt".
        `back`: it may come back, from an included server or by a new definition, and is disabled then if it is now.
        Raises LocalError if there is none."""
        where, entries = self._registered(kind, key, version)
        for entry in entries:
            where.remove(entry)
            self._switches.remove(entry.id, back=back)
            self._functions.pop(entry.id, None)
            self._gone[entry.id] = entry.shown_to
            if len(self._gone) > GONE:
                del self._gone[next(iter(self._gone))]
            self._index(entry)
            for includer in self.includers:
                includer.dropped(entry)
            if entry.enabled:
                self._report_change(entry)
        if not where.of(key) and (watch := self._service._watch) is not None:
            watch.removed(_CALLED["resource" if kind == "template" else kind], key)

    def drop(self, kind: str, key: str, version: str) -> None:
        """Remove an entry that the included server has removed, unless it was removed here already."""
        if self._lists[LISTINGS[kind]].of(key, version):
            self.remove(kind, key, version, back=True)

    def turn(self, kind: str | None, key: str | None, tag: str | None, version: str | None, on: bool) -> None:
        """Enable or disable an entry, or all of a tag or a kind, later ones too. A disabled entry is not listed, and
        unknown when it is called. Raises LocalError if there is no such entry."""
        call = "enable" if on else "disable"
        complete = (kind is None) != (tag is None) and (kind is not None or key is None)
        if (
            not complete
            or (version is not None and key is None)
            or not all(one is None or isinstance(one, str) for one in (kind, key, tag, version))
        ):
            raise LocalError(
                f'{call} takes a kind, {call}("tool"), a kind and a name, {call}("tool", "erase"), or a tag, '
                f'{call}(tag="admin")'
            )
        if kind is not None and key is not None:
            _, entries = self._registered(kind, key, version)
            self._switches.name([entry.id for entry in entries], on)
            for entry in entries:
                self._switch(entry)
            return
        if kind is not None and kind not in SWITCHED:
            raise LocalError(f"there is no kind {kind!r}; {nearest(kind, SWITCHED)}")
        concerned = set(self._switches.turn(kind, tag, on))
        for entry in self.everything():
            if entry.id in concerned:
                self._switch(entry)

    def switch(self, kind: str, key: str, version: str, on: bool) -> None:
        """Enable or disable an entry as the included server has done, unless it was removed here."""
        for entry in self._lists[LISTINGS[kind]].of(key, version):
            self._switches.give(entry.id, on)
            self._switch(entry)

    def _switch(self, entry: Entry) -> None:
        """Enable or disable an entry by the present state of its switches."""
        where, on = self._lists[LISTINGS[entry.kind]], self._switches.on(entry.id)
        if where.switch(entry, on):
            for includer in self.includers:
                includer.switched(entry, on)
            self._report_change(entry)

    def _report_change(self, entry: Entry) -> None:
        """Report that the list with this entry has changed."""
        self._changed(f"{entry.switched_as}s", entry)

    def planned(self, entries: Iterable[Entry]) -> list[Commit]:
        """Return functions that register these entries, here and wherever the server is included. Raises LocalError for
        a key that is taken, and for an entry that cannot be listed."""
        found = list(entries)
        for entry in found:
            self._check_free(entry)
            _check_listing(entry, self._adding)
        check_distinct(found)
        given = [entry.enabled for entry in found]
        for entry in found:
            entry.enabled = entry.enabled and self._switches.takes(entry.id, entry.switched_as, entry.tags)
        commits: list[Commit] = [partial(self._register, entry, had) for entry, had in zip(found, given, strict=True)]
        for includer in self.includers:
            commits += includer.planned(found)
        for companion, function in self._companions(found):
            commits.append(partial(self._add, companion, function))
        return commits

    def _companions(self, entries: list[Entry]) -> Iterator[tuple[Entry, Callable[..., Any]]]:
        """Yield the tools that extensions need beside these entries, and that are not there yet, with their functions.
        Raises LocalError for a name that another tool has."""
        new = {one.key: one for one in entries if one.kind == "tool"}
        for extension in self._extending.accompanying:
            for entry in entries:
                for one in extension.companions(entry):
                    known = new.get(one.name) or self._tools.by_key.get(one.name)
                    if known is None:
                        known = tool_entry(self.surroundings, one.name, one.function, annotations=one.annotations)
                        known.replaces = extension.declares.name
                        new[one.name] = known
                        yield known, one.function
                    if known.replaces != extension.declares.name:
                        raise LocalError(extension.taken(one.name))

    def _check_free(self, entry: Entry) -> None:
        """Raise LocalError if the key of an entry is taken."""
        where = self._lists[LISTINGS[entry.kind]]
        taken = where.by_key.get(entry.key)
        if taken is not None and taken.replaces:
            for extension in self._extending.accompanying:
                if extension.declares.name == taken.replaces:
                    raise LocalError(extension.taken(entry.key))
        where.check_free(entry.key, entry.version)

    def _register(self, entry: Entry, given: bool) -> None:
        where = self._lists[LISTINGS[entry.kind]]
        self._link_entry(entry)
        where.add(entry)
        if where is self._tools and len(where.by_key) > MOST_TOOLS and not self._crowded:
            self._crowded = True
            logger.warning(
                "more than %d tools: many hosts take fewer, of all their servers together, and leave out the rest; "
                "disable or hide (visible=) what a caller does not need, or make two servers",
                MOST_TOOLS,
            )
        self._switches.add(entry.id, entry.switched_as, entry.tags, given)
        self._index(entry)
        if entry.enabled:
            self._report_change(entry)

    def _link_entry(self, entry: Entry) -> None:
        """Put the middleware of the server and of its extensions around the methods of an entry."""
        extending = self._extending.middleware(entry.surroundings.extended)
        self._link(entry.method, extending)
        for completion in entry.completions.values():
            self._link(completion)

    def _link(self, method: Method, extending: tuple[Middleware, ...] | None = None) -> None:
        self.contextual = self.contextual or method.binding.wants_context
        self._service._link(method, extending=extending)

    def relink(self, entries: Iterable[Entry]) -> None:
        """Replace the methods of entries with the same keys by those of these, which have other middleware, or further
        completions."""
        found = []
        for entry in entries:
            where = self._lists[LISTINGS[entry.kind]]
            for own in where.of(entry.key, entry.version):
                self._link_entry(entry)
                where.relink(own, entry.method, entry.completions)
                found.append(own)
        for includer in self.includers:
            includer.relink(found)

    def relink_all(self) -> None:
        """Put the server's changed middleware around its entries, also where it is included."""
        for entry in self.everything():
            self._link_entry(entry)
        for includer in self.includers:
            includer.relink(self.everything())

    def everything(self) -> list[Entry]:
        """Return the entries of all kinds, those of a kind in order."""
        return [entry for one in self._lists.values() for entry in one.all()]

    def _rank_templates(self) -> None:
        ranked = sorted(self._templates.all(), key=_rank)  # stable: the highest version stays first
        self._ranked = [(one, one.template, one.template.plain()) for one in ranked if one.template is not None]
        self._escapes = bool(self._escaping) or any(simple is not template for _, template, simple in self._ranked)

    def _index(self, entry: Entry) -> None:
        """Update the ranked templates and the URIs with encoded delimiters, after an entry was added or removed."""
        if entry.template is not None:
            self._rank_templates()
        if entry.kind != "resource":
            return
        key, decoded = entry.key, unescaped(entry.key)
        if decoded == key:
            return
        others = tuple(one for one in self._escaping.pop(decoded, ()) if one != key)
        if those := (*others, key) if self._resources.of(key) else others:
            self._escaping[decoded] = those
        self._escapes = self._escapes or bool(those)

    def _registered(self, kind: str, key: str, version: str | None) -> tuple[Entries, tuple[Entry, ...]]:
        key = normal_reference(key) if kind in ("resource", "template") else key
        lists = {
            "tool": (self._tools,),
            "prompt": (self._prompts,),
            "resource": (self._resources, self._templates),
            "template": (self._templates,),
        }
        for where in lists.get(kind, ()):
            if found := where.of(key, version):
                return where, found
        known = [key for where in lists.get(kind, ()) for key in where.by_key]
        if version is not None and key in known:
            raise LocalError(f"there is no version {version!r} of the {kind} {key!r}")
        raise LocalError(f"there is no {kind} {key!r}; {nearest(key, known)}")

    # -- finding

    def tool(self, name: str, caller: Caller, admitted: Admitted | None = None) -> Entry:
        """Return the tool of this name for this caller: the highest version, or the one that the call requests. Raises
        InvalidParams if there is none: unknown tools are protocol errors (server/tools)."""
        entry = self._tools.find(name, caller, admitted)
        if entry is None:
            raise InvalidParams(f"Unknown tool: {_short(name)}{self._instead(self._tools, name, caller)}")
        return entry

    def called_tool(self, admitted: Admitted, caller: Caller) -> Method:
        """Return the method of the tool that is called. Raises InvalidParams for an unknown tool, and RpcError (-32020)
        for a stateless call whose headers do not repeat the arguments that the tool marks."""
        name = admitted.params.name
        entry = self._tools.by_key.get(name)
        if entry is None or entry.versions or entry.visible is not None or not entry.enabled:
            entry = self.tool(name, caller, admitted)
        if entry.marked and not admitted.revision.stateful and caller.scheme in HTTP:
            fault = check_arguments(admitted.params.arguments, entry.marked, caller.headers)
            if fault is not None:
                raise RpcError.of(HEADER_MISMATCH, fault)
        for extension in self._extending.checking:
            extension.check_call(entry, admitted)
        admitted.version, admitted.surroundings = entry.version, entry.surroundings  # to call a function costs more
        return entry.method

    def refusal_of_tool(self, name: str, caller: Caller) -> Refusal | None:
        """Return why this caller may not call the tool of this name, as far as that is known without its arguments;
        None if it may call one of its versions, and if there is none. A tool that is disabled demands what it does
        otherwise. Raises InvalidParams for one that is hidden from this caller."""
        known = self._tools.of(name)
        if not known:
            return None
        mine = [one for one in known if one.visible is None or one.visible(caller)]
        if not mine:
            raise InvalidParams(f"Unknown tool: {_short(name)}")
        demanded = [one.method.access for one in mine]
        refusals = [None if one is None else one.without_arguments().refusal(caller, None) for one in demanded]
        return None if None in refusals else refusals[0]

    def prompt(self, name: str, caller: Caller, admitted: Admitted | None = None) -> Entry:
        """Return the prompt of this name for this caller: the highest version, or the requested one. Raises
        InvalidParams if there is none ("Invalid prompt name", server/prompts)."""
        entry = self._prompts.find(name, caller, admitted)
        if entry is None:
            raise InvalidParams(f"Unknown prompt: {_short(name)}{self._instead(self._prompts, name, caller)}")
        return entry

    def resource(self, uri: str, revision: Revision, caller: Caller, admitted: Admitted | None = None) -> Entry:
        """Return the resource with this URI for this caller, or else the most specific template that matches; of
        several versions the highest, or the requested one.

        Raises the revision's error for an unknown resource (server/resources, Error Handling) if there is none.
        """

        def fits(one: Entry) -> bool:
            return admitted is None or not one.version or one.matches_version(admitted.requested_version)

        entry = self._entry_for(uri, lambda one: one.available(caller) and fits(one))
        if entry is None:
            raise missing_resource(uri, revision, near=self._near(uri, (self._resources, self._templates), caller))
        return entry

    def _instead(self, where: Entries, name: str, caller: Caller) -> str:
        """Return the end of the error for an unknown tool or prompt: its other versions, that it is one of the other
        kind, or the nearest name; only of entries that lists show this caller. "" if there are none."""
        if found := where.other_versions(name, caller):
            return found
        others = self._prompts if where is self._tools else self._tools
        if name in self._shown(others, caller):
            other = "prompt: prompts/get gets it" if where is self._tools else "tool: tools/call calls it"
            return f"; {name} is a {other}"
        near = self._near(name, (where,), caller)
        return f"; {near}" if near else ""

    def _near(self, name: str, where: tuple[Entries, ...], caller: Caller) -> str:
        """Return a proposal for an unknown name or URI, among the first `PROPOSED` entries that lists show this caller;
        "" if none is near."""
        if len(name) > _SHORT:
            return ""
        known = [key for one in where for key in self._shown(one, caller)]
        # a template with the same beginning matches the URI, or is not for this caller
        near = nearest_name(
            name, [key for key in known if "{" not in key or not name.startswith(key[: key.index("{")])]
        )
        return f"did you mean {near}?" if near else ""

    def _shown(self, where: Entries, caller: Caller) -> list[str]:
        """Return the keys of the first entries that lists show this caller; none if a user's function raises."""
        try:
            return [one.key for one in where.visible()[:PROPOSED] if one.listed_for(caller)]
        except Exception:
            repeats.error("what says whether %s are visible raised", where.name, exc_info=True)
            return []

    def known_to_all(self, method: str, name: str) -> Entry | None:
        """Return the entry that a call of this method names, if lists show it to every stranger; None also if a user's
        function raises, and for a name longer than `TO_ALL`."""
        if len(name) > TO_ALL:
            return None
        stranger = Caller()
        try:
            if method == "resources/read":
                found = self._entry_for(normal(name), lambda one: one.available(stranger))
            else:
                where = {"tools/call": self._tools, "prompts/get": self._prompts}.get(method)
                found = None if where is None else where.find(name, stranger)
            return found if found is not None and found.listed_for(stranger) else None
        except Exception:
            repeats.error("what says whether %s is visible raised", _short(name), exc_info=True)
            return None

    def hides(self, uri: str, caller: Caller) -> bool:
        """Return whether there is a resource of this URI, but none for this caller; True also if a user's function
        raises."""
        if not (self._resources.guarded or self._templates.guarded):
            return False
        try:
            return self._entry_for(uri, lambda one: one.permits(caller)) is None and (
                self._entry_for(uri, lambda one: one.enabled) is not None
            )
        except Exception:
            repeats.error("what says whether %s is visible raised", uri, exc_info=True)
            return True

    def shows(self, entries: Iterable[EntryId], caller: Caller) -> bool:
        """Return whether this caller may see one of these entries, enabled or not, or could before it was removed. An
        entry that was never registered here concerns nobody."""
        for kind, key, version in entries:
            known = self._lists[LISTINGS[kind]].of(key, version) if kind in LISTINGS else ()
            those = [one.shown_to for one in known]
            if not those and (kind, key, version) in self._gone:
                those = [self._gone[kind, key, version]]
            if any(visible is None or sees(visible, caller) for visible in those):
                return True
        return False

    def _entry_for(self, uri: str, accepts: Callable[[Entry], bool]) -> Entry | None:
        """Return the entry that answers for a URI in its normal form; None if there is none."""
        for entry in self._resources.of(uri):
            if accepts(entry):
                return entry
        for entry, template, _ in self._ranked:
            if template.match(uri) is not None and accepts(entry):
                return None if self._is_overtaken(entry, uri, accepts) else entry
        return None

    def _is_overtaken(self, found: Entry, uri: str, accepts: Callable[[Entry], bool]) -> bool:
        """Return whether a more specific entry has this URI in another spelling. The template's function decodes the
        values and may make a file's path of them, so it could read what the other entry protects by its demands."""
        plain_uri = plain(uri)
        if (plain_uri is not uri or self._escapes) and self._has_more_specific(found, plain_uri, accepts):
            return True
        path = without_query(plain_uri)
        if len(path) == len(plain_uri) or found.template is None or len(found.template.lead) >= len(path):
            return False  # its path is the template's own text
        return self._has_more_specific(found, path, lambda one: demands_more(one, found) and accepts(one))

    def _has_more_specific(self, found: Entry, plain_uri: str, accepts: Callable[[Entry], bool]) -> bool:
        """Return whether an entry that is more specific than this template has a URI, given in its plain form."""
        for key in (plain_uri, *self._escaping.get(plain_uri, ())):
            if any(accepts(one) for one in self._resources.of(key)):
                return True
        for entry, _, template in self._ranked:
            if entry.key == found.key:
                return False
            if template.match(plain_uri) is not None and accepts(entry):
                return True
        return False

    def completion(self, admitted: Admitted, caller: Caller) -> Method | None:
        """Return the method that completes an argument for this caller; None if there is none. Raises InvalidParams for
        an unknown prompt, template or argument."""
        ref: PromptReference | ResourceTemplateReference = admitted.params.ref
        argument: str = admitted.params.argument.name
        if isinstance(ref, PromptReference):
            entry = self.prompt(ref.name, caller, admitted)
        else:
            # "`uri` is a URI or URI template"
            is_template = self._templates.by_key.get(ref.uri) is not None
            found = (
                self._templates.find(ref.uri, caller, admitted)
                if is_template
                else self._entry_for(ref.uri, lambda one: one.available(caller))
            )
            if found is None:
                near = self._near(ref.uri, (self._templates,), caller)
                raise InvalidParams(f"Unknown resource template: {_short(ref.uri)}{f'; {near}' if near else ''}")
            entry = found
        if entry.kind != "resource" and argument not in arguments_of(entry):
            near = nearest(argument, arguments_of(entry)) if len(argument) <= _SHORT else ""
            raise InvalidParams(f"Unknown argument of {_short(entry.key)}: {_short(argument)}{near and f'; {near}'}")
        _answering_method(admitted, entry)
        method = entry.completions.get(argument)
        if method is None or (access := entry.method.access) is None:
            return method
        return msgspec.structs.replace(method, access=access.without_arguments())

    def lookups(self, own: Mapping[str, Method]) -> dict[str, Lookup]:
        """Return, for each method that names entries, the function that finds the method that answers. `own`: the
        server's own methods."""
        subscribe, listen = own["resources/subscribe"], own["subscriptions/listen"]
        return {
            "resources/subscribe": lambda admitted, caller: self._subscription(
                subscribe, [admitted.params.uri], caller
            ),
            "subscriptions/listen": lambda admitted, caller: self._subscription(
                listen, admitted.params.notifications.resource_subscriptions, caller
            ),
            "tools/call": self.called_tool,
            "resources/read": lambda admitted, caller: _answering_method(
                admitted, self.resource(admitted.params.uri, admitted.revision, caller, admitted)
            ),
            "prompts/get": lambda admitted, caller: _answering_method(
                admitted, self.prompt(admitted.params.name, caller, admitted)
            ),
            "completion/complete": self.completion,
        }

    def _subscription(self, method: Method, uris: Any, caller: Caller) -> Method | None:
        """Return the method that subscribes to these resources, with the demands of all of them; None if they have
        none."""
        if uris is UNSET or not (self._resources.guarded or self._templates.guarded):
            return None
        return subscription_method(method, [self._available_entry(uri, caller) for uri in uris[:MOST_URIS]], caller)

    def _available_entry(self, uri: str, caller: Caller) -> Entry | None:
        """Return the resource of this URI for a caller; None also if a user's function raises."""
        try:
            return self._entry_for(uri, lambda one: one.available(caller))
        except Exception:
            repeats.error("what says whether %s is visible raised", uri, exc_info=True)
            return None

    def has(self, kind: str) -> bool:
        """Return whether there are entries of a kind, enabled or not: "tools", "resources" (also templates), "prompts"
        or "completions"."""
        if kind == "completions":
            return any(e.completions for one in (self._prompts, self._templates) for e in one.all())
        if kind == "resources":
            return bool(self._resources.by_key or self._templates.by_key)
        return bool((self._tools if kind == "tools" else self._prompts).by_key)

    def entries(self, listing: Listing) -> list[Entry]:
        """Return the enabled entries of a list, in order."""
        return self._lists[listing].visible()

    def page(
        self,
        listing: Listing,
        revision: Revision,
        caller: Caller,
        cursor: str | UnsetType = UNSET,
        client: ClientCapabilities = NOTHING,
    ) -> Raw:
        """Return the result of a list method for this caller, as JSON. `client`: what its client has declared. Raises
        InvalidParams for an unknown cursor."""
        return self._lists[listing].page(revision, cursor, self._begins, caller, client)


class IncludedServer:
    """Keeps the registry of a server that includes another one in step with it. `joined`: returns the name of a tool or
    prompt in the outer server."""

    def __init__(
        self, outer: Registry, inner: Registry, namespace: str, joined: Callable[[str], str], tags: frozenset[str]
    ) -> None:
        self._outer, self._inner, self._namespace, self._joined, self._tags = outer, inner, namespace, joined, tags

    def _key(self, entry: Entry) -> str:
        """Return an entry's name or URI in the outer server."""
        return self._joined(entry.key) if entry.kind in ("tool", "prompt") else joined_uri(entry.key, self._namespace)

    def _entries(self, entries: Iterable[Entry]) -> list[Entry]:
        outer, inner = self._outer.surroundings, self._inner.surroundings.service
        # the extensions of the outer server have companions of their own
        own = [one for one in entries if not one.replaces]
        return [included_entry(one, outer, inner, self._key(one), self._namespace, self._tags) for one in own]

    def planned(self, entries: Iterable[Entry]) -> list[Commit]:
        """Return functions that register these entries in the outer server. Raises LocalError for one that cannot be
        registered."""
        return self._outer.planned(self._entries(entries))

    def relink(self, entries: Iterable[Entry]) -> None:
        """Replace the methods of these entries in the outer server: they have other middleware, or further
        completions."""
        self._outer.relink(self._entries(entries))

    def dropped(self, entry: Entry) -> None:
        """Remove an entry that the included server has removed."""
        self._outer.drop(entry.kind, self._key(entry), entry.version)

    def switched(self, entry: Entry, on: bool) -> None:
        """Enable or disable an entry as the included server has done."""
        self._outer.switch(entry.kind, self._key(entry), entry.version, on)

    def updated(self, uri: str) -> None:
        """Notify the outer server's clients that a resource of the included server has changed."""
        self._outer.surroundings.notify_resource_updated(joined_uri(uri, self._namespace))


class IncludedMethods:
    """Keeps the tools of a server in step with the methods of a service that it includes: a
    `rpc.including.Includer`."""

    def __init__(self, outer: Registry, inner: Service, joined: Callable[[str], str], tags: Collection[str]) -> None:
        self._outer, self._inner, self._joined, self._tags = outer, inner, joined, frozenset(tags)

    def _entries(self, methods: Iterable[Method]) -> list[Entry]:
        outer = self._outer.surroundings
        found = []
        for method in methods:
            access = guarded(outer.service._guarded, self._inner._guarded, method)
            tool = method if access is method.access else msgspec.structs.replace(method, access=access)
            found.append(method_entry(outer, self._joined(method.name), tool, self._tags))
        return found

    def planned(self, methods: Iterable[Method]) -> list[Commit]:
        """Return functions that register these methods as tools. Raises LocalError for one that cannot be a tool."""
        return self._outer.planned(self._entries(methods))

    def chained(self) -> None:
        """Replace the methods of all tools, because the service has other middleware."""
        self._outer.relink(self._entries(self._inner._registered.values()))

    def dropped(self, name: str) -> None:
        """Remove the tool of a method that the service has removed."""
        self._outer.drop("tool", self._joined(name), "")

    def switched(self, name: str, on: bool) -> None:
        """Enable or disable the tool of a method as the service has done."""
        self._outer.switch("tool", self._joined(name), "", on)


def _check_listing(entry: Entry, extensions: Mapping[str, Adding]) -> None:
    """Raise LocalError for an entry whose description cannot be listed."""
    # extensions are called here, and not when a caller lists: what they add may conflict in any revision
    for revision in REVISIONS.values() if extensions or isinstance(entry.listed, Raw) else (NEWEST,):
        try:
            decode(entry.text(revision, (), extensions), LISTED[entry.kind])
        except (msgspec.DecodeError, TypeError, ValueError, RecursionError) as error:
            raise LocalError(f"{entry.key}: it cannot be listed so: {error}") from None


def _rank(entry: Entry) -> tuple[int, ...]:
    """Return the sort key of a template: a more specific one comes first, of equals the older one."""
    return (entry.number,) if entry.template is None else (*entry.template.rank, entry.number)


def _answering_method(admitted: Admitted, entry: Entry) -> Method:
    """Store in a call which entry answers it, and return the entry's method."""
    admitted.version, admitted.surroundings = entry.version, entry.surroundings
    return entry.method


def _short(text: str) -> str:
    return text if len(text) <= _SHORT else text[: _SHORT - 3] + "..."
