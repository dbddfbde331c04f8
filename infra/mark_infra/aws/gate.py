"""The one way to AWS: clients that never wait long, and errors by reaction instead of by code."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from typing import Any

from botocore.config import Config  # type: ignore[import-untyped]
from botocore.exceptions import (  # type: ignore[import-untyped]
    BotoCoreError,
    ClientError,
    CredentialRetrievalError,
    NoCredentialsError,
    ParamValidationError,
    PartialCredentialsError,
    ReadTimeoutError,
    SSOError,
    TokenRetrievalError,
)
from botocore.parsers import ResponseParserError  # type: ignore[import-untyped]

from mark.domain.errors import (
    CapacityError,
    CloudError,
    DeniedError,
    LimitError,
    LostLease,
    NotFoundError,
    RefusalScope,
    ThrottledError,
)
from mark.domain.offer import Offer
from mark_infra.aws.session import new_session
from mark_infra.aws.site import Site

CONNECT_S, READ_S = 2.0, 5.0
# An instant fleet launches all that it was asked for before it answers.
PATIENT_S = 16.0
_ATTEMPTS = 3
# Calls that fail may take this long in all; while it is used up no call is made, and it comes back at this rate. So a
# cloud that hangs costs its callers a known share of their time. Patient calls have a time of their own.
_BUDGET_S, _BUDGET_PER_S = 20.0, 0.25
# Calls that an old leader must not make, by service: what launches or starts, and what moves a function's alias.
_LED = {"ec2": ("CreateFleet", "StartInstances"), "lambda": ("UpdateAlias",)}
_until_s: ContextVar[float] = ContextVar("until_s", default=math.inf)

_CAPACITY = frozenset((
    *("InsufficientCapacity", "InsufficientHostCapacity", "InsufficientInstanceCapacity"),
    *("InsufficientReservedInstanceCapacity", "InsufficientFreeAddressesInSubnet", "UnfulfillableCapacity"),
    *("SpotMaxPriceTooLow", "Unsupported", "UnsupportedOperation.InstanceTypeNotSupported"),
))  # fmt: skip
_LIMIT = frozenset((
    *("MaxSpotInstanceCountExceeded", "MaxSpotFleetRequestCountExceeded", "TooManyTargets"),
    *("ResourceCountExceeded", "LimitExceededException", "ServiceQuotaExceededException"),
))  # fmt: skip
# Of a launch: what is refused with it, see `RefusalScope`. Any other code is of the one pool.
_TYPE = frozenset(("InvalidParameterCombination", "InvalidInstanceType", "UnsupportedInstanceAttribute"))
# What every launch of a release shares: its launch template, and what that names. (A subnet is one zone's only.)
_EVERYTHING = (
    *("invalidamiid.", "invalidlaunchtemplate", "invalidiaminstanceprofile", "invalidsecuritygroup"),
    *("invalidgroup.notfound", "invalidkeypair.notfound", "invalidsnapshot.notfound", "invalidvpcid.notfound"),
    *("invalidblockdevicemapping", "invaliduserdata.malformed", "missingparameter"),
)  # so the codes begin; EC2 writes Id and ID, Iam and IAM
# A profile that is gone is an InvalidParameterValue, which may be about anything (aws/karpenter-provider-aws, #3051).
_PROFILE = "iam instance profile"
# Of these, what is a release's own: its image, and its version of the launch template.
_GONE = (
    "invalidamiid.",
    "invalidsnapshot.notfound",
    "invalidlaunchtemplateid.versionnotfound",
    "invalidlaunchtemplatename.versionnotfound",
)
_QUOTA = frozenset(("VcpuLimitExceeded", "InstanceLimitExceeded"))
# Why an instance stops or ends, by its StateReason, that was not refused: a user ended it, or it ended itself; or it
# was interrupted. Whatever else EC2 says of one that never ran was wrong with its launch.
_NO_REFUSAL = frozenset((
    *("", "Client.UserInitiatedShutdown", "Client.UserInitiatedHibernate", "Client.InstanceInitiatedShutdown"),
    *("Client.InstanceTerminated", "Server.ScheduledStop"),
    *("Server.SpotInstanceShutdown", "Server.SpotInstanceTermination"),
))  # fmt: skip
_UNDECIDED = frozenset((
    *("InternalError", "InternalFailure", "ServerInternal", "ServiceUnavailable", "Unavailable", "RequestTimeout"),
    *("IdempotentParameterMismatch", "IdempotentInstanceTerminated", "InternalServerError"),
))  # fmt: skip
_THROTTLED = frozenset((
    *("Throttling", "ThrottlingException", "ThrottledException", "RequestLimitExceeded", "RequestThrottled"),
    *("RequestThrottledException", "TooManyRequestsException", "BandwidthLimitExceeded", "SlowDown"),
    *("ProvisionedThroughputExceededException", "PriorRequestNotComplete", "EC2ThrottledException"),
))  # fmt: skip
_CREDENTIALS = frozenset((
    *("AuthFailure", "UnrecognizedClientException", "InvalidClientTokenId", "InvalidAccessKeyId"),
    *("SignatureDoesNotMatch", "ExpiredToken", "ExpiredTokenException", "MissingAuthenticationToken"),
    *("IncompleteSignature", "NotAuthorized", "RequestExpired"),
))  # fmt: skip
_DENIED = _CREDENTIALS | {
    *("UnauthorizedOperation", "AccessDenied", "AccessDeniedException", "OptInRequired", "Blocked"),
    "PendingVerification",
}

# What a person must mend: a profile, a login that is over.
_NO_CREDENTIALS = (
    NoCredentialsError,
    PartialCredentialsError,
    CredentialRetrievalError,
    SSOError,
    TokenRetrievalError,
)

# Gates may share a session, and to make clients with one is not thread-safe.
_making = threading.Lock()


def reaction(code: str, message: str) -> CloudError:
    """The error that stands for an AWS error code: one class per reaction, see mark.domain.errors."""
    text = f"{code}: {message}"
    if code in _CAPACITY:
        return CapacityError(text)
    if code in _THROTTLED:
        return ThrottledError(text)
    if code in _LIMIT or code.endswith("LimitExceeded"):
        return LimitError(text)
    if code in _DENIED:
        return DeniedError(text)
    if "NotFound" in code or code.endswith("NonExistentQueue"):
        return NotFoundError(text)
    return CloudError(text)


def is_refusal(error: CloudError) -> bool:
    """Is it what was asked that AWS, or the SDK before it, does not take? To ask for the same again would not help."""
    if type(error) is not CloudError:  # throttling, credentials, a limit: these pass
        return False
    cause = error.__cause__
    if not isinstance(cause, ClientError):
        return isinstance(cause, ParamValidationError)
    code, status = cause.response.get("Error", {}).get("Code"), cause.response["ResponseMetadata"]["HTTPStatusCode"]
    return 400 <= status < 500 and code not in _UNDECIDED


def is_mismatch(error: CloudError) -> bool:
    """Was the token of the call used for something else before?"""
    cause = error.__cause__
    code = cause.response.get("Error", {}).get("Code") if isinstance(cause, ClientError) else None
    return bool(code == "IdempotentParameterMismatch")


def launch_refusal(error: CloudError) -> CloudError:
    """What an error says of a launch: whatever EC2 answered and did not fail at, nothing was launched.

    So each answer is a CapacityError with its scope, but for throttling, for failures of EC2's own and for a token that
    was used for something else: these say nothing, and the launch is asked for again. Credentials that are not accepted
    say nothing of launches either.
    """
    cause = error.__cause__
    if not isinstance(cause, ClientError) or isinstance(error, ThrottledError):
        return error
    code = str(cause.response.get("Error", {}).get("Code", ""))
    if code in _UNDECIDED or code in _CREDENTIALS or cause.response["ResponseMetadata"]["HTTPStatusCode"] >= 500:
        return error
    return _refused(str(error), code, str(error))


def fleet_refusal(
    errors: Iterable[Mapping[str, Any]], otherwise: str, offer: Offer | None = None
) -> CapacityError | ThrottledError:
    """Why an instant fleet got none, or too few, of `offer` and what does as well.

    Each pool may have its own reason, and the widest that holds for the offer counts: its own, and what the account may
    not do at all. A pool that was throttled was not tried, so it refuses nothing; where the
    offer's own pools were, the launch is throttled. The call was answered: under its token there is no other answer.
    """
    found = [_PoolError(e) for e in errors]
    own = [one for one in found if offer is None or one.instance == offer.instance] or found
    if own and all(one.throttled for one in own):
        return ThrottledError(own[0].text)
    holding = [one for one in found if not one.throttled and (one in own or one.holds_for_all)]
    if not holding:
        return CapacityError(otherwise)
    order = list(RefusalScope)
    widest = max(holding, key=lambda one: order.index(one.scope))
    return _refused(widest.text, widest.code, widest.message)


class _PoolError:
    """One of the errors in the answer to CreateFleet."""

    def __init__(self, told: Mapping[str, Any]) -> None:
        self.code, self.message = str(told.get("ErrorCode", "")), str(told.get("ErrorMessage", ""))
        self.text = f"{self.code}: {self.message}"
        overrides = told.get("LaunchTemplateAndOverrides", {}).get("Overrides", {})
        self.instance = str(overrides.get("InstanceType", ""))
        self.scope, self.throttled = scope_of(self.code, self.message), self.code in _THROTTLED

    @property
    def holds_for_all(self) -> bool:
        """Does it hold for the pools of other types, too? A quota may have room for smaller ones."""
        return self.code in _DENIED or self.scope is RefusalScope.EVERYTHING


def _refused(text: str, code: str, message: str) -> CapacityError:
    return CapacityError(text, scope_of(code, message), gone=code.lower().startswith(_GONE))


def scope_of(code: str, message: str = "") -> RefusalScope:
    """How much is refused with a launch that EC2 answered by this error code."""
    if code.lower().startswith(_EVERYTHING) or (code == "InvalidParameterValue" and _PROFILE in message.lower()):
        return RefusalScope.EVERYTHING
    if code in _TYPE:
        return RefusalScope.TYPE
    if code in _QUOTA:
        return RefusalScope.QUOTA
    # Of a limit of whole instances, of rights and of the account nothing is known but the market that met them.
    if code in _DENIED or code in _LIMIT or code.endswith(("LimitExceeded", "NotPermitted")):
        return RefusalScope.MARKET
    return RefusalScope.OFFER


def scope_of_end(code: str) -> RefusalScope | None:
    """How much is refused with an instance that never ran, by the code of its StateReason; None where nothing is."""
    if code in _NO_REFUSAL:
        return None
    # The key of its encrypted volumes cannot be used, most often.
    return RefusalScope.EVERYTHING if code == "Client.InternalError" else scope_of(code.partition(".")[2])


@contextmanager
def within(seconds: float, monotonic: Callable[[], float] = time.monotonic) -> Iterator[None]:
    """In the block, as far as it is run by this thread, no gate begins a call after `seconds`."""
    token = _until_s.set(monotonic() + seconds)
    try:
        yield
    finally:
        _until_s.reset(token)


@contextmanager
def computing(monotonic: Callable[[], float] = time.monotonic) -> Iterator[None]:
    """The time of the block does not count for `within`: it is ours and not AWS's, and a second try takes as long."""
    began_s = monotonic()
    try:
        yield
    finally:
        _until_s.set(_until_s.get() + monotonic() - began_s)


