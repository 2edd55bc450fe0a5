"""What differs between the modes."""
