"""Calls of planner, agents and composer, which end in events."""