class _Budget:
    """How long calls may still fail."""

    def __init__(self, now_s: float) -> None:
        self._left_s, self._at_s = _BUDGET_S, now_s

    def at(self, now_s: float) -> float:
        self._left_s = min(_BUDGET_S, self._left_s + (now_s - self._at_s) * _BUDGET_PER_S)
        self._at_s = now_s
        return self._left_s

    def spend(self, took_s: float, now_s: float) -> None:
        self._at_s = now_s  # what failed brings nothing back
        self._left_s -= took_s


class Gate:
    """Makes the clients of a site and calls them. Thread-safe.

    `session` is boto3's, of `open_session` or a user's own; without one, credentials and configuration are found as
    AWS's SDKs find them. `options` go to its `client`.
    Every call is tried three times, with pauses of up to 1 and 2 s (the SDK's standard mode; its adaptive one, once
    throttled, holds up every later call of the client, by far more than a tick has). A call whose answer is lost is
    repeated, too: what must not happen twice carries a token. An answer may take `read_s`, or READ_S.
    `monotonic` may run differently in each thread; by `recovery_clock`, the same for all, the time for failing calls
    comes back.
    """

    def __init__(
        self,
        site: Site,
        *,
        session: Any = None,
        options: Mapping[str, Any] | None = None,
        read_s: float | None = None,
        monotonic: Callable[[], float] = time.monotonic,
        recovery_clock: Callable[[], float] | None = None,
    ) -> None:
        self._region, self._options, self._monotonic = site.region, dict(options or {}), monotonic
        self._recovery_clock = recovery_clock or monotonic
        self._read_s = READ_S if read_s is None else read_s
        self._lock = threading.Lock()
        self._session, self._making = session, nullcontext() if session is None else _making
        self._clients: dict[tuple[str, bool], Any] = {}
        self._leads: Callable[[], bool] | None = None
        # A balancer that hangs holds up no launch, nor the other way round.
        self._budgets = {patient: _Budget(self._recovery_clock()) for patient in (False, True)}

    def buy_while(self, leads: Callable[[], bool]) -> None:
        """Only while `leads` do clients that are made from now on sign what launches instances or moves an alias.

        Else the call raises LostLease. Each of its tries is signed anew, and AWS refuses a signature that is older than
        five minutes (Signature Version 4): so none is carried out later than that after the lead has ended.
        """
        self._leads = leads

    def client(self, service: str, *, patient: bool = False) -> Any:
        """The SDK's client of an AWS service, always the same one. Raises CloudError.

        A `patient` one waits `PATIENT_S` for an answer and asks twice: for a call that does much before it answers, and
        that may be repeated later.
        """
        with self._lock:  # making clients is not thread-safe, using them is
            if (service, patient) not in self._clients:
                config = Config(
                    connect_timeout=CONNECT_S,
                    read_timeout=PATIENT_S if patient else self._read_s,
                    retries={"mode": "standard", "total_max_attempts": 2 if patient else _ATTEMPTS},
                    max_pool_connections=32,
                )
                options = {"region_name": self._region, **self._options}
                try:
                    if self._session is None:
                        self._session = new_session()
                    with self._making:
                        self._clients[service, patient] = self._session.client(service, config=config, **options)
                except (BotoCoreError, ValueError) as error:
                    raise CloudError(f"{service}: {error}") from error
                if self._leads is not None:
                    for operation in _LED.get(service, ()):
                        signed = f"before-sign.{service}.{operation}"
                        self._clients[service, patient].meta.events.register(signed, self._check_lead)
            return self._clients[service, patient]

    def call(self, method: Callable[..., Any], *, patient: bool = False, **arguments: Any) -> Any:
        """`method(**arguments)` of a client of this gate. Raises a CloudError by reaction, never anything else of AWS.

        What a `patient` client waits for in vain is not unusual, and uses up no time for failing calls.
        Raises ThrottledError at once while the time for failing calls is used up, and when that of `within` is over.
        """
        began_s = self._monotonic()
        if began_s > _until_s.get():
            raise ThrottledError("AWS answers so slowly that the rest has to wait for the next round")
        with self._lock:
            if self._budgets[patient].at(self._recovery_clock()) <= 0.0:
                raise ThrottledError("AWS has failed for too long and is left alone for a while")
        try:
            return method(**arguments)
        except ClientError as error:
            said = error.response.get("Error", {})
            found = reaction(str(said.get("Code", "")), str(said.get("Message", "")))
            if isinstance(found, ThrottledError) or error.response["ResponseMetadata"]["HTTPStatusCode"] >= 500:
                self._failed(began_s, patient)
            raise found from error
        except _NO_CREDENTIALS as error:
            self._failed(began_s, patient)
            with self._lock:  # a client keeps what it found when it was made, also that there was nothing
                self._clients.clear()
            raise DeniedError(str(error)) from error
        except (
            BotoCoreError,
            ResponseParserError,
        ) as error:  # no connection, no answer in time, an answer that is none
            if not (patient and isinstance(error, ReadTimeoutError)):
                self._failed(began_s, patient)
            raise CloudError(f"{type(error).__name__}: {error}") from error

    def pages(self, method: Callable[..., Any], **arguments: Any) -> Iterator[Any]:
        """The answers of a method that pages by NextToken."""
        answer = self.call(method, **arguments)
        yield answer
        while token := answer.get("NextToken"):
            answer = self.call(method, **arguments, NextToken=token)
            yield answer

    def _check_lead(self, **_: Any) -> None:
        if self._leads is not None and not self._leads():
            raise LostLease("the lease ended before the call was signed")

    def _failed(self, began_s: float, patient: bool) -> None:
        took_s = self._monotonic() - began_s
        with self._lock:
            self._budgets[patient].spend(took_s, self._recovery_clock())
