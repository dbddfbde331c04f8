"""Forecasting: the port `Predictor` and what surrounds every predictor."""
