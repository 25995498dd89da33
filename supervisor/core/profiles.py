"""Which limits a run gets: profiles by type of task, tenants by who asks, and what the run itself asks for. What is
then used of them is `budget`'s.

Rules
1. A profile is what its base is but for what it says itself. A profile without a base starts from ``default``, and one
   that has the name of a built-in from that built-in.
2. Each set of detectors is also a profile: the limits of ``default`` with that set, unless a profile has that name.
3. A tenant's limits for a run only narrow: of two the smaller holds, and a looser one means nothing.
4. A run may ask for less than holds so far, never for more and never for no limit: that is refused, and who said the
   limit is named.
5. Every run has a time, so every profile has ``wall_ms``.
6. A wrap-up takes at most half of a limit: a profile that says more is refused, and where a tenant or a run narrowed
   the limit it takes that half.
7. A user belongs to the tenant that lists the uid, else to ``default``. A tenant that lists profiles has only those;
   who names none gets ``default``, or the first listed where that is not among them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, TypeAlias

import msgspec

from protocol._budgets import Dimension, tools_named
from protocol._checks import Check
from protocol._contracts import Approval
from supervisor.core.detector_sets import SETS
from supervisor.core.periods import Period
from supervisor.core.prices import Price

Limits: TypeAlias = dict[str, int | None]
DEFAULT = "default"
MAX_REFUSALS = 3
_WALL = Dimension.WALL_MS.value
_HALVED = ((Dimension.MODEL_CALLS.value, "model_calls"), (_WALL, "ms"))


class WrapUp(msgspec.Struct, frozen=True):
    """What is held back inside the limits for a last word after them: model calls, and milliseconds of ``wall_ms``."""

    model_calls: int = 0
    ms: int = 0


class Recipe(msgspec.Struct, frozen=True):
    """What a profile says itself; None: as its base."""

    base: str | None = None
    limits: Limits = {}
    wrapup: WrapUp | None = None
    detectors: str | None = None
    max_refusals: int | None = None
    checks: tuple[Check, ...] | None = None
    approval: Approval | None = None


class Profile(msgspec.Struct, frozen=True):
    """What a type of task gets. ``detectors``: the name of a set. ``max_refusals``: how often an answer may be refused
    by the ``checks`` before the run is stuck. ``approval``: in place of what contracts say;
    None: what they say."""

    name: str
    base: str | None
    limits: Limits
    wrapup: WrapUp = WrapUp()
    detectors: str = DEFAULT
    max_refusals: int = MAX_REFUSALS
    checks: tuple[Check, ...] = ()
    approval: Approval | None = None


BUILT_IN = {
    "default": Recipe(limits={"steps": 25, "wall_ms": 480_000}),
    "edit": Recipe(limits={"tokens_total": 300_000}),
    "migration": Recipe(limits={"steps": 60, "wall_ms": 1_800_000, "tokens_total": 600_000}),
    "qa_readonly": Recipe(
        limits={"steps": 8, "tool_calls": 12, "wall_ms": 60_000, "cost_micros": 300_000, "tokens_total": 50_000},
        detectors="qa_readonly",
    ),
    "demo": Recipe(limits={"steps": 15, "tokens_total": 15_000}, detectors="demo"),
    "strict": Recipe(detectors="strict"),
    "production": Recipe(detectors="production"),
}
BUILT_IN_SETS = tuple(SETS)


class Tenant(msgspec.Struct, frozen=True):
    """Who pays together. ``limits``: of all its users together; ``user_limits``: of each; ``session_limits``: of each
    session; ``run_limits``: rule 3. ``period``: after which tenant and users begin anew. ``profiles``: rule 7."""

    name: str = DEFAULT
    uids: tuple[int, ...] = ()
    period: Period = Period.NONE
    limits: Limits = {}
    user_limits: Limits = {}
    session_limits: Limits = {}
    run_limits: Limits = {}
    profiles: tuple[str, ...] = ()

    def profile(self) -> str:
        """The profile of whoever names none."""
        return DEFAULT if not self.profiles or DEFAULT in self.profiles else self.profiles[0]


class Effective(msgspec.Struct, frozen=True):
    """What holds for a run. ``limits``: every dimension, and the tools that have their own; ``sources``: who said those
    that are limits (``profile NAME``, ``tenant NAME``, ``run``)."""

    profile: str
    tenant: str
    limits: Limits
    sources: dict[str, str]
    wrapup: WrapUp
    detectors: str
    max_refusals: int
    checks: tuple[Check, ...]
    approval: Approval | None

    @property
    def wall_ms(self) -> int:
        """The run's time."""
        wall = self.limits[_WALL]
        assert wall is not None, "rule 5"
        return wall


