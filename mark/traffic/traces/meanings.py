"""The meaning of a column's numbers, by its name: a title, a metric's name, or the query in a dashboard's legend.

A name is cut into words with roles (see `words`). It counts requests if it has one thing to count and nothing that may
leave some out: a word for a part, an adjective, a preposition before a name, or an unknown word beside the thing, which
may be the name of a service as well as of a part.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass, replace
from enum import Enum
from unicodedata import normalize

from mark.traffic.traces.words import ANSWERED, COUNTERS, FOREIGN, RATE_WORDS, ROLES, Role


class Kind(Enum):
    REQUESTS = "requests"  # the name says requests, or a rate such as `rps`
    COUNT = "a count"  # of anything
    PART = "only a part of the requests"
    PERHAPS = "all requests, or a part of them"  # of a name that a service may have, or a part of the requests
    ERRORS = "only errors"
    UNKNOWN = "unknown"
    UNCLEAR = "an expression"  # only the user knows whether it is a rate
    MEASURE = "a measure"  # of a request or of a machine
    STATISTIC = "a statistic"  # an average, a percentile: a row stands for many requests


@dataclass(frozen=True, slots=True)
class Unit:
    """The unit of a number: requests of its row (`per_s` 0), requests in every `per_s` seconds, or a counter.

    `times` is 1000 for a column of thousands. `wraps` is the number at which a counter begins again; 0 if unknown.
    """

    said: str
    per_s: float = 0.0
    counter: bool = False
    times: float = 1.0
    wraps: float = 0.0


ROW = Unit("requests of each row")
COUNTER = Unit("a counter's increases", counter=True)
RATES = {
    "per-second": Unit("requests/s", 1.0),
    "per-minute": Unit("requests/min", 60.0),
    "per-hour": Unit("requests/h", 3600.0),
}
UNITS = {"count": ROW, **RATES, "counter": COUNTER, "counter-32": replace(COUNTER, wraps=2.0**32)}


@dataclass(frozen=True, slots=True)
class Meaning:
    """The meaning of a name. `unit` is None if the name states none.

    `may_count`: by its name the column is a counter, if its values never fall. `times` is 1000 if the name says that
    the numbers are thousands. `window_s` is a span of time in the name (`requests_5m`, `hourly`), which may be longer
    than a row. `may_be_log`: by its name the column may hold logarithms, if its values are small.
    """

    kind: Kind
    unit: Unit | None = None
    may_count: bool = False
    times: float = 1.0
    window_s: float = 0.0
    may_be_log: bool = False

    @property
    def counts(self) -> bool:
        return self.kind in (Kind.REQUESTS, Kind.COUNT, Kind.UNCLEAR, Kind.PERHAPS)


_ACCENTS = re.compile("[\u0300-\u036f]")
_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_REGION = re.compile(  # of a cloud: its `us` are no microseconds
    r"(?i)(?<![a-z])[a-z]{2,12}-(?:gov-)?(?:north|south|east|west|central)(?:east|west)?-?\d[a-z]?(?![a-z\d])"
)
_DOMAIN = re.compile(r"(?:[a-z][\w-]*\.){2,}[a-z]{2,}/(?:\w+/)*")  # before a metric of Google
_COUNT_OF_IDS = re.compile(r"\bcount\(\s*(?:\w+\.)?(?:\w+_)?id\s*\)", re.IGNORECASE)
_CODES = re.compile(r"(?<!\d)[1-5]xx(?![0-9a-z])|(?<![0-9a-z])[1-5]\d\d(?![0-9a-z])")
# A number for each of several things, as in `requests/pod`.
_EACH = re.compile(
    r"(?:/\s?|\band )(?:pod|instance|replica|host|node|target|server|user|client|session|worker|container|core|cpu"
    r"|gpu)s?\b"
)
_LOGARITHM = re.compile(r"(?<![a-z])(?:log_?(?:10|2|1p|e)|ln|lg|log(?=\s?\()|log scale)(?![a-z])|[(\[]\s?log\s?[)\]]")
_SUMMED = re.compile(
    r"(?i)(?<![a-z])(?:cum|cumul[a-z]*|kumul[a-z]*|cumsum|acumulad[a-z]*|accumulated|running[ _-](?:total|sum|count)"
    r"|so far|to[ _-]date)(?![a-z])"
)
_PERCENTILE = re.compile(r"(?<![a-z0-9])[pq]\d{1,2}(?:\.?\d+)?(?![0-9a-z])|[%\u00d8\u2300$\u20ac\u00a3\u00a5]")
_LOAD = re.compile(r"(?i)(?<![a-z])load(?![a-z])")  # of requests if its unit is a rate, otherwise of a CPU
_LETTERS = {
    "ms": "ms",
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds", "sek", "sekunde", "seconde", "segundo", "secondo"), "s"),
    **dict.fromkeys(("m", "min", "mins", "minute", "minutes", "minuto"), "m"),
    **dict.fromkeys(("h", "hr", "hrs", "hour", "hours", "std", "stunde", "heure", "hora", "ora"), "h"),
    **dict.fromkeys(("d", "day", "days", "tag", "jour", "dia", "d\u00eda", "giorno"), "d"),
}
_SPAN = "|".join(sorted(_LETTERS, key=len, reverse=True))
_PER = re.compile(
    r"(?i)(?:/|per[ _-]?|(?<![a-z])p\.\s?(?=min|se[ck]|st|h)"
    rf"|(?<![a-z])(?:pro|por|par|al|alla|all'|je|each|every|cada|ogni)[ _-])"
    rf"\s*(?P<number>\d+)?\s*(?P<unit>{_SPAN})\b"
)
_INVERSE = re.compile(rf"\b({_SPAN})\s?(?:\^\s?[-\u2212]\s?1\b|\u207b\u00b9)|\b1\s?/\s?({_SPAN})\b")  # s^-1, 1/s
# A span of time beside the requests, as in `requests_5m`.
_LONG = re.compile(
    rf"(?:(?<![a-z\d.])|increase|delta)(\d+)\s?({_SPAN})(?![a-z\d])|(?<![a-z])last (minute|hour|day)\b", re.I
)
_ADVERBS = {"minutely": 60.0, "hourly": 3600.0, "daily": 86400.0, "weekly": 604800.0, "monthly": 30.0 * 86400.0}
_REQ = r"(?=\s?(?i:reqs?|requests?|[rqt]ps|[rq]pm)\b)"
_SCALES = (
    (r"(?i:(?<![a-z])(?:hundreds|hundert)(?![a-z]))", 1e2),
    (
        rf"\([kK]\)|\('?000s?\)|(?<!\w)'000s?(?!\w)|\(?\b10\^3\b\)?|\b[kK]{_REQ}|\b[kK](?=/)"
        r"|(?<=s)[ _-](?:in[ _-])?[kK]$"
        r"|(?i:(?<![a-z])(?:thousands?|tsd|thsd|tausend|kilo|milliers|miles|migliaia)(?![a-z]))",
        1e3,
    ),
    (
        rf"\(M\)|\(?\b10\^6\b\)?|\bM{_REQ}"
        r"|(?i:(?<![a-z])(?:millions?|mio|mln|mn|millionen|millones|milioni)(?![a-z]))",
        1e6,
    ),
    (r"(?i:(?<![a-z])(?:billions?|bn|mrd|milliarden|milliards)(?![a-z]))", 1e9),
)
# Unclear whether it scales the numbers or the unit.
_FACTOR = re.compile(
    r"(?<![a-z\d])1k(?![a-z\d])"
    r"|[x\u00d7*]\s?(?:10+|1?[km])\b"
    r"|(?<![\w.])1[,. ]?000(?!\w)|(?<!\w)1e\d+\b|\b1\s?:\s?10+\b|[\u03b4\u2206]"
)
# Functions of Graphite and Kibana that make other numbers, or a statistic of the numbers of some time.
_CHANGED = re.compile(
    r"\b(?:scale|offset|add|invert|pow|log(?:arithm)?|squareroot|exp|dt|(?:multiply|divide|diff|overall)\w*)\("
)
_BY_STATISTIC = re.compile(r",\s*['\"](?:avg|average|mean|max|min|median|last|p\d+)\w*['\"]")
_BRACKETED = re.compile(r"(?<![\w.])[(\[]\s*(\w{1,3}\.?|[^()\[\]]*\d[^()\[\]]*)\s*[)\]]")  # a unit, such as `(k)`
_SQUARE = re.compile(r" \[([^\]\d$]*|10\^[36])\]")  # a unit; the range of a query has other digits
# A label that selects error statuses, as in `code=~"5.."`, or excludes successful ones, as in `code!="200"`.
_OF_ERRORS = re.compile(
    r"(?i)(?:\w(?<!port)=~?|(?:status|code|class)\w*:)\s*['\"`(]*(?:[45](?:\d\d(?!\d)|xx|\.|\[)|err|fail|timeout)"
    r"|\w!(?:=|~)\s*['\"`(]*(?:[23][\dx.\[]|ok|succ)"
)
_CALLS = re.compile(r"\b(rate|irate|increase|count_over_time)\s*\((?=.*\[)")
_OF_NO_RANGE = re.compile(r"\b(?:rate|irate|increase)\s*\(", re.IGNORECASE)  # another language than Prometheus'
_NEW_RELIC = re.compile(r"rate\(\s*(count|sum)\(([^()]*)\)\s*,\s*(\d+)?\s*(second|minute|hour)s?\s*\)", re.IGNORECASE)
_OTHER_CALLS = re.compile(
    r"(?i)\b(avg|mean|max|min|median|quantile|stddev|stdvar|histogram_quantile|percentile|\w+_over_time|absent|time|topk|bottomk)"
    r"\s*(?:\(|\b(?:by|without)\b)"
)
_WINDOWED = re.compile(r"\w+\s*\([^()]*\[\s*(?:\d+(?:ms|[smhdwy])|\$)")  # a query function over a time window
_METRIC = re.compile(r"([a-zA-Z_:][\w:.]*)\s*(?:\{[^}]*\})?\s*\[")
_OVER = re.compile(r"\[\s*([^\]:]+)(?::[^\]]*)?\]")
_OF_SERIES = re.compile(r"\b(?:count|count_values|group)\s*\(")  # the number of series
_WINDOW = re.compile(r"(\d+)(ms|s|m|h|d)")
_SECONDS = {"ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_RATE_OF = {"s": "per-second", "m": "per-minute", "h": "per-hour"}
_TIMES_60 = re.compile(r"\*\s*60\s*$")
_OPERATOR = re.compile(r"\boffset\s+-?\d|[-+*/]\s*\(|\)\s*[-+*/]|\s[-+*/]\s|[*/]\s*(?:\d+(?:\.\d+)?\b|\$)|/\s*period\b")
_BRACES = re.compile(r"\{[^}]*\}|\[[^\]]*\]|\"[^\"]*\"|\$\w+")
_SELECTOR = re.compile(r"\{[^}]*\}")
_LINES = re.compile(r"\}\s*([|!][^\[]*)\[")  # the pipeline of a query of Loki, which may select lines of a log
_FILTER = re.compile(r"[|!][=~]|\|\s*(?!__error)\w+\s*[=!<>]")
_NOT = re.compile(r"![=~]\s*(?:\"[^\"]*\"|`[^`]*`)")
_BOTH_ENDS = "istio_requests_total"  # both proxies of a request count it, unless `reporter` selects one
_AS = re.compile(r"\.as_(rate|count)\(\)")  # Datadog's queries
_SIGN = re.compile(r"[-+*/]\s*[\w(]")
_ROLLUP = re.compile(
    r"\.rollup\(\W*(?!sum\b)[a-z]|\b(?:ewma|median|moving|autosmooth|anomalies|forecast|outliers|top|bottom)\w*\("
)
_RECORDED = re.compile(r"^(?:\w+:)?([a-zA-Z_]\w*):i?rate\d+[smhd]$")  # Prometheus' names of recording rules
_DATADOG = re.compile(r"[a-z_0-9]*\(?\s*(?:sum|count):[\w.]+\{")
_IDENTIFIER = re.compile(r"[a-zA-Z_:][\w:]*(?:\{.*\})?")
_SOURCE = re.compile(r"[^()\[\]]*?(?:\s[-\u2013|:]\s|:\s|\|)")  # before a name, as in `checkout: requests`
# Before the last part of a path, the last segment of an identifier, or the ending of a counter's name.
_NAMESPACE = re.compile(r"[\w.-]+/[\w.-]+/.*|.*(?=_(?:total|count)$)|.*[.:](?=\w)")
_THINGS = frozenset({Role.THING, Role.ONE})
_PIECES = re.compile(r"[^\W_]+")
_DASH = re.compile(r"\s[-\u2013]\s")
_ADJECTIVE = re.compile(r"\w{3,}[^e]ed|\w{3,}(?:able|ible|ful|ous|ive|al)")
_LABELS = re.compile(r"([\w.]+)\s*(?:=~?|:)\s*['\"`]*([^'\",`}]*)")
_OWN_LABELS = frozenset(
    [
        *("job", "service", "app", "application", "instance", "pod", "namespace", "container", "env", "host", "model"),
        *("name", "deployment", "workload", "cluster", "loadbalancer", "targetgroup"),
    ]
)
_OF_ROWS = frozenset({Role.COUNT, Role.ROW, Role.NEUTRAL, Role.WAY, Role.LIMIT, Role.LINK})
_NUMBERS = frozenset({Role.COUNT, Role.MANY})
_OF_TOTALS = frozenset({*_NUMBERS, *_THINGS, Role.ROW, Role.NEUTRAL, Role.LIMIT, Role.LINK, Role.RATE})
_NO_REQUESTS = frozenset({Role.ERROR, Role.OTHER, Role.PART})
_NO_UNITS = frozenset({*_OF_ROWS, Role.MANY, Role.THING, Role.ONE, Role.RATE, Role.PART})


@dataclass(frozen=True, slots=True)
class _Words:
    """The words of a text and their roles. `unknown`: a word has none.

    `bare`: it may be the name of a part as well as of a service, because it stands beside the things themselves.
    `partly`: it is an adjective or follows a preposition.
    """

    words: frozenset[str]
    roles: frozenset[Role]
    unknown: bool
    bare: bool
    partly: bool


def meaning_of(name: str) -> Meaning:
    """Return the meaning of the column's numbers by its name."""
    times = 1.0
    name = normalize("NFC", _ACCENTS.sub("", normalize("NFD", name))).replace("\u00b3", "^3").replace("\u2076", "^6")
    name = _DOMAIN.sub("/", _REGION.sub("", _COUNT_OF_IDS.sub("count", name)))
    name = _SQUARE.sub(r" (\1)", _INVERSE.sub(r"/\1\2", name))
    for scale, factor in _SCALES:
        if re.search(scale, _BRACES.sub("", name)) is not None:
            name, times = re.sub(scale, "", name), factor
    found = _of_name(name)
    if _BOTH_ENDS in name and "reporter" not in name:
        return Meaning(Kind.UNCLEAR)
    errors, part = (any(map(selects, _SELECTOR.findall(name))) for selects in (_OF_ERRORS.search, _selects_part))
    if (errors or part) and found.kind not in (Kind.MEASURE, Kind.STATISTIC, Kind.ERRORS, Kind.UNCLEAR):
        return replace(found, kind=Kind.ERRORS if errors else Kind.PART)
    if found.kind is Kind.REQUESTS and (lines := _LINES.search(name)) is not None and _FILTER.search(lines[1]):
        selected = _NOT.sub("", lines[1]).lower()
        codes = _CODES.search(selected.replace("..", "xx"))
        of_errors = Role.ERROR in _words(selected).roles or (codes is not None and codes[0][0] in "45")
        return replace(found, kind=Kind.ERRORS if of_errors else Kind.PERHAPS)
    if found.counts and found.unit is None and _DATADOG.match(name) and not _AS.search(name):
        return Meaning(Kind.UNCLEAR)  # Datadog answers a count or a rate, by the type of the metric
    return replace(found, times=times)


