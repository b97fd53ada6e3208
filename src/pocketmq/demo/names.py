"""Topics and groups of the shop."""

from typing import Final

ORDERS: Final = "shop-orders"
PAYMENTS: Final = "shop-payments"
REMINDERS: Final = "shop-reminders"
DEAD_ORDERS: Final = "shop-orders-dead"
"""Orders that nobody can read, each with the reason."""
REVENUE: Final = "shop-revenue"
"""What each city has bought in each hour, once for each time that it grew."""

TOPICS: Final = {ORDERS: 8, PAYMENTS: 4, REMINDERS: 4, DEAD_ORDERS: 2, REVENUE: 2}
"""And how many queues they have."""

TILL: Final = "shop-till"
BANK: Final = "shop-bank"
CALENDAR: Final = "shop-calendar"
SHIPPING: Final = "shop-shipping"
MAIL: Final = "shop-mail"
SPARK: Final = "shop-spark"
