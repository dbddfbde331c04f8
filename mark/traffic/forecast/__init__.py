"""Forecasting: the port `Predictor` and the code around every predictor."""
