"""A model of how controllers share a lease and launch the needed instances once, whatever fails.

It restates lease.py, launcher.py and the ledger of mark/control as plain steps between immutable states, and searches
all of them.

A step is one effect outside of a controller (a claim of the lease, a put, a call of the cloud), and all that the
controller does with the answer up to the next effect. Between two steps a controller may crash, or stand still while
others go on and time passes. Time passes by the minute, which is longer than a term of the lease, than a launch takes
to show to others, and than a controller waits before it repeats a call.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

# The effect before which a controller stands.
ROUND = "round"  # which may claim the lease first
WRITE = "write"  # an intent
CALL = "call"  # of the cloud, to launch
CROSS = "cross"  # an intent out: its outcome is known
KEEP = "keep"  # the ledger
DEAD = "dead"

# The possible outcomes of an effect.
DONE, FAILS, LOST, REFUSED = "done", "fails", "answer lost", "refused"

FREE, GONE = -2, -1  # holders of the lease: none yet; a controller that crashed
UNSURE_MINUTES = 5  # an intent whose outcome is still unknown is crossed out

PROPERTIES = {
    "one launch": "no more is launched than is needed",
    "one leader": "the terms of two controllers never last at once",
    "fenced": "once a controller has written, none with an older term writes",
    "owned": "what does not show to all controllers yet is written down as an intent",
    "met": "whatever happened: once nothing fails the need is met, every intent has ended and the ledger knows it all",
}


class Rules(NamedTuple):
    """The rules that the protocol rests on. Tests disable one at a time."""

    waits: bool = True  # a claimant waits until it has seen the term stand
    fenced: bool = True  # the store refuses writes under an older term
    written_first: bool = True  # an intent is written before its call
    looks_again: bool = True  # a call whose answer is missing is repeated
    same_token: bool = True  # and that under its token
    counts_unsure: bool = True  # a launch that may have happened is not repeated as a new one
    keeps_unsure: bool = True  # an intent stays written while its outcome is unknown
    keeps_made: bool = True  # a launch stays written until it shows to all
    dated_by_call: bool = True  # it is dated by its call, however late that came


ALL = Rules()


class Bounds(NamedTuple):
    """A world that is small enough to be searched to the end."""

    controllers: int = 2
    needs: int = 1
    minutes: int = 2  # times that time passes
    crashes: int = 1
    faults: int = 1
    passes: tuple[str, ...] = ("minute",)  # or "minutes", five at a time
    refusals: bool = False  # may the market refuse?
    late_calls: bool = False  # may a call come after its intent has ended?


class ModelIntent(NamedTuple):
    token: int
    at: int  # minute of the round that wrote it; of a made launch, the minute of its call
    made: bool = False


class ModelInstance(NamedTuple):
    token: int
    at: int  # minute of its launch; all controllers see it from the next one on
    seen_by: frozenset[int] = frozenset()


class ModelController(NamedTuple):
    at: str = ROUND
    # Its lease.
    asked: bool = False  # since time passed last
    seen: bool = False  # whether it saw the current term last
    over: bool = False  # whether it has seen that term for a minute
    lasts: bool = False
    fence: int = 0
    # Its launcher and ledger, while they belong to the term `parts`.
    parts: int = 0
    pending: tuple[ModelIntent, ...] = ()
    made: tuple[ModelIntent, ...] = ()
    put_off: frozenset[int] = frozenset()  # tokens that are not called for again in the minute `now`
    spans: frozenset[int] | None = None
    unkept: bool = False  # whether the store may lack some spans
    kept: bool = True  # whether the store has `pending` and `made`, as far as it knows
    # Its round.
    now: int = 0
    todo: tuple[int, ...] = ()  # intents that it has not yet looked at again, by token
    intent: ModelIntent | None = None  # in hand
    again: bool = False  # is that repeated?
    got: int = -1  # minute in which it was launched
    stays: tuple[ModelIntent, ...] = ()  # of `made`, once the one in hand is crossed out
    missing: int = 0  # launches still to be made
    fleet: frozenset[int] = frozenset()  # as it saw it


class ModelWorld(NamedTuple):
    needs: int
    controllers: tuple[ModelController, ...]
    now: int = 0  # minute
    holder: int = FREE
    fence: int = 0
    intents: tuple[ModelIntent, ...] = ()
    ledger: frozenset[int] | None = None
    writer: int = 0  # number of the term under which was written last
    cloud: tuple[ModelInstance, ...] = ()
    tokens: int = 0
    crashes: int = 0
    faults: int = 0

    @property
    def launched(self) -> frozenset[int]:
        return frozenset(one.token for one in self.cloud)


class Action(NamedTuple):
    """`verb` is "step", "crash", "restart" (of that controller), "minute" or "minutes"."""

    verb: str
    controller: int = -1
    outcome: str = DONE

    def __str__(self) -> str:
        return " ".join([self.verb, *([str(self.controller)] * (self.controller >= 0)), self.outcome])


def begun(bounds: Bounds) -> ModelWorld:
    return ModelWorld(bounds.needs, (ModelController(),) * bounds.controllers)


def actions(world: ModelWorld, bounds: Bounds) -> Iterator[Action]:
    """Yield every action that may happen next."""
    for i, c in enumerate(world.controllers):
        if c.at == DEAD:
            yield Action("restart", i)
            continue
        if not (c.at == CALL and is_late(world, c) and not bounds.late_calls):
            yield Action("step", i)
            if world.faults < bounds.faults:
                for outcome in _faults(world, c, bounds):
                    yield Action("step", i, outcome)
        if world.crashes < bounds.crashes:
            yield Action("crash", i)
    if world.now < bounds.minutes:
        yield from map(Action, bounds.passes)


def is_late(world: ModelWorld, c: ModelController) -> bool:
    """Return whether the intent that it is about to call for has ended or may end, refused to another or too old."""
    intent = c.intent
    if intent is None or intent not in c.pending:
        return False
    there = intent.token in {one.token for one in world.intents}
    refused = any(
        one.at == CROSS and one.got < 0 and one.intent is not None and one.intent.token == intent.token
        for one in world.controllers
    ) or any(
        # The store may not know it yet.
        not one.kept
        and one.parts > c.parts
        and intent.token not in {known.token for known in (*one.pending, *one.made)}
        for one in world.controllers
    )
    return not there or refused or (not intent.made and world.now - intent.at >= UNSURE_MINUTES)


def _faults(world: ModelWorld, c: ModelController, bounds: Bounds) -> tuple[str, ...]:
    if c.at == ROUND:
        return () if c.asked else (FAILS, LOST)
    if c.at != CALL:
        return (FAILS, LOST) if c.parts == world.fence else ()
    assert c.intent is not None
    return (FAILS, LOST, REFUSED) if bounds.refusals and c.intent.token not in world.launched else (FAILS, LOST)


def after(world: ModelWorld, action: Action, rules: Rules = ALL) -> ModelWorld:
    """Return the world after an action that `actions` has."""
    i = action.controller
    if action.verb == "minute":
        return _passed(world, 1)
    if action.verb == "minutes":
        return _passed(world, UNSURE_MINUTES)
    if action.verb == "restart":
        return _with(world, i, ModelController())
    if action.verb == "crash":
        cloud = tuple(one._replace(seen_by=one.seen_by - {i}) for one in world.cloud)
        holder = GONE if world.holder == i else world.holder
        return _with(world._replace(cloud=cloud, holder=holder, crashes=world.crashes + 1), i, ModelController(DEAD))
    if action.outcome != DONE:
        world = world._replace(faults=world.faults + 1)
    return _STEPS[world.controllers[i].at](world, i, action.outcome, rules)


def _passed(world: ModelWorld, minutes: int) -> ModelWorld:
    return world._replace(
        now=world.now + minutes,
        cloud=tuple(one._replace(seen_by=frozenset()) for one in world.cloud),
        controllers=tuple(c._replace(asked=False, lasts=False, over=c.seen) for c in world.controllers),
    )


def _with(world: ModelWorld, i: int, c: ModelController) -> ModelWorld:
    return world._replace(controllers=(*world.controllers[:i], c, *world.controllers[i + 1 :]))


def _slept(world: ModelWorld, i: int, c: ModelController) -> ModelWorld:
    """End the controller's round."""
    return _with(
        world, i,
        c._replace(
            at=ROUND, now=c.now if c.put_off else 0, todo=(), intent=None, again=False, got=-1, stays=(), missing=0,
            fleet=frozenset(),
        ),
    )  # fmt: skip


