"""The meaning of a column's numbers, by its name: a title, a metric's name, or the query in a dashboard's legend."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from enum import Enum
from unicodedata import normalize


class Kind(Enum):
    REQUESTS = "requests"  # the name says requests, or a rate such as `rps`
    COUNT = "a count"  # of anything
    PART = "a part of the requests"
    ERRORS = "errors"
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
        return self.kind in (Kind.REQUESTS, Kind.COUNT, Kind.UNCLEAR)


_ACCENTS = re.compile("[\u0300-\u036f]")
_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_TRANSLATED = frozenset(
    ["anfragen", "aufrufe", "zugriffe", "solicitudes", "peticiones", "richieste", "requetes", "requisicoes"]
)
_REQUESTS = _TRANSLATED | frozenset(
    [
        *("requests", "reqs", "hits"),
        *("calls", "invocations", "queries", "predictions", "inferences", "rps", "qps", "tps", "rpm", "qpm", "reqps"),
        *("reqpm",),
    ]
)
_SINGULAR = frozenset(["request", "req", "query", "call", "invocation", "hit", "http", "prediction", "inference"])
_REGION = re.compile(  # of a cloud: its `us` are no microseconds
    r"(?<![a-z])[a-z]{2,12}-(?:gov-)?(?:north|south|east|west|central)(?:east|west)?-?\d[a-z]?(?![a-z\d])",
    re.IGNORECASE,
)
_COUNT_OF_IDS = re.compile(r"\bcount\(\s*(?:\w+\.)?(?:\w+_)?id\s*\)", re.IGNORECASE)
_LAST_WORD = re.compile(r"\s-\s(?=(?:sum|count|total)\s*$)", re.IGNORECASE)  # the dash is no minus
_OTHER_SCRIPTS = frozenset(  # whole names: Russian, Japanese, Chinese, Korean
    [
        *("\u0437\u0430\u043f\u0440\u043e\u0441\u044b", "\u30ea\u30af\u30a8\u30b9\u30c8\u6570", "\u8bf7\u6c42\u6570"),
        *("\u8bf7\u6c42\u91cf", "\u8acb\u6c42\u6578", "\uc694\uccad \uc218", "\uc694\uccad\uc218"),
    ]
)
_COUNTS = frozenset(["count", "counts", "sum", "total", "number", "num", "anzahl"])
_RATES = {"rps": "per-second", "qps": "per-second", "tps": "per-second", "reqps": "per-second"}
_RATES |= {"ps": "per-second", "hz": "per-second", "persec": "per-second", "permin": "per-minute"}
_RATES |= {"rpm": "per-minute", "qpm": "per-minute", "tpm": "per-minute", "reqpm": "per-minute"}
_SOME_RATE = frozenset({"rate", "throughput", "traffic"})
_ERRORS = frozenset(
    [
        *("error", "errors", "fail", "failed", "fails", "failure", "failures", "rejected", "dropped", "timeout"),
        *("shed", "abandoned", "refused", "unserved", "unanswered", "discarded", "killed", "expired"),
        *("timeouts", "exceptions", "throttles", "throttled", "aborted", "cancelled", "canceled", "lost", "bad"),
        *(
            "invalid",
            "forbidden",
            "unauthorized",
            "malformed",
            "fehler",
            "fehlerhafte",
            "fehlgeschlagene",
            "abgelehnte",
        ),
        *("errores", "fallidas", "rechazadas", "errori", "fallite", "erreurs", "echecs", "erros", "falhas"),
    ]
)
_ANSWERED = frozenset(["served", "answered", "completed", "processed", "handled", "executed", "finished"])
_PARTS = frozenset(["success", "successes", "successful", "succeeded", "ok", "erfolgreiche", "exitosas"])
# Requests that did not come, that the service did not get, or that it made.
_OTHERS = frozenset(
    [
        *("forecast", "forecasts", "forecasted", "predicted", "expected", "planned", "goal", "budget"),
        *("limit", "quota", "threshold", "capacity", "baseline", "blocked", "denied", "retry", "retries", "retried"),
        *("cache", "cached", "miss", "misses", "throttling", "slow", "bot", "bots", "crawler", "sampled"),
        *("normalized", "normalised", "previous", "health", "probe", "shadow", "mirrored", "replayed", "duplicate"),
        *("duplicates", "remaining", "available", "allowed", "unique", "distinct", "yesterday", "prior", "ago"),
        *("exec", "execs", "executions", "batch", "batches"),
        # Calls that the service makes, and those of other kinds.
        *(
            "client",
            "outgoing",
            "outbound",
            "egress",
            "db",
            "database",
            "dns",
            "sql",
            "mysql",
            "postgres",
            "postgresql",
        ),
        *("redis", "mongo", "mongodb", "memcached", "dynamodb", "promhttp", "resource", "pull", "merge"),
        *("test", "tests", "synthetic", "warmup", "preflight", "redirect", "redirects", "fixed", "sticky", "compliant"),
        *("preemption", "preemptions", "msg", "msgs", "spillover", "unhealthy", "prev", "cap", "slo", "sla", "late"),
    ]
)
# Words that only say what a row of a query's answer is.
_OF_ROWS = frozenset(
    [
        *("record", "records", "row", "rows", "event", "events", "doc", "docs", "document", "documents", "log", "logs"),
        *("entry", "entries", "item", "items", "value", "values", "metric", "metrics", "of", "all", "the", "in", "by"),
        *("as", "series", "grand", "overall", "per", "http", "over", "web", "api"),
    ]
)
_SERVED = frozenset(
    ["rq", "served", "responses", "accesses", "transactions", "tx", "questions", "handled", "processed", "ops"]
)
# Words that name a part of the requests, as in `deferred requests`, except those of _OF_ALL.
_PARTICIPLE = re.compile(r"\w{3,}[^e]ed|sent|held|kept|hidden|broken")
_OF_ALL = _ANSWERED | frozenset(
    [
        *("received", "accepted", "started", "admitted", "arrived", "routed", "forwarded", "proxied", "delivered"),
        *("invoked", "called", "recorded", "observed", "measured", "counted", "logged", "dispatched", "submitted"),
        *("issued", "combined", "summed", "aggregated", "hosted", "managed", "shared", "accumulated"),
    ]
)
# Words beside `Anfragen` or `peticiones` that leave all requests in. Others may say errors or an average.
_BESIDE_TRANSLATED = frozenset(
    [
        *("de", "des", "der", "die", "das", "du", "la", "le", "les", "las", "los", "do", "da", "dos", "di", "del"),
        *("alle", "todas", "tutte", "toutes", "gesamt", "gesamte", "insgesamt", "totales", "totaux", "totali"),
        *("totais", "nombre", "numero", "nb", "nr", "zahl", "summe", "suma", "somme", "somma", "soma", "an"),
        *("eingehende", "eingegangene", "empfangene", "recibidas", "recues", "ricevute", "recebidas", "entrantes"),
    ]
)
# Counts of a machine or a library.
_FOREIGN = frozenset(
    [
        *("gc", "packet", "packets", "cx", "flow", "flows", "switches", "visible", "evaluations", "restarts", "scrape"),
        *("scrapes", "reconcile", "sessions", "visitors", "lines", "interrupts", "faults", "forks", "alerts"),
    ]
)
_TIMED = frozenset(
    [
        *("latency", "duration", "elapsed", "ms", "millis", "milliseconds", "seconds", "sec", "secs", "us", "ns"),
        *("time", "times", "bytes", "byte", "kb", "mb", "gb", "size", "length", "latenz", "dauer"),
    ]
)
_CODES = re.compile(r"(?<![0-9a-z])(?:([12345])xx|[12345]\d\d)(?![0-9a-z])")
_OTHER_CODES = re.compile(r"\b(?:non|not)[-_ ]?[23]xx")
_STATISTICS = frozenset(
    [
        *("average", "avg", "mean", "median", "min", "minimum", "max", "maximum", "stddev", "stdev", "percentile"),
        *("quantile", "percent", "pct", "share", "ratio", "utilization", "utilisation", "util", "availability"),
        *("peak", "highest", "lowest", "per", "pro", "por", "durchschnitt", "mittelwert", "moyenne", "promedio"),
    ]
)
# A number for each of several things, as in `requests/pod`.
_EACH = re.compile(
    r"(?:/\s?|\band )(?:pod|instance|replica|host|node|target|server|user|client|session|worker|container|core|cpu"
    r"|gpu)s?\b"
)
# Numbers made of others: a moving average, a part of a model.
_DERIVED = frozenset(
    [
        *("sqrt", "cbrt", "squared", "exp", "zscore", "scaled", "standardized", "standardised", "norm", "normed"),
        *(
            "ema",
            "ewma",
            "sma",
            "wma",
            "ma",
            "rolling",
            "moving",
            "smooth",
            "smoothed",
            "trend",
            "seasonal",
            "residual",
        ),
        *("residuals", "yhat", "upper", "lower", "anomaly", "anomalies", "outlier", "outliers", "variance", "std"),
    ]
)
_LOGARITHM = re.compile(r"(?<![a-z])(?:log_?(?:10|2|1p|e)|ln|lg|log(?=\s?\()|log scale)(?![a-z])|[(\[]\s?log\s?[)\]]")
# Words that leave the number open: a change may be that of a counter or that of a rate.
_OPEN = frozenset(
    [
        *("delta", "diff", "difference", "change", "changes", "growth", "derivative", "vs", "versus", "pm", "ph", "pd"),
        *("lakh", "lakhs", "crore", "crores", "dozen", "dozens", "yoy", "wow", "dod", "today", "mtd", "ytd", "qtd"),
        *("since", "lifetime"),
    ]
)
_SUMMED = re.compile(
    r"(?<![a-z])(?:cum|cumul\w*|kumul\w*|cumsum|acumulad\w*|accumulated|running[ _-](?:total|sum|count)"
    r"|so far|to[ _-]date)(?![a-z])"
)
_PERCENTILE = re.compile(r"(?<![a-z0-9])[pq]\d{1,2}(?:\.?\d+)?(?![0-9a-z])|\d%|%")
_MEASURES = frozenset(
    [
        *("latency", "duration", "elapsed", "ms", "millis", "milliseconds", "seconds", "sec", "secs", "us", "ns"),
        *("time", "times", "bytes", "byte", "kb", "mb", "gb", "bits", "size", "length", "status", "code", "port", "id"),
        *("pid", "line", "level", "connection", "connections", "cpu", "memory", "mem", "disk", "version", "user"),
        *("users", "host", "hosts", "instances", "replicas", "nodes", "pods", "age", "load", "threads"),
        *("vus", "tokens", "latenz", "antwortzeit", "dauer", "latence", "latencia", "latenza"),
        *("temps", "duree", "delai", "taille", "octets", "tiempo", "duracion", "tempo", "durata", "duracao", "tamanho"),
        *("price", "cost", "usd", "temperature", "queue", "depth", "lag", "uptime", "seq", "sequence", "year", "month"),
        *("week", "weekday", "day", "hour", "minute", "second", "index", "rank"),
    ]
)
# Requests in progress at one moment.
_GAUGES = frozenset(
    [
        *("concurrent", "concurrency", "flight", "inflight", "pending", "waiting", "queued", "backlog", "active"),
        *("outstanding", "progress", "open", "current", "running", "executing", "processing", "ongoing"),
        *("simultaneous", "parallel", "swapped"),
    ]
)
_SPANS = frozenset(
    ["second", "minute", "hour", "day", "week", "month", "year", "load"]
)  # `requests of the day` counts requests
_OF_CODES = frozenset({"status", "code"})  # `status_2xx` counts the requests of a status
_LETTERS = {
    "ms": "ms",
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds", "sek", "sekunde", "seconde", "segundo", "secondo"), "s"),
    **dict.fromkeys(("m", "min", "mins", "minute", "minutes", "minuto"), "m"),
    **dict.fromkeys(("h", "hr", "hrs", "hour", "hours", "std", "stunde", "heure", "hora", "ora"), "h"),
    **dict.fromkeys(("d", "day", "days", "tag", "jour", "dia", "d\u00eda", "giorno"), "d"),
}
_SPAN = "|".join(sorted(_LETTERS, key=len, reverse=True))
_PER = re.compile(
    r"(?:/|per[ _-]?|(?<![a-z])p\.\s?(?=min|se[ck]|st|h)"
    rf"|(?<![a-z])(?:pro|por|par|al|alla|all'|je|each|every|cada|ogni)[ _-])"
    rf"\s*(?P<number>\d+)?\s*(?P<unit>{_SPAN})\b"
)
_INVERSE = re.compile(rf"\b({_SPAN})\s?(?:\^\s?[-\u2212]\s?1\b|\u207b\u00b9)")  # s^-1
# A span of time beside the requests, as in `requests_5m`.
_LONG = re.compile(rf"(?:(?<![a-z\d.])|increase|delta)(\d+)\s?({_SPAN})(?![a-z\d])|(?<![a-z])last (minute|hour|day)\b")
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
    r"[x\u00d7*]\s?(?:10+|1?[km])\b|/\s?1?k\b|(?<![\w.])1[,. ]?000(?!\w)|(?<!\w)1e\d+\b|\b1\s?:\s?10+\b|[\u03b4\u2206]"
)
_BRACKETED = re.compile(r"(?<![\w.])[(\[]\s*(\w{1,3}\.?|[^()\[\]]*\d[^()\[\]]*)\s*[)\]]")  # a unit, such as `(k)`
_SQUARE = re.compile(r" \[([^\]\d$]*|10\^[36])\]")  # a unit; the range of a query has other digits
_NO_UNITS = frozenset({"all", "n", "nr", "no", "get", "put"})
# A label that selects error statuses, as in `code=~"5.."`, or excludes successful ones, as in `code!="200"`.
_OF_ERRORS = re.compile(
    r"\w=~?\s*['\"`(]*(?:[45](?:\d\d(?!\d)|xx|\.|\[)|err|fail|timeout)|\w!(?:=|~)\s*['\"`(]*(?:[23][\dx.\[]|ok|succ)",
    re.IGNORECASE,
)
_CALLS = re.compile(r"\b(rate|irate|increase|count_over_time)\s*\((?=.*\[)")
_OF_NO_RANGE = re.compile(r"\b(?:rate|irate|increase)\s*\(", re.IGNORECASE)  # another language than Prometheus'
_NEW_RELIC = re.compile(r"rate\(\s*(count|sum)\(([^()]*)\)\s*,\s*(\d+)?\s*(second|minute|hour)s?\s*\)", re.IGNORECASE)
_OTHER_CALLS = re.compile(
    r"\b(avg|mean|max|min|median|quantile|stddev|stdvar|histogram_quantile|percentile|\w+_over_time|absent|time)"
    r"\s*(?:\(|\b(?:by|without)\b)",
    re.IGNORECASE,
)
_WINDOWED = re.compile(r"\w+\s*\([^()]*\[\s*(?:\d+(?:ms|[smhdwy])|\$)")  # a query function over a time window
_METRIC = re.compile(r"([a-zA-Z_:][\w:.]*)\s*(?:\{[^}]*\})?\s*\[")
_OVER = re.compile(r"\[\s*([^\]:]+)(?::[^\]]*)?\]")
_OF_SERIES = re.compile(r"\b(?:count|count_values|group)\s*\(")  # the number of series
_WINDOW = re.compile(r"(\d+)(ms|s|m|h|d)")
_SECONDS = {"ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_RATE_OF = {"s": "per-second", "m": "per-minute", "h": "per-hour"}
_TIMES_60 = re.compile(r"\*\s*60\s*$")
_OPERATOR = re.compile(r"[-+*/]\s*\(|\)\s*[-+*/]|\s[-+*/]\s|[*/]\s*(?:\d+(?:\.\d+)?\b|\$)|/\s*period\b")
_BRACES = re.compile(r"\{[^}]*\}|\[[^\]]*\]|\"[^\"]*\"|\$\w+")
_SELECTOR = re.compile(r"\{[^}]*\}")
_AS = re.compile(r"\.as_(rate|count)\(\)")  # Datadog's queries
_ROLLUP = re.compile(
    r"\.rollup\(\W*(?!sum\b)[a-z]|\b(?:ewma|median|moving|autosmooth|anomalies|forecast|outliers)\w*\("
)
_RECORDED = re.compile(r"^(?:\w+:)?([a-zA-Z_]\w*):i?rate\d+[smhd]$")  # Prometheus' names of recording rules
_DATADOG = re.compile(r"[a-z_0-9]*\(?\s*(?:sum|count):[\w.]+\{")
_IDENTIFIER = re.compile(r"[a-zA-Z_:][\w:]*(?:\{.*\})?")


def meaning_of(name: str) -> Meaning:
    """Return the meaning of the column's numbers by its name."""
    times = 1.0
    name = "requests" if name.strip().lower() in _OTHER_SCRIPTS else name
    name = _ACCENTS.sub("", normalize("NFD", name)).replace("\u00b3", "^3").replace("\u2076", "^6")
    name = _LAST_WORD.sub(" ", _REGION.sub("", _COUNT_OF_IDS.sub("count", name)))
    name = _SQUARE.sub(r" (\1)", _INVERSE.sub(r"/\1", name))
    for scale, factor in _SCALES:
        if re.search(scale, _BRACES.sub("", name)) is not None:
            name, times = re.sub(scale, "", name), factor
    found = _of_name(name)
    if found.kind in (Kind.REQUESTS, Kind.COUNT, Kind.UNKNOWN) and any(map(_OF_ERRORS.search, _SELECTOR.findall(name))):
        return replace(found, kind=Kind.ERRORS)
    if found.counts and found.unit is None and _DATADOG.match(name) and not _AS.search(name):
        return Meaning(Kind.UNCLEAR)  # Datadog answers a count or a rate, by the type of the metric
    return replace(found, times=times)


