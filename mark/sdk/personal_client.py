"""A client of a service with `[personal]`: predictions for a key, its best items, and rewards to learn from."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, NamedTuple, Self
from urllib.parse import quote

from mark.domain.errors import BadInput, MarkError
from mark.domain.extras import module_of

_TIMEOUT_S = 10.0
_ATTEMPTS = 3


class RankedItem(NamedTuple):
    """One of the best items: its name, its expected reward, and the standard deviation of the expectation."""

    item: str
    score: float
    uncertainty: float


class PersonalClient:
    """Asks the server at `url`, `http://HOST:PORT`, about the service `model`; "" means the only one there.

    `key` is the user of all calls that name no other one. `api_key` is sent to a server that requires it. Every method
    raises BadInput for requests that the server refuses, and MarkError if it cannot answer.
    """

    def __init__(self, url: str, key: str = "", *, model: str = "", api_key: str = "") -> None:
        self.key = key
        httpx = module_of("httpx", "mark.PersonalClient")
        headers = {"authorization": f"Bearer {api_key}"} if api_key else {}
        self._http = httpx.Client(base_url=url.rstrip("/"), headers=headers, timeout=_TIMEOUT_S, trust_env=False)
        self._errors = (httpx.HTTPError, httpx.InvalidURL)
        self._url, self._model = url, model

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def predict(self, item: Any, key: str | None = None) -> Any:
        """Return the expected reward of an item for the key: an input of the features stage, or an item's name."""
        return self._asked("POST", "/invocations", item, self._headers(key))

    def top(
        self,
        k: int = 10,
        items: Sequence[str] | Mapping[str, Any] | None = None,
        key: str | None = None,
        exclude: Sequence[str] = (),
    ) -> list[RankedItem]:
        """Return the best `k` items for the key: of the whole table, of the named ones, or of inputs by name."""
        said: dict[str, Any] = {"k": k}
        if isinstance(items, Mapping):
            said["items"] = [{"item": name, "input": one} for name, one in items.items()]
        elif items is not None:
            said["items"] = list(items)
        if exclude:
            said["exclude"] = list(exclude)
        found = self._asked("POST", f"{self._path()}/top", said, self._headers(key))
        return [RankedItem(str(one["item"]), one["score"], one["uncertainty"]) for one in found["items"]]

    def observe(
        self, reward: float, *, item: str = "", input: Any = None, key: str | None = None, id: str = ""
    ) -> bool:
        """Report the reward that the key gave an item. False: it taught nothing, or it was reported before.

        With your own `id` you may report it again after an error, and it counts once. Without one this method makes an
        id and repeats the call by itself.
        """
        said: dict[str, Any] = {"id": id or uuid.uuid4().hex, "key": self._key(key), "reward": reward}
        said |= {"item": item} if item else {}
        said |= {"input": input} if input is not None else {}
        for attempt in range(_ATTEMPTS):
            try:
                found = self._asked("POST", f"{self._path()}/feedback", said, {})
            except MarkError as error:
                if isinstance(error, BadInput) or attempt == _ATTEMPTS - 1:
                    raise
            else:
                result = found["results"][0]["result"]
                # The first call may have been applied although its answer was lost.
                return result == "applied" or (result == "duplicate" and attempt > 0)
        raise AssertionError("the last attempt returns or raises")

    def show(self, key: str | None = None) -> dict[str, Any]:
        """Return the server's knowledge of the key. The server must permit an administrator's requests."""
        found: dict[str, Any] = self._asked("GET", f"{self._path()}/keys/{quote(self._key(key), safe='')}")
        return found

    def forget(self, key: str | None = None) -> None:
        """Delete the key. The server must permit an administrator's requests."""
        self._asked("DELETE", f"{self._path()}/keys/{quote(self._key(key), safe='')}")

    def _key(self, key: str | None) -> str:
        found = self.key if key is None else key
        if not found:
            raise BadInput("missing: say whom it is for", "mark.PersonalClient key")
        return found

    def _headers(self, key: str | None) -> dict[str, bytes]:
        found = self.key if key is None else key
        return {"mark-key": found.encode()} if found else {}

    def _path(self) -> str:
        if not self._model:
            names = sorted({str(one["name"]) for one in self._asked("POST", "/v2/repository/index", {})})
            if len(names) != 1:
                raise BadInput(f"serves {', '.join(names) or 'nothing'}: say which", f"{self._url} model")
            self._model = names[0]
        return f"/v2/models/{quote(self._model, safe='')}"

    def _asked(self, method: str, path: str, body: Any = None, headers: Mapping[str, bytes] | None = None) -> Any:
        given = {} if method in ("GET", "DELETE") else {"json": body}
        try:
            answer = self._http.request(method, path, headers=headers, **given)
            found = answer.json()
        except self._errors as error:
            raise MarkError(f"{self._url}: cannot be asked ({type(error).__name__}: {error})") from error
        except ValueError as error:
            raise MarkError(f"{self._url}: status {answer.status_code}, and no JSON") from error
        if answer.status_code == 200:
            return found
        why = str(found.get("error", "")) if isinstance(found, dict) else ""
        if answer.status_code < 500 and answer.status_code != 429:
            raise BadInput(why or f"status {answer.status_code}", f"{self._url}{path}")
        raise MarkError(f"{self._url}{path}: {why or 'no reason'} (status {answer.status_code})")
