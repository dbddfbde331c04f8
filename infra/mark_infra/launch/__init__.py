"""Programs that need AWS or the testbed, built from options: controller, testbed, profiles on rented instances."""
