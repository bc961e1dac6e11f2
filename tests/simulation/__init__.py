"""Deterministic simulation of the whole line: one seed decides every step, every moment and every fault."""
