"""Bills: instances by the second, extras, and invoices to compare with."""