def is_answered(name: str) -> bool:
    """Return whether the name says answered requests, so that the errors of another column have to be added."""
    return bool({word.lower() for word in _WORDS.findall(name)} & ANSWERED)


def is_of_all(name: str, names: Collection[str]) -> bool:
    """Return whether all other names have the words of this one, so that these words name their common service."""
    return len(names) > 1 and not any(has_own_name(name, other) for other in names)


def is_total(name: str, names: Collection[str]) -> bool:
    """Return whether a column may be the sum of the others: its own words say only that things are counted."""
    own = _words(_BRACES.sub("", name)).words
    return all(ROLES.get(word) in _OF_TOTALS for other in names for word in own - _words(_BRACES.sub("", other)).words)


def are_siblings(requests: str, part: str) -> bool:
    """Return whether `part` counts requests, and `requests` has a name or a way that `part` lacks."""
    return bool(_words(_BRACES.sub("", part)).roles & _THINGS) and has_own_name(requests, part)


def has_own_name(one: str, other: str) -> bool:
    """Return whether a name or a way, such as `checkout` or `web`, stands in one column's name and not in the other."""
    own = _words(_BRACES.sub("", one)).words - _words(_BRACES.sub("", other)).words
    return any(ROLES.get(word) in (Role.NAME, Role.WAY, None) and len(word) > 1 and not word.isdigit() for word in own)


