"""Put the programs together: server, gateway, controller, testbed. Command line and SDK only pass options."""
