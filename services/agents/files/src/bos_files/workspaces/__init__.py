"""Workspaces of users: names, versions, quota, content."""
