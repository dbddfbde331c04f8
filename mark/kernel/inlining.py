"""`called_from`: let compiled functions call each other at half of numba's compile time.

numba makes machine code and a wrapper for calls from Python for each compiled function, even for those that are only
inlined into others. A stage has fifty arrays, so its wrappers are longer than the functions. Here a function that is
called by a compiled one becomes only intermediate code; the function that Python calls is optimised with all code that
is inlined into it.
"""

from __future__ import annotations

from typing import Any

import numba
from numba.core import codegen, compiler, compiler_machinery, typed_passes

_njit: Any = numba.njit
_codegen: Any = codegen
_compiler: Any = compiler
_machinery: Any = compiler_machinery
_passes: Any = typed_passes


def called_from(dispatcher: Any, **options: Any) -> None:
    """Let compiled code that calls `dispatcher` inline its function. `options` are those of numba's njit."""
    inlined = _njit(dispatcher.py_func, pipeline_class=_Inlined, **options)
    inlined.add_overload = lambda made: inlined.overloads.update({tuple(made.signature.args): made})
    dispatcher.get_call_template = inlined.get_call_template
    dispatcher.get_overload = inlined.get_overload


class _Inlined(_compiler.CompilerBase):  # type: ignore[misc]
    def define_pipelines(self) -> list[Any]:
        usual = _compiler.DefaultPassBuilder.define_nopython_pipeline(self.state)
        manager = _machinery.PassManager("inlined")
        for each, name in usual.passes:
            manager.add_pass(_Lowering if each is _passes.NativeLowering else each, name)
        manager.finalize()
        return [manager]


@_machinery.register_pass(mutates_CFG=True, analysis_only=False)
class _Lowering(_passes.NativeLowering):  # type: ignore[misc]
    """numba's lowering, without wrappers and without machine code."""

    _name = "lowering_to_inline"

    def run_pass(self, state: Any) -> bool:
        flags = state.flags
        flags.no_compile = flags.no_cpython_wrapper = flags.no_cfunc_wrapper = True
        state.library = _Library(state.targetctx.codegen(), state.func_id.func_qualname)
        super().run_pass(state)
        # Callers identify the function by this object, as otherwise by its machine code.
        lowered = state["cr"]._replace(cfunc=object())
        state.targetctx.insert_user_function(lowered.cfunc, lowered.fndesc, [state.library])
        state["cr"] = lowered
        return True


class _Library(_codegen.JITCodeLibrary):  # type: ignore[misc]
    """Intermediate code to link into others."""

    def _optimize_final_module(self) -> None:
        """Do nothing, because the caller is optimised as a whole."""

    def _finalize_final_module(self) -> None:
        self._finalize_dynamic_globals()
        self._verify_declare_only_symbols()
        self._finalized = True
