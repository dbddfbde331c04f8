"""An answer tells clients how it came about, in the same words by HTTP and gRPC, and feedback keeps it."""

from __future__ import annotations

import tracemalloc

import pytest

from mark.models.answer import CACHE, INSTANCE, Answer, AskedModel, Provenance
from mark.models.call import Reply

REPLY = Reply(200, "application/json", b"7")


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (Answer(REPLY, INSTANCE, "1"), []),
        (Answer(REPLY, INSTANCE, "1", "a=3;b=4"), [("mark-stages", "a=3;b=4")]),
        (Answer(REPLY, INSTANCE, provenance=Provenance((AskedModel("small", 0.1, 1e-6),), note=b"{}")), []),
        (
            Answer(REPLY, CACHE, "1", "a=3", Provenance(selected="thompson;large", confidence=0.5, degraded="k=2")),
            [
                ("mark-stages", "a=3"),
                ("mark-selected", "thompson;large"),
                ("mark-confidence", "0.5"),
                ("mark-degraded", "k=2"),
            ],
        ),
        (Answer(REPLY, INSTANCE, provenance=Provenance(confidence=0.0)), [("mark-confidence", "0")]),
    ],
)
def test_headers_hold_what_is_known_of_an_answer(answer: Answer, said: list[tuple[str, str]]) -> None:
    assert answer.said() == said


@pytest.mark.parametrize("text", ["a\r\nset-cookie: x", "é", "\0"])
def test_headers_are_printable_ascii(text: str) -> None:
    for how in (Provenance(selected=text), Provenance(degraded=text)):
        ((_, value),) = Answer(REPLY, INSTANCE, provenance=how).said()
        assert value.isascii()
        assert value.isprintable()


@pytest.mark.parametrize("models", [0, 1, 8])
def test_memory_of_a_provenance_is_not_underestimated(models: int) -> None:
    count = 200
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        kept = [
            Provenance(
                tuple(AskedModel(f"model {i}", 0.5 + i / 1e3, 1e-6 * i) for _ in range(models)),
                f"thompson;model {i}",
                0.5 + i / 1e3,
                f"agreement={i}",
                b"x" * (100 + i),
            )
            for i in range(count)
        ]
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    said = sum(how.memory_bytes() for how in kept)
    print(f"{models} models: {(after - before) / count:.0f} bytes each, {said / count:.0f} reckoned")
    assert after - before < said < 2.5 * (after - before)
