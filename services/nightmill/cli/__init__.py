"""The command `nightmill`: a thin user of the client and of the laptop."""