class Objection(msgspec.Struct, frozen=True):
    """Why a run cannot have what it asks for. ``code``: ``unknown_profile``, ``profile_not_allowed``, ``unknown_tool``
    or ``looser_limit``."""

    code: str
    text: str


class Budgets(msgspec.Struct, frozen=True):
    """What the configuration says of budgets, whole."""

    profiles: dict[str, Profile]
    tenants: dict[str, Tenant]
    prices: dict[str, Price] = {}

    def values(self) -> dict[str, dict[str, Any]]:
        """The tables of the configuration, for people."""
        return {
            "profile": {name: _told(profile) for name, profile in self.profiles.items()},
            "tenant": {name: _told(tenant) for name, tenant in self.tenants.items()},
            "price": {model: msgspec.to_builtins(price) for model, price in self.prices.items()},
        }

    def missing_tools(self, tools: Collection[str]) -> list[str]:
        """Where a limit is said of a tool that is not there, as paths of the configuration: it holds nothing."""
        said = {f"profile.{name}.limits": profile.limits for name, profile in self.profiles.items()}
        for name, tenant in self.tenants.items():
            for kind in ("limits", "user_limits", "session_limits", "run_limits"):
                said[f"tenant.{name}.{kind}"] = getattr(tenant, kind)
        return [
            f"{place}.tool_calls[{tool}]"
            for place, limits in said.items()
            for tool in tools_named(limits)
            if tool not in tools
        ]

    def tenant_of(self, uid: int) -> Tenant:
        """Rule 7."""
        found = (tenant for tenant in self.tenants.values() if uid in tenant.uids)
        return next(found, self.tenants.get(DEFAULT, Tenant()))

    def effective(
        self, uid: int, profile: str | None, asked: Mapping[str, int | None], tools: Collection[str] | None = None
    ) -> Effective | Objection:
        """What a run of this user gets. ``asked``: limits that were read; ``tools``: the names there are, None: any."""
        tenant = self.tenant_of(uid)
        name = tenant.profile() if profile is None else profile
        objection = self._refuse_profile(name, tenant) or _refuse_tools(asked, tools)
        return objection or effective(self.profiles[name], tenant, asked)

    def _refuse_profile(self, name: str, tenant: Tenant) -> Objection | None:
        allowed = tenant.profiles or sorted(self.profiles)
        if name in self.profiles and name in allowed:
            return None
        code = "profile_not_allowed" if name in self.profiles else "unknown_profile"
        what = f"tenant {tenant.name} may not use it" if name in self.profiles else "there is no such profile"
        return Objection(code, f"profile {name!r}: {what}; allowed: {', '.join(allowed)}")


def effective(profile: Profile, tenant: Tenant, asked: Mapping[str, int | None]) -> Effective | Objection:
    """Rules 3, 4 and 6 for one run."""
    limits: Limits = {**dict.fromkeys(map(str, Dimension)), **profile.limits}
    sources = {name: f"profile {profile.name}" for name, limit in limits.items() if limit is not None}
    for name, limit in tenant.run_limits.items():
        if looser(limits.get(name), limit):
            limits[name], sources[name] = limit, f"tenant {tenant.name}"
    for name, limit in asked.items():
        if looser(limit, limits.get(name)):
            return Objection("looser_limit", _looser_text(name, limit, limits[name], sources[name]))
        if looser(limits.get(name), limit):
            limits[name], sources[name] = limit, "run"
    return Effective(
        profile.name,
        tenant.name,
        limits,
        sources,
        _within(profile.wrapup, limits),
        profile.detectors,
        profile.max_refusals,
        profile.checks,
        profile.approval,
    )


def with_last_word(effective: Effective) -> Effective:
    """The same for a run that the daemon steers: its model may conclude, also where the profile holds nothing back."""
    if effective.wrapup.model_calls:
        return effective
    wrapup = _within(WrapUp(1, effective.wrapup.ms), effective.limits)
    return msgspec.structs.replace(effective, wrapup=wrapup)


