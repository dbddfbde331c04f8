"""The requests that come: traces of the past, and forecasts."""
