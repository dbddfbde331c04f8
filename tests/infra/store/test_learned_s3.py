"""Learned facts in a bucket, on moto."""

from __future__ import annotations

import pytest
from mark_infra.store.s3 import S3Objects

from tests.infra.conftest import MotoServer
from tests.infra.store.test_s3 import bucket as bucket
from tests.infra.store.test_s3 import gate
from tests.models.registry_contract import Open
from tests.serving.learned.stored_contract import LearnedStoreContract


class TestS3Store(LearnedStoreContract):
    @pytest.fixture
    def opened(self, moto: MotoServer, bucket: str) -> Open:
        return lambda: S3Objects(gate(moto), bucket, "site")