def _dropped(world: ModelWorld, i: int, c: ModelController) -> ModelWorld:
    """Drop launcher and ledger, because the controller does not lead any more."""
    c = c._replace(parts=0, pending=(), made=(), put_off=frozenset(), spans=None, unkept=False, kept=True)
    return _slept(world, i, c)


# -- the lease, and the beginning of a round ---------------------------------------------------------------------------


def _round(world: ModelWorld, i: int, outcome: str, rules: Rules) -> ModelWorld:
    if not world.controllers[i].asked:
        world = _asked(world, i, outcome, rules)
    c = world.controllers[i]
    if not c.lasts:
        return _dropped(world, i, c)
    if c.fence != c.parts:
        c = c._replace(
            parts=c.fence,
            pending=world.intents,
            made=(),
            put_off=frozenset(),
            spans=world.ledger,
            unkept=False,
            kept=True,
        )
    put_off = c.put_off if c.now == world.now else frozenset[int]()
    c = c._replace(now=world.now, put_off=put_off, todo=tuple(one.token for one in c.pending))
    return (
        _looked_again(world, i, c, rules) if c.kept else _with(world, i, c._replace(at=CROSS, stays=_hidden(world, c)))
    )


def _asked(world: ModelWorld, i: int, outcome: str, rules: Rules) -> ModelWorld:
    c = world.controllers[i]._replace(asked=True)
    if outcome == FAILS:
        return _with(world, i, c)
    free = world.holder == FREE or (c.seen and c.over) or not rules.waits
    changes = world.holder == i or free
    if changes:
        fence = world.fence if world.holder == i else world.fence + 1
        others = tuple(one._replace(seen=False, over=False) for one in world.controllers)
        world = world._replace(holder=i, fence=fence, controllers=others)
    if outcome == LOST:
        return _with(world, i, c._replace(seen=False, over=False) if changes else c)
    if changes:
        return _with(world, i, c._replace(seen=True, over=False, lasts=True, fence=world.fence))
    return _with(world, i, c._replace(seen=True, over=c.seen and c.over, lasts=False))