def is_of_others(name: str) -> bool:
    """Return whether the name says requests that the service did not get, or work that is no request."""
    return _of_others({word.lower() for word in _WORDS.findall(_BRACES.sub("", name))})


def is_answered(name: str) -> bool:
    """Return whether the name says requests that were answered, so that errors beside it come on top."""
    return bool({word.lower() for word in _WORDS.findall(name)} & _ANSWERED)


def _of_others(words: set[str]) -> bool:
    return bool(words & _OTHERS) or any(_PARTICIPLE.fullmatch(word) for word in words - _OF_ALL - _SERVED - _ERRORS)


def _of_name(name: str) -> Meaning:
    if (call := _CALLS.search(name)) is not None:
        return _of_query(name, call[1].lower())
    if (relic := _NEW_RELIC.fullmatch(name.strip())) is not None:
        return _of_name(f"{relic[1]} {relic[2]} per {relic[3] or 1} {relic[4]}".replace("*", "requests"))
    if _OF_NO_RANGE.search(name) and _PER.search(name.lower()) is None:
        return Meaning(Kind.UNCLEAR)
    if (recorded := _RECORDED.search(name.strip())) is not None:
        name = f"{recorded[1]} per second"
    if (datadog := _AS.search(name)) is not None:
        if _ROLLUP.search(name):
            return Meaning(Kind.STATISTIC)
        name = name[: datadog.start()] + (" per second" if datadog[1] == "rate" else " count")
    bare = _BRACES.sub("", name)
    low = bare.lower()
    if _WINDOWED.search(name) and not _OTHER_CALLS.search(low):
        return Meaning(Kind.UNCLEAR)  # delta, deriv, changes, ...
    per = _PER.search(low)
    # Left out: the unit of time, because the `min` of `requests/min` is neither a measure nor a minimum.
    words = {word.lower() for word in _WORDS.findall(bare if per is None else bare[: per.start()] + bare[per.end() :])}
    if words & _FOREIGN:
        return Meaning(Kind.MEASURE)
    summed = _SUMMED.search(low) is not None
    if (
        words & _STATISTICS
        or words & _DERIVED
        or _LOGARITHM.search(low)
        or _EACH.search(low)
        or _PERCENTILE.search(low)
        or (_OTHER_CALLS.search(low) and "count" not in words)
    ):
        return Meaning(Kind.STATISTIC)
    if words & _GAUGES and not summed:
        return Meaning(Kind.MEASURE)
    ending = bare.strip().rpartition("_")[2] if "_" in bare and _IDENTIFIER.fullmatch(name.strip()) else ""
    if ending in ("count", "total", "bucket", "created"):
        measures = words & _MEASURES
        if (ending == "count" and measures & _TIMED) or (ending == "total" and not measures):
            return replace(_of_words(words, low, Kind.REQUESTS), may_count=True)
        if ending in ("bucket", "created"):
            return Meaning(Kind.MEASURE)
    unit = _per(per) if per is not None else next((RATES[_RATES[w]] for w in sorted(words) if w in _RATES), None)
    measures = words & _MEASURES - (_SPANS if words & _REQUESTS else frozenset())
    if measures and not (measures <= _OF_CODES and _CODES.search(low)):
        return Meaning(Kind.MEASURE)
    rest = low if per is None else low[: per.start()] + low[per.end() :]
    if (_OPERATOR.search(low) and per is None) or _FACTOR.search(rest) or words & _OPEN or _unknown_unit(rest):
        return Meaning(Kind.UNCLEAR)
    if _of_others(words):
        return Meaning(Kind.UNKNOWN)
    if words & _TRANSLATED and not words & _REQUESTS - _TRANSLATED and _says_more(words):
        return Meaning(Kind.UNCLEAR)
    if (part := _part(words, low)) is not None:
        # An error rate or a success rate is a share unless a unit says otherwise.
        return Meaning(Kind.STATISTIC if unit is None and "rate" in words else part, unit)
    if unit is not None:
        # Packets and bytes have rates, too.
        ours = not words or words & (_REQUESTS | _SINGULAR | _SERVED | _COUNTS) or words & _RATES.keys()
        return Meaning(Kind.REQUESTS if ours else Kind.UNKNOWN, unit, may_be_log="log" in words)
    if summed:
        ours = words & (_REQUESTS | _SINGULAR | _SERVED | _COUNTS)
        return Meaning(Kind.REQUESTS if ours else Kind.UNKNOWN, COUNTER)
    if words & _SOME_RATE:
        return Meaning(Kind.UNCLEAR)
    long = _LONG.search(low)
    window_s = next((_ADVERBS[word] for word in sorted(words) if word in _ADVERBS), 0.0)
    if long is not None:
        window_s = int(long[1] or 1) * _SECONDS[_LETTERS[long[2] or long[3]]]
    if words & _REQUESTS or (words & (_SINGULAR | _SERVED) and words & _COUNTS):
        return Meaning(Kind.REQUESTS, window_s=window_s, may_be_log="log" in words)
    rows_only = all(word in _COUNTS | _OF_ROWS | _SPANS or len(word) == 1 or word.isdigit() for word in words)
    return Meaning(Kind.COUNT if words & _COUNTS and rows_only else Kind.UNKNOWN, window_s=window_s)