def _of_name(name: str) -> Meaning:
    if (of_all := COUNTERS.get(_BRACES.sub("", name).strip("/ "))) is not None:
        return Meaning(Kind.REQUESTS if of_all else Kind.UNKNOWN, may_count=of_all)
    if (call := _CALLS.search(name)) is not None:
        return _of_query(name, call[1].lower())
    if (relic := _NEW_RELIC.fullmatch(name.strip())) is not None:
        return _of_name(f"{relic[1]} {relic[2]} per {relic[3] or 1} {relic[4]}".replace("*", "requests"))
    if _OF_NO_RANGE.search(name) and _PER.search(name) is None:
        return Meaning(Kind.UNCLEAR)
    if (recorded := _RECORDED.search(name.strip())) is not None:
        name = f"{recorded[1]} per second"
    if (datadog := _AS.search(name)) is not None:
        if _ROLLUP.search(name):
            return Meaning(Kind.STATISTIC)
        if _SIGN.search(name[datadog.end() :]):
            return Meaning(Kind.UNCLEAR)  # a part of a sum, or of another time
        name = name[: datadog.start()] + (" per second" if datadog[1] == "rate" else " count")
    bare = _BRACES.sub("", name)
    if len([part for part in _DASH.split(bare) if _words(part).roles & _THINGS]) < 2:
        bare = _DASH.sub(" | ", bare)  # a dash, no minus
    low = bare.lower()
    if _WINDOWED.search(name) and not _OTHER_CALLS.search(low):
        return Meaning(Kind.UNCLEAR)  # delta, deriv, changes, ...
    per, long, summed = _PER.search(bare), _LONG.search(bare), _SUMMED.search(bare)
    # The `min` of `requests/min` is no minimum, and the `running` of a running total is no number at one moment.
    rest = _PER.sub(" ", bare)
    if per is not None:
        rest = _LOAD.sub(" ", rest)
    words = _words(_SUMMED.sub(" ", _LONG.sub(" ", rest)))
    roles = words.roles
    statistic = Role.STATISTIC in roles or _LOGARITHM.search(low) or _EACH.search(low) or _PERCENTILE.search(low)
    if statistic or _BY_STATISTIC.search(name.lower()) or (_OTHER_CALLS.search(low) and "count" not in words.words):
        return Meaning(Kind.STATISTIC)
    ending = bare.strip().rpartition("_")[2] if "_" in bare and _IDENTIFIER.fullmatch(name.strip()) else ""
    histogram = ending == "count" and Role.TIMED in roles
    if Role.MEASURE in roles or ending in ("bucket", "created") or (Role.TIMED in roles and not histogram):
        return Meaning(Kind.MEASURE)
    if (Role.STATUS in roles and not _CODES.search(low)) or (Role.SPAN in roles and Role.THING not in roles):
        return Meaning(Kind.MEASURE)
    rates = [RATES[RATE_WORDS[word]] for word in sorted(words.words) if word in RATE_WORDS]
    unit = _per(per) if per is not None else next(iter(rates), None)
    open_unit = _CHANGED.search(low) or _FACTOR.search(rest.lower()) or _unknown_unit(rest.lower())
    if (_OPERATOR.search(low) and per is None) or Role.OPEN in roles or open_unit:
        return Meaning(Kind.UNCLEAR)
    counted = unit is not None or summed is not None or histogram or bool(roles & _NUMBERS)
    kind = Kind.REQUESTS if histogram and not roles & _NO_REQUESTS else _kind(words, low, counted=counted)
    if Role.RATE in roles and unit is None and (roles & {Role.ERROR, Role.PART}):
        return Meaning(Kind.STATISTIC)  # a share
    if kind in (Kind.UNKNOWN, Kind.COUNT) and (unit is not None or summed is not None):
        # Packets and bytes have rates and sums, too.
        of_any = words.unknown or Role.OTHER in roles or not (Role.COUNT in roles or (unit and roles <= {Role.RATE}))
        kind = Kind.UNKNOWN if of_any else Kind.REQUESTS
    unit = unit or (COUNTER if summed is not None else None)
    if unit is None and Role.RATE in roles and Role.OTHER not in roles:
        return Meaning(Kind.UNCLEAR)
    window_s = next((_ADVERBS[word] for word in sorted(words.words) if word in _ADVERBS), 0.0)
    if long is not None:
        window_s = int(long[1] or 1) * _SECONDS[_LETTERS[(long[2] or long[3]).lower()]]
    named = Role.ONE in roles and not words.unknown if kind is Kind.UNKNOWN else ending == "total" or histogram
    return Meaning(kind, unit, named, window_s=window_s, may_be_log="log" in words.words)