# -- launches ----------------------------------------------------------------------------------------------------------


def _looked_again(world: ModelWorld, i: int, c: ModelController, rules: Rules) -> ModelWorld:
    """Look again at intents whose outcome is unknown, or whose instances may not show yet."""
    intents = {one.token: one for one in c.pending}
    while c.todo and rules.looks_again:
        intent = intents[c.todo[0]]
        if c.now - intent.at >= (1 if intent.made else UNSURE_MINUTES):
            return _with(world, i, c._replace(at=CROSS, intent=intent, again=True, got=-1, stays=_hidden(world, c)))
        if intent.token not in c.put_off:
            return _with(world, i, c._replace(at=CALL, intent=intent, again=True))
        c = c._replace(todo=c.todo[1:])
    fleet = frozenset(one.token for one in world.cloud if one.at < world.now or i in one.seen_by)
    unsure = len(c.pending) if rules.counts_unsure else 0
    return _next(world, i, c._replace(fleet=fleet, missing=world.needs - len(fleet) - unsure), rules)


def _next(world: ModelWorld, i: int, c: ModelController, rules: Rules) -> ModelWorld:
    """Begin the next launch or, if none is missing, write the ledger."""
    if c.missing > 0:
        if not c.lasts:
            return _dropped(world, i, c)
        c = c._replace(missing=c.missing - 1, again=False, got=-1)
        if rules.written_first:
            return _with(world, i, c._replace(at=WRITE, intent=None))
        intent = ModelIntent(world.tokens + 1, c.now)
        return _with(world._replace(tokens=intent.token), i, c._replace(at=CALL, intent=intent))
    spans = (c.spans or frozenset()) | c.fleet
    unkept = c.unkept or c.spans is None or spans != c.spans
    c = c._replace(spans=spans, unkept=unkept)
    return _with(world, i, c._replace(at=KEEP)) if unkept else _slept(world, i, c)


