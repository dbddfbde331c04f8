"""Models of a cloud's behaviour and bills: EC2's boots, spot capacity and credits; meters, extras and invoices."""