def _words(text: str) -> _Words:
    placed = [(part, word) for part in re.finditer(r"\S+", text) for word in _cut(part[0]) if word != "the"]
    flat = ["", *(word for _, word in placed), ""]
    things = {word for word in flat if ROLES.get(word) is Role.THING}
    translated = bool(things) and things <= FOREIGN
    source = _SOURCE.match(text)
    roles: set[Role] = set()
    unknown, bare, partly = False, False, False
    for at, (part, word) in enumerate(placed, 1):
        before, after = flat[at - 1], ROLES.get(flat[at + 1])
        role, limited = ROLES.get(word), ROLES.get(before) is Role.LIMIT
        if role is not None and (role is not Role.LINK or translated):
            partly = partly or (limited and role is Role.NAME)
            roles.add(role)
        elif not word.isdigit() and (len(word) > 1 or not word.isascii()):
            unknown = True
            partly = partly or limited or _ADJECTIVE.fullmatch(word) is not None
            first = not roles & _THINGS
            of_source = source is not None and part.end() <= source.end()
            space = _NAMESPACE.match(part[0]) if first else None
            named = of_source or after is Role.NAME or (before in ("of", "for") and not first)
            bare = bare or translated or not (named or (space and word in space[0].lower()))
    return _Words(frozenset(flat[1:-1]), frozenset(roles), unknown, bare, partly)