def _put(
    world: ModelWorld, i: int, outcome: str, rules: Rules, intents: tuple[ModelIntent, ...]
) -> tuple[ModelWorld, bool]:
    """Return the world after intents were put, and whether the controller knows that they were."""
    c = world.controllers[i]
    if rules.fenced and c.parts != world.fence:
        return _dropped(world, i, c), False
    c = c._replace(kept=outcome == DONE)
    if outcome == FAILS:
        return _slept(world, i, c), False
    world = _with(world._replace(intents=intents, writer=c.parts), i, c)
    return (_slept(world, i, c), False) if outcome == LOST else (world, True)


def _write(world: ModelWorld, i: int, outcome: str, rules: Rules) -> ModelWorld:
    c, intent = world.controllers[i], ModelIntent(world.tokens + 1, world.controllers[i].now)
    before = world.intents
    world, known = _put(world, i, outcome, rules, (*c.pending, intent, *c.made))
    if world.intents != before:
        world = world._replace(tokens=intent.token)
    if not known:
        return world
    return _with(world, i, c._replace(at=CALL, intent=intent, pending=(*c.pending, intent)))


def _call(world: ModelWorld, i: int, outcome: str, rules: Rules) -> ModelWorld:
    c = world.controllers[i]
    assert c.intent is not None
    token = c.intent.token
    if c.again and not rules.same_token:
        token = world.tokens + 1
        world = world._replace(tokens=token)
    if outcome in (DONE, LOST):
        world = world._replace(cloud=_launched(world, token, frozenset([i]) if outcome == DONE else frozenset()))
    if outcome in (DONE, REFUSED) or not (c.again or rules.keeps_unsure):
        c = c._replace(at=CROSS, got=world.now if outcome == DONE else -1, stays=_hidden(world, c))
        if not c.intent.made and rules.fenced and c.parts != world.fence:
            return _dropped(world, i, c)  # when it is recorded
        return _with(world, i, c)
    c = c._replace(put_off=c.put_off | {c.intent.token})
    if c.again:
        return _looked_again(world, i, c._replace(todo=c.todo[1:]), rules)
    if rules.fenced and c.parts != world.fence:
        return _dropped(world, i, c)  # when it is recorded
    return _next(world, i, c, rules)


def _launched(world: ModelWorld, token: int, seen_by: frozenset[int]) -> tuple[ModelInstance, ...]:
    """Launch once for each token."""
    if token not in world.launched:
        return (*world.cloud, ModelInstance(token, world.now, seen_by))
    return tuple(
        one._replace(seen_by=one.seen_by | seen_by) if one.token == token and one.at == world.now else one
        for one in world.cloud
    )


def _hidden(world: ModelWorld, c: ModelController) -> tuple[ModelIntent, ...]:
    """Return the launches of this controller that others may not see yet."""
    return tuple(one for one in c.made if one.at >= world.now)


def _cross(world: ModelWorld, i: int, outcome: str, rules: Rules) -> ModelWorld:
    c = world.controllers[i]
    if c.intent is None:  # take it out of the store, which may have an intent that the controller lacks
        c = c._replace(made=c.stays, stays=())
        world, known = _put(_with(world, i, c), i, outcome, rules, (*c.pending, *c.made))
        return _looked_again(world, i, c._replace(kept=True), rules) if known else world
    intent, token = c.intent, c.intent.token
    made = c.stays
    if c.got >= 0 and rules.keeps_made:
        at = c.got if rules.dated_by_call and not intent.made else intent.at
        made = (*made, ModelIntent(token, at, made=True))
    pending = tuple(one for one in c.pending if one.token != token)
    # The controller knows the outcome even if writing it fails, so it does not call again.
    c = c._replace(put_off=c.put_off - {token}, stays=(), pending=pending, made=made)
    world, known = _put(_with(world, i, c), i, outcome, rules, (*pending, *made))
    if not known:
        return world
    if c.again:
        return _looked_again(world, i, c._replace(todo=c.todo[1:]), rules)
    return _next(world, i, c, rules)


