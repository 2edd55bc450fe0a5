"""What this extension and its peers do with the same payment."""
