"""What tests of the controller of scalable topics share."""
