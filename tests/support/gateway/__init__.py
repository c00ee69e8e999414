"""What tests of the gateway share."""