def _cut(part: str) -> list[str]:
    """Return the words of a text without blanks, in lower case."""
    found: list[str] = []
    for piece in _PIECES.findall(part):
        found += [piece] if piece.lower() in ROLES or not piece.isascii() else _WORDS.findall(piece)
    return [word.lower() for word in found]


def _kind(words: _Words, low: str, *, counted: bool) -> Kind:
    """Return the kind of the counted things. `counted`: a word says that they are a number."""
    roles = words.roles
    thing = Role.THING in roles or (counted and Role.ONE in roles and Role.ROW not in roles)
    codes = _CODES.search(low)
    if Role.OTHER in roles:
        return Kind.UNKNOWN
    if Role.ERROR in roles or (codes is not None and codes[0][0] in "45"):
        return Kind.ERRORS
    if codes is not None or (thing and (Role.PART in roles or words.partly)):
        return Kind.PART
    if thing:
        return Kind.PERHAPS if words.bare else Kind.REQUESTS
    return Kind.COUNT if Role.COUNT in roles and not words.unknown and roles <= _OF_ROWS else Kind.UNKNOWN


def _selects_part(selector: str) -> bool:
    """Return whether a label selects some of the requests, as a method or a status does."""
    return any(
        re.split("[._]", key.removesuffix("_name"))[-1] not in _OWN_LABELS
        and value not in (".*", ".+")
        and _words(f"{key} {value}").roles & {Role.PART, Role.STATUS}
        for key, value in _LABELS.findall(selector)
    )