def _told(named: Profile | Tenant) -> dict[str, Any]:
    plain: dict[str, Any] = msgspec.to_builtins(named)
    del plain["name"]
    return plain


def looser(one: int | None, other: int | None) -> bool:
    """Whether a limit allows more than another."""
    return other is not None and (one is None or one > other)


def resolve(said: Mapping[str, Recipe], sets: Iterable[str] = BUILT_IN_SETS) -> dict[str, Profile]:
    """Every profile: the built-in ones, those of the configuration, those of the sets of detectors (rules 1 and 2).

    Raises ValueError, beginning with the profile's name, for a base that is not there or leads round in a circle, a set
    that is not there, a wrap-up over its half.
    """
    known = frozenset(sets)
    recipes = {**BUILT_IN, **{name: Recipe(detectors=name) for name in sorted(known.difference(BUILT_IN))}}
    for name, recipe in said.items():
        recipes[name] = _over(recipe, BUILT_IN.get(name)) if recipe.base is None else recipe
    profiles: dict[str, Profile] = {}
    for name in recipes:
        _resolve(name, recipes, profiles, ())
    for profile in profiles.values():
        _refuse_contradictions(profile, known)
    return profiles


def _over(recipe: Recipe, built_in: Recipe | None) -> Recipe:
    if built_in is None:
        return recipe
    own = {name: value for name, value in msgspec.structs.asdict(recipe).items() if value is not None}
    return msgspec.structs.replace(built_in, **{**own, "limits": {**built_in.limits, **recipe.limits}})


def _resolve(name: str, recipes: Mapping[str, Recipe], done: dict[str, Profile], below: tuple[str, ...]) -> Profile:
    if name in done:
        return done[name]
    recipe = recipes[name]
    base = recipe.base or (None if name == DEFAULT else DEFAULT)
    if base is not None and base not in recipes:
        raise ValueError(f"{name}.base: there is no profile {base!r}; allowed: {', '.join(sorted(recipes))}")
    if base in (*below, name):
        raise ValueError(f"{name}.base: {base!r} has this one as a base itself; allowed: one that does not")
    under = None if base is None else _resolve(base, recipes, done, (*below, name))
    done[name] = _profile(name, recipe, under)
    return done[name]


def _profile(name: str, recipe: Recipe, base: Profile | None) -> Profile:
    under = base or Profile(name, None, {})
    own = {key: value for key, value in msgspec.structs.asdict(recipe).items() if value is not None}
    fields = {**own, "name": name, "base": base and base.name, "limits": {**under.limits, **recipe.limits}}
    return msgspec.structs.replace(under, **fields)


def _refuse_contradictions(profile: Profile, sets: Collection[str]) -> None:
    if profile.detectors not in sets:
        raise ValueError(
            f"{profile.name}.detectors: there is no set {profile.detectors!r}; allowed: {', '.join(sorted(sets))}"
        )
    for dimension, field in _HALVED:
        asked, limit = getattr(profile.wrapup, field), profile.limits.get(dimension)
        if limit is not None and asked > limit // 2:
            raise ValueError(
                f"{profile.name}.wrapup.{field} = {asked} is over half of {dimension} = {limit};"
                f" allowed: at most {limit // 2}"
            )


def _within(wrapup: WrapUp, limits: Limits) -> WrapUp:
    halves = {field: limit // 2 for dimension, field in _HALVED if (limit := limits.get(dimension)) is not None}
    return msgspec.structs.replace(wrapup, **{name: min(getattr(wrapup, name), half) for name, half in halves.items()})


def _refuse_tools(asked: Mapping[str, int | None], tools: Collection[str] | None) -> Objection | None:
    missing = [] if tools is None else [tool for tool in tools_named(asked) if tool not in tools]
    if not missing:
        return None
    return Objection(
        "unknown_tool", f"tool_calls[{missing[0]}]: there is no such tool; a limit of it would hold nothing"
    )


def _looser_text(name: str, asked: int | None, limit: int | None, source: str) -> str:
    said = "no limit" if asked is None else f"{asked}"
    return f"{name} = {said} is looser than {limit} of {source}; allowed: at most {limit}"