def _keep(world: ModelWorld, i: int, outcome: str, rules: Rules) -> ModelWorld:
    c = world.controllers[i]
    if rules.fenced and c.parts != world.fence:
        return _dropped(world, i, c)
    if outcome != FAILS:
        world = world._replace(ledger=c.spans, writer=c.parts)
    return _slept(world, i, c._replace(unkept=outcome != DONE))


_STEPS = {ROUND: _round, WRITE: _write, CALL: _call, CROSS: _cross, KEEP: _keep}


# -- the search --------------------------------------------------------------------------------------------------------


class Search(NamedTuple):
    """The result of a search. `broken` is the first property that does not hold, and `path` a shortest way there."""

    states: int
    broken: str
    path: tuple[Action, ...]


def search(bounds: Bounds, rules: Rules = ALL, *, settles: bool = True) -> Search:
    """Search every reachable state, breadth first, until a property is broken; check of each whether it `settles`."""
    first = begun(bounds)
    came: dict[ModelWorld, tuple[ModelWorld, Action] | None] = {first: None}
    queue, known = deque([first]), set[ModelWorld]()
    while queue:
        world = queue.popleft()
        if settles and not _settles(world, rules, known):
            return Search(len(came), "met", _path(came, world))
        for action in actions(world, bounds):
            found = after(world, action, rules)
            if found not in came:
                came[found] = world, action
                if broken := violated(world, found):
                    return Search(len(came), broken, _path(came, found))
                queue.append(found)
    return Search(len(came), "", ())


def violated(before: ModelWorld, world: ModelWorld) -> str:
    """Return the property that the step from `before` to `world` breaks."""
    if len(world.cloud) > world.needs:
        return "one launch"
    if sum(c.lasts for c in world.controllers) > 1:
        return "one leader"
    if world.writer < before.writer:
        return "fenced"
    written = {one.token for one in world.intents}
    if any(one.at == world.now and one.token not in written for one in world.cloud):
        return "owned"
    return ""


def _settles(world: ModelWorld, rules: Rules, known: set[ModelWorld]) -> bool:
    """Return whether some fault-free way leads from here to a settled state.

    There the need is met once and nothing is left open. All controllers have a turn in each minute; a controller that
    stands before a late call is restarted.
    """
    way: list[ModelWorld] = []
    world = world._replace(crashes=0, faults=0)
    for _ in range(2 * UNSURE_MINUTES):
        for i in range(len(world.controllers)):
            if world in known or _is_settled(world):
                known.update(way)
                return True
            way.append(world)
            c = world.controllers[i]
            if c.at == CALL and is_late(world, c):
                world = after(world, Action("crash", i))._replace(crashes=0)
            if world.controllers[i].at == DEAD:
                world = after(world, Action("restart", i))
            world = _stepped(world, i, rules)
        world = after(world, Action("minute"))
    return False


def _stepped(world: ModelWorld, i: int, rules: Rules) -> ModelWorld:
    """Step a controller to the end of its round, and through another one."""
    for _ in range(2):
        world = after(world, Action("step", i), rules)
        while world.controllers[i].at != ROUND:
            world = after(world, Action("step", i), rules)
    return world


def _is_settled(world: ModelWorld) -> bool:
    met = len(world.cloud) == world.needs and world.ledger == world.launched
    return met and all(one.made for one in world.intents)


def _path(came: dict[ModelWorld, tuple[ModelWorld, Action] | None], world: ModelWorld) -> tuple[Action, ...]:
    path: list[Action] = []
    while (step := came[world]) is not None:
        world, action = step
        path.append(action)
    return tuple(reversed(path))
