"""The experiments of InferLine (SoCC '20) with our planners, tuners and simulated pipelines."""
