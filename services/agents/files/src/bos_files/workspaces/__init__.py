"""Workspaces of users: names, versions, quota, and the content behind them."""
