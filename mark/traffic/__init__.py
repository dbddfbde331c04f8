"""Traffic: traces of past requests, and forecasts."""
