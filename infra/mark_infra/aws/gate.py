"""The one way to AWS: clients with short timeouts, and errors classified by how callers must react."""

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
# An instant fleet answers only after all its instances are launched.
PATIENT_S = 16.0
_ATTEMPTS = 3
# Time budget of failing calls, and the rate at which it refills. No call is made while it is spent, so that a hanging
# cloud costs its callers a known share of their time. Patient calls have a separate budget.
_BUDGET_S, _BUDGET_PER_S = 20.0, 0.25
# Calls that a former leader must not make, by service: launching and starting instances, and moving a function's alias.
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
# Codes of a refused launch by their scope, see `RefusalScope`. Any other code concerns one pool only.
_TYPE = frozenset(("InvalidParameterCombination", "InvalidInstanceType", "UnsupportedInstanceAttribute"))
# Codes about the launch template or a resource it names, which all launches of a release share. A subnet belongs to
# one zone, so it is not shared.
_EVERYTHING = (
    *("invalidamiid.", "invalidlaunchtemplate", "invalidiaminstanceprofile", "invalidsecuritygroup"),
    *("invalidgroup.notfound", "invalidkeypair.notfound", "invalidsnapshot.notfound", "invalidvpcid.notfound"),
    *("invalidblockdevicemapping", "invaliduserdata.malformed", "missingparameter"),
)  # prefixes in lower case, because EC2 writes both Id and ID, Iam and IAM
# A deleted profile is an InvalidParameterValue, which may be about anything (aws/karpenter-provider-aws, #3051).
_PROFILE = "iam instance profile"
# The codes among these that concern one release: its image, and its version of the launch template.
_GONE = (
    "invalidamiid.",
    "invalidsnapshot.notfound",
    "invalidlaunchtemplateid.versionnotfound",
    "invalidlaunchtemplatename.versionnotfound",
)
_QUOTA = frozenset(("VcpuLimitExceeded", "InstanceLimitExceeded"))
# StateReason codes of instances that were not refused: ended by a user, by themselves, or interrupted. Any other code
# of an instance that never ran means that its launch was refused.
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

# Errors that only a person can mend, such as a missing profile or an expired login.
_NO_CREDENTIALS = (
    NoCredentialsError,
    PartialCredentialsError,
    CredentialRetrievalError,
    SSOError,
    TokenRetrievalError,
)

# Gates may share a session, and creating clients from it is not thread-safe.
_making = threading.Lock()


def reaction(code: str, message: str) -> CloudError:
    """Return our error for an AWS error code; there is one class for each reaction, see mark.domain.errors."""
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
    """Return whether AWS, or the SDK, refused the request itself, so that repeating it would not help."""
    if type(error) is not CloudError:  # throttling, credentials and limits are temporary
        return False
    cause = error.__cause__
    if not isinstance(cause, ClientError):
        return isinstance(cause, ParamValidationError)
    code, status = cause.response.get("Error", {}).get("Code"), cause.response["ResponseMetadata"]["HTTPStatusCode"]
    return 400 <= status < 500 and code not in _UNDECIDED


def is_mismatch(error: CloudError) -> bool:
    """Return whether the token of the call was used for another request before."""
    cause = error.__cause__
    code = cause.response.get("Error", {}).get("Code") if isinstance(cause, ClientError) else None
    return bool(code == "IdempotentParameterMismatch")


def launch_refusal(error: CloudError) -> CloudError:
    """Return a launch's error as a CapacityError with its scope, if it proves that nothing was launched.

    Throttling, failures inside EC2, rejected credentials and a token used for another request prove nothing: they are
    returned as they are, and the launch is repeated.
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
    """Return the reason why an instant fleet got no instance, or too few, of `offer` and its alternatives.

    Each pool may have its own reason. The widest one that concerns the offer counts: those of its own pools, and those
    that hold for the whole account. A throttled pool was not tried and so refused nothing; if all pools of the offer
    were throttled, the launch was. EC2 gives the same answer again under the same token.
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
        """Whether the error holds for the pools of other types too; a quota may have room for smaller ones."""
        return self.code in _DENIED or self.scope is RefusalScope.EVERYTHING


def _refused(text: str, code: str, message: str) -> CapacityError:
    return CapacityError(text, scope_of(code, message), gone=code.lower().startswith(_GONE))


