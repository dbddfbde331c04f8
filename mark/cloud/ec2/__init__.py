"""EC2's behaviour: capacity, interruptions, boots, CPU credits, states. Pure: every call passes the time."""
