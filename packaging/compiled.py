"""A build hook: the data plane's hot path as a C extension, from the same Python, by mypyc.

Off unless HATCH_BUILD_HOOK_ENABLE_CUSTOM=1, and never for an editable installation, whose sources change. Nothing else
differs: the code is typed anyway, and `make test-compiled` runs the tests of the data plane on what this makes.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

# What a request passes through, in the bouncer and in its worker. mark/domain/rules is not there: the kernel compiles
# that.
MODULES = (
    "mark/models/answering.py",
    "mark/models/call.py",
    "mark/models/items.py",
    "mark/models/oip.py",
    "mark/models/sagemaker.py",
    "mark/models/tensors.py",
    "mark/models/answer.py",
    "mark/serving/worker/shared_memory.py",
    "mark/serving/backend/bouncer.py",
    "mark/serving/backend/cache.py",
    "mark/serving/frontend/calls.py",
    "mark/serving/frontend/connection.py",
    "mark/serving/frontend/http.py",
    "mark/serving/frontend/limits.py",
    "mark/serving/backend/lineup.py",
    "mark/serving/backend/metrics.py",
    "mark/serving/backend/replica.py",
    "mark/serving/backend/request.py",
    "mark/serving/frontend/routes.py",
    "mark/serving/frontend/server.py",
    "mark/serving/backend/sieve.py",
    "mark/serving/backend/tuning.py",
    "mark/serving/backend/variants.py",
)


class Compiled(BuildHookInterface[Any]):
    """Adds the extension to a wheel. What mypyc or the C compiler refuses ends the build."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable":
            return
        from mypyc.build import mypycify
        from setuptools import Distribution

        self.folder = tempfile.mkdtemp()
        os.chdir(self.root)
        extensions = mypycify(
            ["--ignore-missing-imports", "--follow-imports=silent", f"--cache-dir={self.folder}", *MODULES],
            opt_level=os.environ.get("MARK_OPT_LEVEL", "3"),  # CI takes 1: the tests ask how it answers, not how fast
            debug_level="0",
            target_dir=self.folder,
        )
        build = Distribution({"name": "mark", "ext_modules": extensions}).get_command_obj("build_ext")
        build.build_lib = build.build_temp = self.folder
        build.ensure_finalized()
        build.run()
        for made in build.get_outputs():
            build_data["force_include"][made] = str(Path(made).relative_to(self.folder))
        build_data["pure_python"], build_data["infer_tag"] = False, True

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        if version != "editable":
            shutil.rmtree(self.folder)
