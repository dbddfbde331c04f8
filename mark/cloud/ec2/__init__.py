"""How EC2 behaves: capacity, interruptions, boots, CPU credits, states. Pure: times come in with every call."""
