"""Where the programs are put together: server, gateway, controller, testbed. Command line and SDK only pass options."""
