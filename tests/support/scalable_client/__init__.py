"""What tests of the client for scalable topics share."""
