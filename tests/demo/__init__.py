"""`make demo-bulk`: a job in the bulk lanes of two providers that fail like real ones, and two books that agree."""