def scope_of(code: str, message: str = "") -> RefusalScope:
    """Return how much else is refused with a launch that EC2 answered by this error code."""
    if code.lower().startswith(_EVERYTHING) or (code == "InvalidParameterValue" and _PROFILE in message.lower()):
        return RefusalScope.EVERYTHING
    if code in _TYPE:
        return RefusalScope.TYPE
    if code in _QUOTA:
        return RefusalScope.QUOTA
    # Limits on instances, missing rights and account limits are only known to hold in the market that met them.
    if code in _DENIED or code in _LIMIT or code.endswith(("LimitExceeded", "NotPermitted")):
        return RefusalScope.MARKET
    return RefusalScope.OFFER


def scope_of_end(code: str) -> RefusalScope | None:
    """Return how much else is refused with an instance that never ran, by its StateReason code; None if nothing is."""
    if code in _NO_REFUSAL:
        return None
    # Usually the key of its encrypted volumes cannot be used.
    return RefusalScope.EVERYTHING if code == "Client.InternalError" else scope_of(code.partition(".")[2])


@contextmanager
def within(seconds: float, monotonic: Callable[[], float] = time.monotonic) -> Iterator[None]:
    """Let no gate begin a call in this thread after `seconds` have passed in the block."""
    token = _until_s.set(monotonic() + seconds)
    try:
        yield
    finally:
        _until_s.reset(token)


@contextmanager
def computing(monotonic: Callable[[], float] = time.monotonic) -> Iterator[None]:
    """Exclude the block's time from `within`, because it is spent on our own work and not on AWS."""
    began_s = monotonic()
    try:
        yield
    finally:
        _until_s.set(_until_s.get() + monotonic() - began_s)


class _Budget:
    """The time that calls may still spend on failing."""

    def __init__(self, now_s: float) -> None:
        self._left_s, self._at_s = _BUDGET_S, now_s

    def at(self, now_s: float) -> float:
        self._left_s = min(_BUDGET_S, self._left_s + (now_s - self._at_s) * _BUDGET_PER_S)
        self._at_s = now_s
        return self._left_s

    def spend(self, took_s: float, now_s: float) -> None:
        self._at_s = now_s  # the time of a failing call refills nothing
        self._left_s -= took_s


class Gate:
    """Makes the clients of a site and calls them. Thread-safe.

    `session` is a boto3 session, from `open_session` or a user's own; without one, credentials and configuration are
    found as AWS's SDKs find them. `options` are passed to its `client`.
    Every call is tried three times, with pauses of up to 1 and 2 s. This is the SDK's standard mode; the adaptive mode,
    once throttled, delays every later call of the client by far more than a tick. A call whose answer is lost is
    repeated too, so calls that must not happen twice carry a token. An answer may take `read_s`, by default READ_S.
    `monotonic` may run differently in each thread; the budget of failing calls refills by `recovery_clock`, which is
    the same for all.
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
        # Separate budgets keep a hanging balancer from delaying launches, and the reverse.
        self._budgets = {patient: _Budget(self._recovery_clock()) for patient in (False, True)}

    def buy_while(self, leads: Callable[[], bool]) -> None:
        """Let clients created from now on sign launches and alias moves only while `leads` returns True.

        Otherwise the call raises LostLease. Each try is signed separately, and AWS refuses a signature older than five
        minutes (Signature Version 4), so no such call is carried out later than that after the lease has ended.
        """
        self._leads = leads

    def client(self, service: str, *, patient: bool = False) -> Any:
        """Return the SDK's client of an AWS service, always the same object. Raises CloudError.

        A `patient` client waits `PATIENT_S` for an answer and tries twice. It is for calls that do much before they
        answer and that may be repeated later.
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
        """Call `method(**arguments)` of a client of this gate. Raises only CloudError and its subclasses.

        A `patient` client that gets no answer in time spends no budget, because that is not unusual. Raises
        ThrottledError without a call while the budget of failing calls is spent, and after the time of `within`.
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
            with self._lock:  # a client keeps the credentials, or their absence, from its creation
                self._clients.clear()
            raise DeniedError(str(error)) from error
        except (
            BotoCoreError,
            ResponseParserError,
        ) as error:  # no connection, no answer in time, or an answer that cannot be parsed
            if not (patient and isinstance(error, ReadTimeoutError)):
                self._failed(began_s, patient)
            raise CloudError(f"{type(error).__name__}: {error}") from error

    def pages(self, method: Callable[..., Any], **arguments: Any) -> Iterator[Any]:
        """Yield the answers of a method that pages by NextToken."""
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
