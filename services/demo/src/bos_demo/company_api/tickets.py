"""Tickets that were opened through the API: in memory, so that the company's rows never change."""

from __future__ import annotations

from datetime import date
from typing import Any

MAX_TICKETS = 1_000


class OpenedTickets:
    """Tickets by number, each opened once per idempotency key.

    Args:
        today: The company's fixed today, when they were opened.
    """

    def __init__(self, today: date) -> None:
        self._today = today
        self._by_number: dict[int, dict[str, Any]] = {}
        self._by_key: dict[str, tuple[dict[str, Any], int]] = {}
        self.effects = 0
        """How many tickets were opened."""

    def known(self, key: str, body: dict[str, Any]) -> dict[str, Any] | None:
        """Ticket that ``key`` opened already; None if there is none.

        Raises:
            ValueError: it was opened with another body.
        """
        if key not in self._by_key:
            return None
        opened_with, number = self._by_key[key]
        if opened_with != body:
            raise ValueError("The Idempotency-Key was used with another body.")
        return self._by_number[number]

    def open(self, key: str, body: dict[str, Any], after: int) -> dict[str, Any]:
        """Open a ticket; its number follows ``after`` and all that were opened before.

        Raises:
            OverflowError: there are too many.
        """
        if len(self._by_number) >= MAX_TICKETS:
            raise OverflowError(f"At most {MAX_TICKETS} tickets can be opened.")
        number = max([after, *self._by_number]) + 1
        ticket = {
            "id": number,
            "customer": body["customer"],
            "sku": None,
            "assigned_to": None,
            "topic": body["topic"],
            "priority": body.get("priority", "normal"),
            "status": "open",
            "opened_at": f"{self._today.isoformat()}T12:00:00",
            "closed_at": None,
            "text": body["text"],
        }
        self._by_number[number] = ticket
        self._by_key[key] = (body, number)
        self.effects += 1
        return ticket

    def find(self, number: int) -> dict[str, Any] | None:
        """Ticket of this number; None if it was not opened here."""
        return self._by_number.get(number)

    def listed(self, status: str, priority: str) -> list[dict[str, Any]]:
        """Tickets, the latest first."""
        return [
            ticket
            for _, ticket in sorted(self._by_number.items(), reverse=True)
            if status in ("", ticket["status"]) and priority in ("", ticket["priority"])
        ]