def _unknown_unit(low: str) -> bool:
    """Return whether brackets hold an unknown word, which may be a unit."""
    return any(
        not (_words(inner).roles <= _NO_UNITS and all(word in ROLES or word == "n" for word in _words(inner).words))
        and not (_CODES.search(inner) or _LONG.search(inner) or _WINDOW.fullmatch(inner))
        for inner in _BRACKETED.findall(low)
    )


def _per(found: re.Match[str]) -> Unit:
    """Return the unit of requests in a number of seconds, minutes, hours or days."""
    number, unit = int(found["number"] or 1), _LETTERS[found["unit"].lower()]
    if number == 1 and unit in _RATE_OF:
        return RATES[_RATE_OF[unit]]
    return Unit(f"requests/{number} {unit}" if number != 1 else f"requests/{unit}", max(number, 1) * _SECONDS[unit])


def _of_query(name: str, call: str) -> Meaning:
    """Return the meaning of a query of Prometheus or Loki: `rate` is per second, `increase` counts in its window."""
    per_minute = _TIMES_60.search(name) is not None
    outside = _BRACES.sub("", _TIMES_60.sub("", name))
    others = outside.replace("count_over_time", "")
    if _OTHER_CALLS.search(others) or _OF_SERIES.search(others):
        return Meaning(Kind.STATISTIC)
    if _OPERATOR.search(outside.lower()) or len(_CALLS.findall(name)) > 1:
        return Meaning(Kind.UNCLEAR)
    metric, over = None if _LINES.search(name) else _METRIC.search(name), _OVER.search(name)
    counter = metric[1] if metric is not None else "requests_total"
    kind = _of_name(counter if counter.endswith(("_total", "_count")) else f"{counter}_total").kind
    if kind in (Kind.MEASURE, Kind.STATISTIC, Kind.UNCLEAR):
        return Meaning(kind)
    kind = Kind.UNKNOWN if kind is Kind.COUNT else kind  # of any rows
    if call in ("rate", "irate"):
        return Meaning(kind, RATES["per-minute" if per_minute else "per-second"])
    window = _WINDOW.fullmatch(over[1].strip()) if over else None
    if per_minute or (over and window is None and over[1].strip() != "$__interval"):
        return Meaning(Kind.UNCLEAR)
    if window is None:
        return Meaning(kind, ROW)
    seconds = int(window[1]) * _SECONDS[window[2]]
    return Meaning(kind, Unit(f"increases over {window[0]}", seconds))
