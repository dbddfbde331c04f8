"""The words in names of columns, and their roles: a table for each language. Accents are left out."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum


class Role(Enum):
    THING = "requests"
    ONE = "a request, or a verb for it: requests only if another word says that they are counted"
    COUNT = "a number of"
    MANY = "a number of the named things; of anything if no thing is named"
    ROW = "a row of a table, which may be anything"
    NEUTRAL = "leaves all requests in"
    LINK = "a small word of one language; unknown in a name of another language"
    WAY = "a way in which requests come: all of them, unless another column names another way"
    NAME = "a component of a service, whose name may stand before, and which may be counted itself"
    RATE = "a rate, of an unknown unit unless RATE_WORDS has it"
    ERROR = "errors"
    PART = "a part of the requests"
    LIMIT = "a preposition, which makes a part if a name follows"
    OTHER = "requests that were forecast, that the service sent to others or never got, and other work"
    MEASURE = "a number of a machine, or of requests at one moment"
    TIMED = "a measured time or size; the count of its histogram counts requests"
    STATUS = "a status, a measure without its value"
    SPAN = "a span of time, a measure without requests"
    STATISTIC = "a number made of others"
    OPEN = "a difference, or a sum whose span is not known"


ENGLISH: Mapping[Role, str] = {
    Role.THING: """requests reqs hits calls invocations queries predictions inferences executions pageviews views rps
        qps tps rpm qpm tpm reqps reqpm""",
    Role.ONE: """request req query call invocation hit prediction inference execution message messages transaction
        transactions tx rq response responses access accesses questions ops started served answered completed processed
        handled executed finished""",
    Role.COUNT: "count counts sum total number num eventcount",
    Role.MANY: "counter cnt tot no volume",
    Role.ROW: """record records row rows event events doc docs document documents log logs entry entries item items
        value values metric metrics series""",
    Role.NEUTRAL: """of all as grand overall for increase incoming inbound received accepted admitted arrived routed
        forwarded proxied delivered invoked called recorded observed measured counted dispatched submitted issued
        combined summed aggregated hosted managed shared accumulated sent generated scheduled validated published actual
        real raw prod production staging live minutely hourly daily weekly monthly""",
    Role.WAY: "http web api rest graphql grpc rpc page",
    Role.NAME: """server service app application performance backend frontend edge gateway model deployment controller
        ingress function cluster upstream downstream serverless ml predict scoring elb alb lambda cloudfront nginx envoy
        istio traefik haproxy uwsgi gunicorn""",
    Role.RATE: "rate throughput traffic ps hz persec permin",
    Role.ERROR: """error errors fail failed failing fails failure failures rejected dropped timeout timeouts shed
        abandoned refused unserved unanswered discarded killed expired exceptions throttles throttled aborted cancelled
        canceled lost bad invalid forbidden unauthorized malformed""",
    Role.PART: """success successes successful succeeded ok get post put delete patch head options https tls http2 http3
        h2 ipv4 ipv6 websocket async sync streaming batch batches read reads write writes mobile desktop tablet ios
        android bot bots crawler human anonymous premium free paid admin public private eu us uk emea apac europe asia
        africa america domestic foreign cache cached miss misses static dynamic image images first last new third other
        key large small slow fast late priority weekend night sampled test tests synthetic warmup canary preflight
        health probe unique distinct allowed blocked denied duplicate unhealthy non not without""",
    Role.LIMIT: "from by with via in to over under above below through than where on at",
    Role.OTHER: """forecast forecasts forecasted predicted expected planned goal budget limit quota threshold
        capacity baseline retry retries retried throttling normalized normalised previous prev shadow mirrored
        replayed remaining available yesterday prior ago before shift timeshift exec execs client outgoing outbound
        egress db database dns sql mysql postgres postgresql redis mongo mongodb memcached dynamodb promhttp resource
        slo sla""",
    Role.MEASURE: """gc packet packets cx flow flows switches visible evaluations restarts scrape scrapes reconcile
        sessions visitors load lines interrupts faults forks alerts port id pid line level connection connections cpu
        memory mem disk version user users host hosts instances replicas nodes pods age threads vus tokens token price
        cost usd temperature queue depth lag uptime seq sequence weekday index rank concurrent concurrency flight
        inflight pending waiting queued backlog active outstanding progress open current running executing processing
        ongoing simultaneous parallel swapped""",
    Role.TIMED: """latency latencies duration elapsed ms millis milliseconds microseconds seconds sec secs us ns time
        times byte bytes bits kb mb gb size length""",
    Role.STATUS: "status code",
    Role.SPAN: "second minute hour day week month year",
    Role.STATISTIC: """average avg mean median min minimum max maximum stddev stdev percentile quantile percent pct
        share ratio utilization utilisation util availability peak highest lowest per sqrt cbrt squared exp zscore
        scaled standardized standardised norm normed ema ewma sma wma ma rolling moving smooth smoothed trend seasonal
        residual residuals yhat upper lower latest earliest anomaly anomalies outlier outliers variance std""",
    Role.OPEN: """delta diff difference change changes growth derivative vs versus pm ph pd lakh lakhs crore crores
        dozen dozens yoy wow dod today mtd ytd qtd since lifetime""",
}
GERMAN: Mapping[Role, str] = {
    Role.THING: "anfragen aufrufe seitenaufrufe zugriffe",
    Role.COUNT: "anzahl",
    Role.MANY: "zahl summe gesamt insgesamt",
    Role.RATE: "durchsatz",
    Role.LINK: "der die das an alle gesamte nr eingehende eingegangene empfangene",
    Role.ERROR: "fehler fehlerhafte fehlgeschlagene abgelehnte",
    Role.PART: "erfolgreiche",
    Role.TIMED: "latenz antwortzeit dauer",
    Role.STATISTIC: "pro durchschnitt mittelwert",
}
ROMANCE: Mapping[Role, str] = {
    Role.THING: "solicitudes peticiones llamadas consultas vistas richieste chiamate requetes appels vues requisicoes",
    Role.MANY: "nombre numero nb suma somme somma soma",
    Role.RATE: "debit trafic trafico",
    Role.LINK: """de des du la le les las los do da dos di del d l todas tutte toutes totales totaux totali totais pages
        paginas recibidas recues ricevute recebidas entrantes""",
    Role.ERROR: "errores fallidas rechazadas errori fallite erreurs echecs erros falhas",
    Role.PART: "exitosas reussies",
    Role.TIMED: "latence latencia latenza temps duree delai taille octets tiempo duracion tempo durata duracao tamanho",
    Role.STATISTIC: "por moyenne promedio",
}
FURTHER: Mapping[Role, str] = {  # Russian, Japanese, Chinese, Korean
    Role.THING: """\u0437\u0430\u043f\u0440\u043e\u0441\u044b \u30ea\u30af\u30a8\u30b9\u30c8\u6570
        \u8bf7\u6c42\u6570 \u8bf7\u6c42\u91cf \u8acb\u6c42\u6578 \uc694\uccad \uc694\uccad\uc218""",
    Role.MANY: "\uc218",
}
RATE_WORDS = {
    **dict.fromkeys(("rps", "qps", "tps", "reqps", "ps", "hz", "persec"), "per-second"),
    **dict.fromkeys(("rpm", "qpm", "tpm", "reqpm", "permin"), "per-minute"),
}
# Counters of servers, and whether they count all requests. Triton and Vertex AI count the inputs of batches.
COUNTERS = {
    **dict.fromkeys(("nv_inference_request_success", "vllm:request_success_total"), True),
    **dict.fromkeys(("nv_inference_count", "prediction_count"), False),
}
ANSWERED = frozenset(["served", "answered", "completed", "processed", "handled", "executed", "finished"])
_FURTHER = (FURTHER, ROMANCE, GERMAN)
FOREIGN = frozenset(word for table in _FURTHER for word in table[Role.THING].split())
ROLES = {w: role for table in (*_FURTHER, ENGLISH) for role, words in table.items() for w in words.split()}