def _unknown_unit(low: str) -> bool:
    """Return whether brackets hold what may be a unit, and is not known."""
    for inner in _BRACKETED.findall(low):
        words = {word.lower() for word in _WORDS.findall(inner)} - _NO_UNITS
        known = words <= _REQUESTS | _SINGULAR | _COUNTS | _OF_ROWS | _RATES.keys() | _SOME_RATE
        if not (known or _CODES.search(inner) or _LONG.search(inner) or _WINDOW.fullmatch(inner)):
            return True
    return False


def _of_words(words: set[str], low: str, kind: Kind) -> Meaning:
    """Return the meaning by the words of a metric's name: unknown, errors, a part of the requests, or else `kind`."""
    return Meaning(Kind.UNKNOWN if _of_others(words) else _part(words, low) or kind)


def _says_more(words: set[str]) -> bool:
    """Return whether words beside translated ones may leave some requests out."""
    known = (
        _TRANSLATED | _BESIDE_TRANSLATED | _COUNTS | _OF_ROWS | _SPANS | _ERRORS | _PARTS | _SOME_RATE | _RATES.keys()
    )
    return not all(word in known or len(word) == 1 or word.isdigit() for word in words)


def _per(found: re.Match[str]) -> Unit:
    """Return the unit of requests in a number of seconds, minutes, hours or days."""
    number, unit = int(found["number"] or 1), _LETTERS[found["unit"]]
    if number == 1 and unit in _RATE_OF:
        return RATES[_RATE_OF[unit]]
    return Unit(f"requests/{number} {unit}" if number != 1 else f"requests/{unit}", max(number, 1) * _SECONDS[unit])


