"""AWS behind the ports."""
