"""Studies of the own scaler of a user: the report of `mark advise`."""
