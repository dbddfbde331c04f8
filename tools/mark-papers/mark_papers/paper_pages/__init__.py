"""The paper's experiments as tables and pages."""