def _part(words: set[str], low: str) -> Kind | None:
    if words & _ERRORS:
        return Kind.ERRORS
    if _OTHER_CODES.search(low):
        return Kind.ERRORS
    codes = _CODES.search(low)
    if codes is not None:
        return Kind.ERRORS if codes[0][0] in "45" else Kind.PART
    return Kind.PART if words & _PARTS else None


def _of_query(name: str, call: str) -> Meaning:
    """Return the meaning of a query of Prometheus or Loki: `rate` is per second, `increase` counts in its window."""
    per_minute = _TIMES_60.search(name) is not None
    outside = _BRACES.sub("", _TIMES_60.sub("", name))
    others = outside.replace("count_over_time", "")
    if _OTHER_CALLS.search(others) or _OF_SERIES.search(others):
        return Meaning(Kind.STATISTIC)
    if _OPERATOR.search(outside.lower()) or len(_CALLS.findall(name)) > 1:
        return Meaning(Kind.UNCLEAR)
    metric, over = _METRIC.search(name), _OVER.search(name)
    words = {word.lower() for word in _WORDS.findall(metric[1])} if metric else set()
    timed = metric is not None and metric[1].endswith("_count") and words & _TIMED
    if words & _FOREIGN or (words & _MEASURES and not timed):
        return Meaning(Kind.MEASURE)
    kind = Kind.ERRORS if words & _ERRORS else Kind.REQUESTS
    if _of_others(words) or (metric is not None and not timed and not words & (_REQUESTS | _SINGULAR | _SERVED)):
        kind = kind if kind is Kind.ERRORS else Kind.UNKNOWN
    if call in ("rate", "irate"):
        return Meaning(kind, RATES["per-minute" if per_minute else "per-second"])
    window = _WINDOW.fullmatch(over[1].strip()) if over else None
    if per_minute or (over and window is None and over[1].strip() != "$__interval"):
        return Meaning(Kind.UNCLEAR)
    if window is None:
        return Meaning(kind, ROW)
    seconds = int(window[1]) * _SECONDS[window[2]]
    return Meaning(kind, Unit(f"increases over {window[0]}", seconds))
