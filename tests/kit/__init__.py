"""What the suites share: real brokers and stores handed out, never imitated."""
