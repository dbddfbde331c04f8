"""The boto3 session of a process: one set of credentials and configuration for all its calls to AWS.

A session opened here supports named profiles, roles that profiles assume, and SSO. A user's own session is used as it
is. Expiring credentials are renewed in the session, once for all its clients.
"""

from __future__ import annotations

import asyncio
import os
from functools import cache
from typing import Any

import botocore.session  # type: ignore[import-untyped]
from botocore.config import Config  # type: ignore[import-untyped]
from botocore.credentials import RefreshableCredentials  # type: ignore[import-untyped]
from botocore.exceptions import (  # type: ignore[import-untyped]
    BotoCoreError,
    ClientError,
    NoCredentialsError,
    ProfileNotFound,
)
from botocore.loaders import Loader  # type: ignore[import-untyped]

from mark.domain.errors import BadInput

# The fields of an instance that are read. DescribeInstances has fifty more, and parsing them takes as long again.
_OF_INSTANCE = frozenset((
    *("InstanceId", "InstanceType", "LaunchTime", "PrivateIpAddress", "State", "StateReason", "SubnetId", "Tags"),
))  # fmt: skip


# For the calls that assume a role. Their client is configured nowhere else, and every caller waits for them.
_RENEWING = Config(connect_timeout=2.0, read_timeout=5.0, retries={"mode": "standard", "total_max_attempts": 3})


def open_session(profile: str | None = None, region: str | None = None) -> Any:
    """Open the boto3 session of a profile in AWS's configuration; without one, as AWS's SDKs do (such as AWS_PROFILE).

    `region` is used if the configuration names none, because assuming a role needs one. Raises BadInput for a profile
    that does not exist or cannot be used.
    """
    try:
        session = new_session(profile, region)
        if profile is not None:
            session.get_credentials()  # a role's source credentials; AWS is asked later
    except ProfileNotFound as error:
        raise BadInput("is not in AWS's configuration", "AWS profile", error.kwargs["profile"]) from None
    except BotoCoreError as error:
        raise BadInput(f"cannot be used ({error})", "AWS profile", profile) from None
    return session


def new_session(profile: str | None = None, region: str | None = None) -> Any:
    """Open a session like `open_session`, but raise botocore's errors."""
    import boto3  # type: ignore[import-untyped]  # late, because it takes 50 ms and a plain installation lacks it

    own = botocore.session.Session()
    if profile is not None:
        own.set_config_variable("profile", profile)
    if region and own.get_config_variable("region") is None:
        own.set_config_variable("region", region)
    own.register_component("data_loader", _loader(own.get_config_variable("data_path")))
    own.set_default_client_config(_RENEWING)
    return boto3.Session(botocore_session=own)


def environment_keys(session: Any) -> dict[str, str]:
    """Return the current keys of a boto3 session as environment variables, for a program without boto3.

    Raises BadInput if there are none or they cannot be renewed.
    """
    try:
        credentials = session.get_credentials()
        if credentials is None:
            raise NoCredentialsError
        access, secret, token = credentials.get_frozen_credentials()[:3]
    except (BotoCoreError, ClientError) as error:
        raise BadInput(f"has no credentials ({error})", "session") from None
    keys = {"AWS_ACCESS_KEY_ID": access, "AWS_SECRET_ACCESS_KEY": secret, "AWS_SESSION_TOKEN": token}
    return {name: key for name, key in keys.items() if key}


async def async_session(session: Any) -> Any:
    """Return an aioboto3 session with the credentials and profile of a boto3 one; for None, as AWS's SDKs find them."""
    # Imported here because a plain installation has no aioboto3, and its import takes 0.8 s.
    import aioboto3
    from aiobotocore.credentials import AioCredentials
    from aiobotocore.session import get_session

    if session is None:
        return aioboto3.Session()
    lender = await asyncio.to_thread(session.get_credentials)  # may ask the instance's metadata

    class Lent(AioCredentials):  # type: ignore[misc]
        """The boto3 session's credentials, so that only one copy is renewed."""

        async def get_frozen_credentials(self) -> Any:
            if isinstance(lender, RefreshableCredentials) and lender.refresh_needed():
                return await asyncio.to_thread(lender.get_frozen_credentials)
            return lender.get_frozen_credentials()

    class Lending:
        async def load_credentials(self) -> Lent | None:
            return None if lender is None else Lent("", "", method=lender.method)

    own = get_session()
    if session.profile_name in session.available_profiles:
        own.set_config_variable("profile", session.profile_name)
    own.register_component("credential_provider", Lending())
    return aioboto3.Session(botocore_session=own, region_name=session.region_name)


class _Models(Loader):  # type: ignore[misc]
    """What the SDK knows of the services, of EC2's instances only what is read."""

    def load_service_model(self, service_name: str, type_name: str, api_version: str | None = None) -> Any:
        model = super().load_service_model(service_name, type_name, api_version)
        if (service_name, type_name) == ("ec2", "service-2"):
            shapes = model["shapes"]
            members = shapes["Instance"]["members"].items()
            read = {name: member for name, member in members if name in _OF_INSTANCE}
            # A copy, because another loader may hold the same description.
            return {**model, "shapes": {**shapes, "Instance": {**shapes["Instance"], "members": read}}}
        return model


@cache
def _loader(paths: str | None) -> Any:
    """Return the loader of service models, cached because reading EC2's model takes a third of a second per gate."""
    return _Models([os.path.expanduser(os.path.expandvars(path)) for path in (paths or "").split(os.pathsep) if path])
