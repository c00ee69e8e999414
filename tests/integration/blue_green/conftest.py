"""What tests of the blue-green migration share: two clusters."""

pytest_plugins = ["tests.support.blue_green.environment"]
