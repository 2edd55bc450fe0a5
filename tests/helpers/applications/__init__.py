"""Applications that tests of several wings share."""
