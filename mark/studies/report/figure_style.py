"""The look that all figures of pages share: colours, dashes and margins, in plotly's words."""

from __future__ import annotations

from typing import Any

from mark.domain.extras import module_of

# Fixed places, so that a policy or market has one colour in every figure of a page. Distinguishable with any kind of
# colour blindness, on white paper and on a dark ground (tested), and by their dashes in a grey print.
COLOURS = ("#0061a8", "#d55e00", "#099268", "#7048e8", "#111827", "#cc79a7", "#7a2e00", "#00239d", "#6f4070", "#f00b4d")
ON_DARK = dict(
    zip(
        COLOURS,
        ("#97b2ff", "#ffbc1f", "#1cba4f", "#ecc3ea", "#a3aba0", "#a479ae", "#fa3511", "#327ffb", "#837ad7", "#fa3575"),
        strict=True,
    )
)
DASHES = ("solid", "7px,3px", "2px,3px", "10px,3px,2px,3px", "14px,4px", "5px,2px,2px,2px,2px,2px", "1px,2px")


def new_figure(rows: int = 1, columns: int = 1, **options: Any) -> Any:
    """Return an empty figure, or a grid of them; options are the ones of plotly's `make_subplots`.

    The library plotly takes 0.3 s to import and comes with the extra `report`; the pages of `mark compare` do not need
    it.
    """
    return module_of("plotly.subplots", "a page with figures").make_subplots(rows, columns, **options)


def styled(figure: Any, height: int) -> Any:
    """Return the figure, `height` pixels high, with the page's colours and fonts."""
    return figure.update_layout(
        template="none",
        height=height,
        margin={"l": 56, "r": 24, "t": 36, "b": 44},
        legend={"orientation": "h", "y": 1.0 + 26.0 / height, "yanchor": "bottom", "x": 0},
    )


def faint(colour: str, opacity: float) -> str:
    """Return a translucent colour for `#rrggbb`."""
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red},{green},{blue},{opacity})"
